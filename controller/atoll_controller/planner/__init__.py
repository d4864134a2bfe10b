# SPDX-License-Identifier: Apache-2.0
"""From a network and an experiment to a plan: flow entries, jobs, host settings, warnings. Pure."""
