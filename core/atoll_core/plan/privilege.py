# SPDX-License-Identifier: Apache-2.0
"""Capabilities (capabilities(7)) that a job may keep, by their names in the protocol of agents."""

from enum import StrEnum


class Privilege(StrEnum):
    """A capability, without its prefix CAP_."""

    NET_ADMIN = "net-admin"
    NET_RAW = "net-raw"
    NET_BIND_SERVICE = "net-bind-service"
    SYS_NICE = "sys-nice"
    IPC_LOCK = "ipc-lock"
    DAC_OVERRIDE = "dac-override"
