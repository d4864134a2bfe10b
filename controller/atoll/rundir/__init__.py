# SPDX-License-Identifier: Apache-2.0
"""The run directory: what one run measured, kept so that it can be read years later."""

from atoll.rundir.rundir import RunDir
from atoll.rundir.spool import MetricsSpool

__all__ = ["MetricsSpool", "RunDir"]
