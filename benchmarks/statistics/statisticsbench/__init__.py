# SPDX-License-Identifier: Apache-2.0
"""Coverage of the intervals of studies, and the runs that stopping and shared seeds save."""
