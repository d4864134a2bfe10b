# SPDX-License-Identifier: Apache-2.0
"""The drawing of a laboratory and its chains as SVG."""
