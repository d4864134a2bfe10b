# SPDX-License-Identifier: Apache-2.0
"""One program started on many machines over SSH, by atoll, pssh and Ansible (docs/benchmarks.md)."""
