# SPDX-License-Identifier: Apache-2.0
"""The experiment as a value: links, chains, traffic, and what they ask of the laboratory."""
