# SPDX-License-Identifier: Apache-2.0
"""Presentation of runs: reports, comparisons, diagrams, Grafana dashboards, the live page."""
