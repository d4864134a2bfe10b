# SPDX-License-Identifier: Apache-2.0
"""Comparison of runs: settings, groups over seeds, documents."""
