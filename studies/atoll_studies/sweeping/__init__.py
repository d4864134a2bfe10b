# SPDX-License-Identifier: Apache-2.0
"""Sweeps: which runs are left, and where they are made."""
