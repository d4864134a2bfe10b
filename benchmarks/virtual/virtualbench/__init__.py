# SPDX-License-Identifier: Apache-2.0
"""How fast virtual time is: whole commands by the wall clock."""
