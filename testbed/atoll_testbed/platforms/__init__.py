# SPDX-License-Identifier: Apache-2.0
"""Where a laboratory lives: emulated on this machine, or real machines and switches."""
