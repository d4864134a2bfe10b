# SPDX-License-Identifier: Apache-2.0
"""Verification by probe packets that flow entries forward as planned."""
