# SPDX-License-Identifier: Apache-2.0
"""Ports of switches by their names, which descriptions and networks have in common."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, order=True)
class PortRef:
    """A numbered port of a switch (OpenFlow port number)."""

    switch: str
    port: int

    def __str__(self) -> str:
        return f"{self.switch}/{self.port}"
