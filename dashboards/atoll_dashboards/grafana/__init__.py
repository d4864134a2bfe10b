# SPDX-License-Identifier: Apache-2.0
"""Grafana's dashboards: their generator, their files, their installation."""
