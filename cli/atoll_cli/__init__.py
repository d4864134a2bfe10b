# SPDX-License-Identifier: Apache-2.0
"""The `atoll` command: arguments and terminal output. No other package imports it."""
