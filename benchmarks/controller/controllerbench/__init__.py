# SPDX-License-Identifier: Apache-2.0
"""The time until a plan of flow entries is on a switch and verified: this project's controller and others."""
