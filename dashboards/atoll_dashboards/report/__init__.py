# SPDX-License-Identifier: Apache-2.0
"""The report of a run: data, plots, HTML page, terminal summary."""
