"""Megabytes that a kernel printed while the link was down arrive in jupyter_server's websocket, all of them."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from jupyter_client.jsonutil import json_default
from jupyter_client.session import Session
from remote import Remote, over_both_transports
from server_fixtures import *  # noqa: F403 (for this file)
from waiting import DEADLINE, eventually

pytestmark = [pytest.mark.full, pytest.mark.usefixtures("remote")]
Fetch = Callable[..., Awaitable[Any]]


PRINT = """
import os, time
print("begin", flush=True)
while not os.path.exists({go!r}): time.sleep(0.01)
for number in range(60_000): print("%08d" % number, "x" * 90)
for number in range(2000): print(number, flush=True)
open({done!r}, "w").close()
"""


LINES = ["begin", *("%08d %s" % (n, "x" * 90) for n in range(60_000)), *map(str, range(2000)), ""]
LATE = 0.5
"""Seconds by which the server's loop may be late. It counts messages when it reads them: late, it counts those of more
than 3 s together, and the quarter by which the hub stays below the limit may not be enough."""


@over_both_transports
async def test_six_megabytes_pass_the_rate_limit(
    remote: Remote, jp_fetch: Fetch, jp_ws_fetch: Fetch, tmp_path: Path
) -> None:
    """It lets 3 MB and 3000 messages pass in 3 s; what comes above is dropped, and it says so."""
    for attempt in range(5):
        late = [0.0]
        watch = asyncio.ensure_future(lateness(late))
        text = await replayed(remote, jp_fetch, jp_ws_fetch, tmp_path / str(attempt))
        watch.cancel()
        if late[0] < LATE or text.split("\n") == LINES:
            break
    assert text.split("\n") == LINES


async def lateness(most: list[float]) -> None:
    """By how many seconds this process's loop, which is the server's, was late at most."""
    while True:
        due = time.monotonic() + 0.05
        await asyncio.sleep(0.05)
        most[0] = max(most[0], time.monotonic() - due)


async def replayed(remote: Remote, jp_fetch: Fetch, jp_ws_fetch: Fetch, folder: Path) -> str:
    """What the websocket brings of the cell's output."""
    folder.mkdir()
    body = json.dumps({"name": "cpu"})
    kernel = json.loads(
        (await jp_fetch("api", "kernels", method="POST", body=body, request_timeout=DEADLINE)).body
    )
    socket = await jp_ws_fetch("api", "kernels", kernel["id"], "channels")
    go, done = folder / "go", folder / "done"
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
    socket.close()
    await jp_fetch("api", "kernels", kernel["id"], method="DELETE", request_timeout=DEADLINE)
    return text
