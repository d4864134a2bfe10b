# SPDX-License-Identifier: Apache-2.0
"""Replays of runs, and the server of `atoll watch`, which needs no lab."""
