# SPDX-License-Identifier: Apache-2.0
"""A live laboratory: machines, switches and controller, and runs on it."""
