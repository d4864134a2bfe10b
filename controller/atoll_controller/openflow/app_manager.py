# SPDX-License-Identifier: Apache-2.0
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
"""Start the framework in this process: os-ken has no manager program any more, and Ryu's needs a web server.

Neither reports whether and where its listener is bound, so its controller is replaced by one that binds before it
serves.
"""

import logging
import socket
from typing import Any

from atoll_controller.openflow import runtime_adapter

_manager = runtime_adapter.module("base.app_manager")  # before the controller, which imports it back
_controller = runtime_adapter.module("controller.controller")
_ofp_handler = runtime_adapter.module("controller.ofp_handler")
_cfg = runtime_adapter.module("cfg")
_hub = runtime_adapter.module("lib.hub")

# A connection that has ended is noticed only by sending on it: the framework's reader waits for its sender, and that
# one for something to send. So echo requests are sent all the time; a switch that leaves this many unanswered is gone.
_ECHO_INTERVAL_S = 1.0
_ECHOS_UNANSWERED = 15
_SOCKET_TIMEOUT_S = 15.0  # for a switch to read its messages: old ones need four seconds for a window of entries
_BACKLOG = 64


def start(host: str, port: int) -> tuple[Any, int]:
    """Listen and serve. Returns the switchboard and the bound port (0: any). Raises OSError if it is not available."""
    from atoll_controller.openflow.app import Switchboard

    _cfg.CONF(args=[], project="atoll", default_config_files=[], default_config_dirs=[])
    _cfg.CONF.set_override("echo_request_interval", _ECHO_INTERVAL_S)
    _cfg.CONF.set_override("maximum_unreplied_echo_requests", _ECHOS_UNANSWERED)
    _cfg.CONF.set_override("socket_timeout", _SOCKET_TIMEOUT_S)
    logging.getLogger("ofp_event").setLevel(logging.CRITICAL)  # the switchboard reports it for users
    listener = socket.create_server((host, port), backlog=_BACKLOG)
    _ofp_handler.OpenFlowController = lambda: lambda: _serve(listener)
    manager = _manager.AppManager.get_instance()
    manager.load_apps([runtime_adapter.module_name("controller.ofp_handler"), "atoll_controller.openflow.app"])
    manager.instantiate_apps(**manager.create_contexts())
    return manager.applications[Switchboard.__name__], listener.getsockname()[1]


def _serve(listener: socket.socket) -> None:
    while True:
        connection, address = listener.accept()
        _hub.spawn(_controller.datapath_connection_factory, connection, address)
