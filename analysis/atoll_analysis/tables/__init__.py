# SPDX-License-Identifier: Apache-2.0
"""From captures and logs to Parquet tables."""
