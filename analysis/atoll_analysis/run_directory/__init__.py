# SPDX-License-Identifier: Apache-2.0
"""The run directory: what one run measured, kept so that it can be read years later."""

from atoll_analysis.run_directory.directory import RunDir
from atoll_analysis.run_directory.metrics_spool import MetricsSpool

__all__ = ["MetricsSpool", "RunDir"]
