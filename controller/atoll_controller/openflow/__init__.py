# SPDX-License-Identifier: Apache-2.0
"""The controller process and its client. No other package loads os-ken or Ryu."""
