# SPDX-License-Identifier: Apache-2.0
"""The laboratory as a value: hosts, switches, boxes, trunks, and the real machines of an inventory."""
