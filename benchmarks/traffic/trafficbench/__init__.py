# SPDX-License-Identifier: Apache-2.0
"""Short flows a second on loopback, one server process and one client process; ours and others (docs/benchmarks.md)."""
