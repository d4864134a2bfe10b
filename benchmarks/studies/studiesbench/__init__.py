# SPDX-License-Identifier: Apache-2.0
"""Sweeps by the wall clock, and sweeps that are killed."""
