# SPDX-License-Identifier: Apache-2.0
"""Emulated laboratories: Mininet and Open vSwitch, the virtual kernel, generators of link traces."""
