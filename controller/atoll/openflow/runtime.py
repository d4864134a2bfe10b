# SPDX-License-Identifier: Apache-2.0
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
"""Starts os-ken in this process (native threads): there is no osken-manager any more.

os-ken offers no way to learn whether and where its listener got its port, so its controller is replaced by one that
binds before it serves.
"""

import socket
from importlib.metadata import version

from os_ken import cfg
from os_ken.base.app_manager import AppManager  # before the controller, which imports it back
from os_ken.controller import controller, ofp_handler
from os_ken.lib import hub

from atoll.openflow.app import Switchboard

# A connection that has ended is noticed only by sending on it: os-ken's reader waits for its sender, and that one for
# something to send. So echo requests are sent all the time; a switch that leaves this many unanswered is gone.
_ECHO_INTERVAL_S = 1.0
_ECHOS_UNANSWERED = 15
_BACKLOG = 64

RUNTIME = f"os-ken {version('os-ken')}"


def start(host: str, port: int) -> tuple[Switchboard, int]:
    """Listen and serve; the switchboard and the port bound (0 asks for any). Raises OSError if it can't be had."""
    cfg.CONF(args=[], project="atoll", default_config_files=[], default_config_dirs=[])
    cfg.CONF.set_override("echo_request_interval", _ECHO_INTERVAL_S)
    cfg.CONF.set_override("maximum_unreplied_echo_requests", _ECHOS_UNANSWERED)
    listener = socket.create_server((host, port), backlog=_BACKLOG)
    ofp_handler.OpenFlowController = lambda: lambda: _serve(listener)
    manager = AppManager.get_instance()
    manager.load_apps(["os_ken.controller.ofp_handler", "atoll.openflow.app"])
    manager.instantiate_apps(**manager.create_contexts())
    return manager.applications[Switchboard.__name__], listener.getsockname()[1]


def _serve(listener: socket.socket) -> None:
    while True:
        connection, address = listener.accept()
        hub.spawn(controller.datapath_connection_factory, connection, address)
