# SPDX-License-Identifier: Apache-2.0
"""Studies: experiments over factors and repetitions, run unattended, and statistics over their runs."""
