# SPDX-License-Identifier: Apache-2.0
"""What the analysis of long runs costs."""
