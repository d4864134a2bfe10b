# SPDX-License-Identifier: Apache-2.0
"""Metric points of a run, made from counters of boxes, switches, agents and jobs."""
