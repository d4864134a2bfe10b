# SPDX-License-Identifier: Apache-2.0
"""The platforms of a lab, by the names that ``--on``, manifests and the API use."""

MININET = "mininet"
"""On this machine, emulated in real time."""

VIRTUAL = "virtual"
"""On this machine, emulated in virtual time."""

HARDWARE = "hardware"
"""In a rack: on the machines and switches of an inventory."""
