"""Megabytes that a kernel printed while the link was down arrive in jupyter_server's websocket, all of them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from jupyter_client.jsonutil import json_default
from jupyter_client.session import Session
from remote import DEADLINE, Remote, eventually
from server_fixtures import *  # noqa: F403 (for this file)

pytestmark = pytest.mark.usefixtures("remote")
Fetch = Callable[..., Awaitable[Any]]


PRINT = """
import os, time
print("begin", flush=True)
while not os.path.exists({go!r}): time.sleep(0.01)
for number in range(60_000): print("%08d" % number, "x" * 90)
for number in range(2000): print(number, flush=True)
open({done!r}, "w").close()
"""


async def test_six_megabytes_pass_the_rate_limit(
    remote: Remote, jp_fetch: Fetch, jp_ws_fetch: Fetch, tmp_path: Path
) -> None:
    """It lets 3 MB and 3000 messages pass in 3 s; what comes above is dropped, and it says so."""
    body = json.dumps({"name": "cpu"})
    kernel = json.loads(
        (await jp_fetch("api", "kernels", method="POST", body=body, request_timeout=DEADLINE)).body
    )
    socket = await jp_ws_fetch("api", "kernels", kernel["id"], "channels")
    go, done = tmp_path / "go", tmp_path / "done"
    content = {"code": PRINT.format(go=str(go), done=str(done)), "silent": False, "store_history": True}
    asked = dict(Session().msg("execute_request", content), channel="shell")
    await socket.write_message(json.dumps(asked, default=json_default))
    text, away = "", False
    while True:
        message = json.loads(await asyncio.wait_for(socket.read_message(), DEADLINE))
        if message["parent_header"].get("msg_id") != asked["header"]["msg_id"]:
            continue
        text += message["content"].get("text", "")
        if "begin" in text and not away:
            away = True
            remote.hops.login.stop()
            await asyncio.to_thread(
                eventually, lambda: remote.ask("kernels")[0]["link"] == "away", "the hub notices"
            )
            go.touch()
            await asyncio.to_thread(eventually, done.exists, "the end of the cell")
            remote.hops.login.start()
        if message["content"].get("execution_state") == "idle":
            break
    lines = ["begin", *("%08d %s" % (n, "x" * 90) for n in range(60_000)), *map(str, range(2000)), ""]
    assert text.split("\n") == lines
    socket.close()
    await jp_fetch("api", "kernels", kernel["id"], method="DELETE", request_timeout=DEADLINE)
