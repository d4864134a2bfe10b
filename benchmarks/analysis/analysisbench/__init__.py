# SPDX-License-Identifier: Apache-2.0
"""Memory and time of the analysis of long runs."""
