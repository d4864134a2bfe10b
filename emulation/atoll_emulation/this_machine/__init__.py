# SPDX-License-Identifier: Apache-2.0
"""Checks of this machine: what it offers for emulated and virtual laboratories."""
