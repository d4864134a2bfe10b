# SPDX-License-Identifier: Apache-2.0
"""The HTTP API of the daemon: routes, handlers, models, access control."""
