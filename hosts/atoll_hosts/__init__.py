# SPDX-License-Identifier: Apache-2.0
"""Host agents: requests, jobs and streams. May import atoll_core."""
