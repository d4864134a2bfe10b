# SPDX-License-Identifier: Apache-2.0
"""Runs watched again, and `atoll watch`, which serves them without a laboratory."""
