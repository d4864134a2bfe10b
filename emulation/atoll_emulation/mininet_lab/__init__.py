# SPDX-License-Identifier: Apache-2.0
"""The emulated laboratory: Mininet's nodes and an Open vSwitch in namespaces of their own."""
