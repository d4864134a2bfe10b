# SPDX-License-Identifier: Apache-2.0
"""The experiment as a value: links, chains, traffic, and the capacity that they need."""
