# SPDX-License-Identifier: Apache-2.0
"""How long plans and swaps of large laboratories take."""
