# SPDX-License-Identifier: Apache-2.0
"""Agents on other machines: connections, installation and file transfer over SSH."""
