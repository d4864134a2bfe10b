# SPDX-License-Identifier: Apache-2.0
"""Twins of hardware switches: proxies that behave like one, in front of bridges of Open vSwitch."""
