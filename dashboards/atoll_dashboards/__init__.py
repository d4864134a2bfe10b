# SPDX-License-Identifier: Apache-2.0
"""What people look at: reports, comparisons, diagrams, Grafana, the live page."""
