# SPDX-License-Identifier: Apache-2.0
"""Where a lab can live, as ``--on``, manifests and the API call it."""

MININET = "mininet"
"""On this machine, emulated in real time."""

VIRTUAL = "virtual"
"""On this machine, emulated in virtual time."""

HARDWARE = "hardware"
"""In a rack: on the machines and switches of an inventory."""
