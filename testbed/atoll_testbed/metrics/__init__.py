# SPDX-License-Identifier: Apache-2.0
"""The metric points of a run: from box counters, switches, agents and jobs."""
