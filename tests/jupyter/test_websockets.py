"""The websockets of kernels, whichever kernels they are: TCP_NODELAY, and the switch for it."""

from __future__ import annotations

import json
import socket
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from jupyter_server.services.kernels.connection.channels import ZMQChannelsWebsocketConnection
from server_fixtures import *  # noqa: F403 (for this file)
from waiting import DEADLINE

from jupyter_gpu_kernel.server.extension import CONNECTION_CLASS

Fetch = Callable[..., Awaitable[Any]]


@pytest.fixture(params=[True, False], ids=["nodelay", "delayed"])
def nodelay(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


@pytest.fixture
def jp_server_config(nodelay: bool) -> dict[str, Any]:
    return {
        "ServerApp": {"jpserver_extensions": {"jupyter_gpu_kernel": True}},
        "GpuKernelExtension": {} if nodelay else {"websocket_nodelay": False},
        "ZMQChannelsWebsocketConnection": {"iopub_msg_rate_limit": 77.0},
    }


async def test_a_local_kernels_websocket_sends_at_once(
    nodelay: bool, jp_serverapp: Any, jp_fetch: Fetch, jp_ws_fetch: Fetch
) -> None:
    """Also a page that comes later; the configuration of the server's own class still counts."""
    body = json.dumps({"name": "python3"})
    kernel_id = json.loads((await jp_fetch("api", "kernels", method="POST", body=body)).body)["id"]
    pages = [await jp_ws_fetch("api", "kernels", kernel_id, "channels") for _ in range(2)]
    for page in pages:
        assert await page.read_message() is not None  # so it is joined to the kernel
    connections = list(ZMQChannelsWebsocketConnection._open_sockets)
    assert len(connections) == 2
    for connection in connections:
        assert connection.iopub_msg_rate_limit == 77.0
        stream = connection.websocket_handler.ws_connection.stream
        assert bool(stream.socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)) is nodelay
    of_server = jp_serverapp.kernel_websocket_connection_class
    used = jp_serverapp.web_app.settings[CONNECTION_CLASS]
    assert used.__name__ == of_server.__name__ and (used is not of_server) is nodelay
    assert used.__module__ == of_server.__module__ and used.__doc__ == of_server.__doc__
    for page in pages:
        page.close()
    await jp_fetch("api", "kernels", kernel_id, method="DELETE", request_timeout=DEADLINE)
