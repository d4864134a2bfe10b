# SPDX-License-Identifier: Apache-2.0
"""Statistics of studies: intervals, stopping, warm-up, control variates."""
