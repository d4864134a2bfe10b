# SPDX-License-Identifier: Apache-2.0
"""Proof by probe packets that flow entries do what the plan says."""
