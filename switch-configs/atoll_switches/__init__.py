# SPDX-License-Identifier: Apache-2.0
"""Capability profiles of switches, and switch configurations rendered from templates."""
