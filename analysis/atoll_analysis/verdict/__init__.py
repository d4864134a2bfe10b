# SPDX-License-Identifier: Apache-2.0
"""Whether a run can be trusted: findings, caveats and the verdict."""
