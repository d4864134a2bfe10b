# SPDX-License-Identifier: Apache-2.0
"""Runs side by side: settings, groups over seeds, documents."""
