# SPDX-License-Identifier: Apache-2.0
"""Terminal input and output that commands share: options, progress, signals, error lines."""
