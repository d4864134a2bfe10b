# SPDX-License-Identifier: Apache-2.0
"""The plan as a value: flow entries, jobs, host settings and traffic control."""
