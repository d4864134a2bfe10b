# SPDX-License-Identifier: Apache-2.0
"""OpenFlow 1.3 messages as bytes, and what switches answer."""
