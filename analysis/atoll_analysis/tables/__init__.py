# SPDX-License-Identifier: Apache-2.0
"""Parquet tables, built from captures and logs."""
