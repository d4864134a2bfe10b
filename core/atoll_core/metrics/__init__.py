# SPDX-License-Identifier: Apache-2.0
"""Metric points: their schema and their line protocol."""
