# SPDX-License-Identifier: Apache-2.0
"""Checks of this machine for emulated and virtual laboratories."""
