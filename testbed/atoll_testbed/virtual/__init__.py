# SPDX-License-Identifier: Apache-2.0
"""Runs in virtual time: the host's side, and the program inside the virtual kernel."""
