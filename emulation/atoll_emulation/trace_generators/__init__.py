# SPDX-License-Identifier: Apache-2.0
"""Generators of traces (docs/traces.md): pure functions of their options and seed, without files, clock or network."""
