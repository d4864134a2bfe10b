# SPDX-License-Identifier: Apache-2.0
"""Compile segments to flow entries: tags, and entries that match the same frames."""
