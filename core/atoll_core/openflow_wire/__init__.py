# SPDX-License-Identifier: Apache-2.0
"""OpenFlow 1.3 as bytes, for both ends of the channel: the controller, and twins of hardware switches. Pure."""
