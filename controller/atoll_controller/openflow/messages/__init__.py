# SPDX-License-Identifier: Apache-2.0
"""Encode OpenFlow 1.3 messages, and parse the replies of switches."""
