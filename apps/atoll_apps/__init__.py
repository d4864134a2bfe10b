# SPDX-License-Identifier: Apache-2.0
"""Flow computation: from an experiment to flow entries. Pure; imports atoll_core alone."""
