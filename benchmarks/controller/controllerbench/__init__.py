# SPDX-License-Identifier: Apache-2.0
"""How soon a plan of flow entries is on a switch, verified: this project's controller beside its peers."""
