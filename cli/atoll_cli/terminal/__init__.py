# SPDX-License-Identifier: Apache-2.0
"""What commands share at the terminal: options, progress, signals, error lines."""
