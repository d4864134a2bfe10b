# SPDX-License-Identifier: Apache-2.0
"""Links measured against their configuration."""
