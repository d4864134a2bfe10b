# SPDX-License-Identifier: Apache-2.0
"""The switches of a testbed: flow installation, reconciliation, swaps."""
