# SPDX-License-Identifier: Apache-2.0
"""The apps, which divide the paths of frames into segments: delivery, latency, chain."""
