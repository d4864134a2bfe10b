# SPDX-License-Identifier: Apache-2.0
"""Figures of a run, computed from its tables."""
