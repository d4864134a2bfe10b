# SPDX-License-Identifier: Apache-2.0
"""InfluxDB: settings, client, and the process that sends a run's points."""
