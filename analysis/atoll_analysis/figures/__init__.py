# SPDX-License-Identifier: Apache-2.0
"""From tables to the figures of a run."""
