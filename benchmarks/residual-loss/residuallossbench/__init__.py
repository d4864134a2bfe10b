# SPDX-License-Identifier: Apache-2.0
"""What stays lost between two coders whose redundancy is adapted, compared with an ideal code."""
