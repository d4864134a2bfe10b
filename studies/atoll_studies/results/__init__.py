# SPDX-License-Identifier: Apache-2.0
"""Results of studies and comparisons: configurations, runs, estimates, tables."""
