# SPDX-License-Identifier: Apache-2.0
"""The proxy next to plain routing and PEPsal: throughput, and what arrives behind a slow leg (docs/benchmarks.md)."""
