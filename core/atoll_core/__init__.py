# SPDX-License-Identifier: Apache-2.0
"""Foundations: units, errors, descriptions, and the values that all other packages share. Imports no other package."""
