# SPDX-License-Identifier: Apache-2.0
"""The parts of Mininet that this project uses, typed by ``mininet_api.pyi``."""

from importlib import import_module

from atoll_emulation.mininet_lab.mininet_path import load_mininet

load_mininet()

CLI = import_module("mininet.cli").CLI
MininetHost = import_module("mininet.node").Host
Intf = import_module("mininet.link").Intf
MininetLink = import_module("mininet.link").Link
Mininet = import_module("mininet.net").Mininet
Node = import_module("mininet.node").Node
OVSIntf = import_module("mininet.link").OVSIntf
OVSSwitch = import_module("mininet.node").OVSSwitch
RemoteController = import_module("mininet.node").RemoteController
Topo = import_module("mininet.topo").Topo
