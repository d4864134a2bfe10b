# SPDX-License-Identifier: Apache-2.0
"""Times of network coding, compared with the crate rlnc."""
