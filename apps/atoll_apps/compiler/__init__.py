# SPDX-License-Identifier: Apache-2.0
"""From segments to flow entries: tags, drop entries, and entries that one frame could match."""
