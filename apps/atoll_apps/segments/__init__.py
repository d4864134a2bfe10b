# SPDX-License-Identifier: Apache-2.0
"""Segments: the parts of a path that delivery, latency, chains and taps ask for."""
