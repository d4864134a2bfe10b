# SPDX-License-Identifier: Apache-2.0
"""Files of other programs: flow records and lists of round-trip times."""
