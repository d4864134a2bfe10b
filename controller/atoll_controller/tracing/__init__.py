# SPDX-License-Identifier: Apache-2.0
"""Where packets go: a model of OpenFlow tables, traces through it, probe paths. Pure."""
