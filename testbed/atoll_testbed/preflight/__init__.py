# SPDX-License-Identifier: Apache-2.0
"""The test of paths and links before the load of a run."""
