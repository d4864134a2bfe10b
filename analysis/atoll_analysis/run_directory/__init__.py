# SPDX-License-Identifier: Apache-2.0
"""The run directory: all data of one run, in a versioned format that stays readable."""

from atoll_analysis.run_directory.directory import RunDir
from atoll_analysis.run_directory.metrics_spool import MetricsSpool

__all__ = ["MetricsSpool", "RunDir"]
