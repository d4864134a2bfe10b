# SPDX-License-Identifier: Apache-2.0
"""The process that owns a laboratory from `atoll up` to `atoll down`, and its client."""
