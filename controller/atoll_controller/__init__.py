# SPDX-License-Identifier: Apache-2.0
"""Planning, steering and tracing of an experiment on OpenFlow switches."""
