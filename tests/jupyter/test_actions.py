"""What a page can do over HTTP with a kernel: one of this server, a detached one, and one of another front end."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from jupyter_client.jsonutil import json_default
from jupyter_client.session import Session
from remote import Remote
from server_fixtures import *  # noqa: F403 (for this file)
from tornado.httpclient import HTTPClientError
from waiting import DEADLINE

from jupyter_gpu_kernel.client import HubClient

pytestmark = [pytest.mark.full, pytest.mark.usefixtures("remote", "nothing_stays")]
Fetch = Callable[..., Awaitable[Any]]
API = ("jupyter-gpu-kernel", "api")
EMPTY = '{"cells": [], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}'


async def post(jp_fetch: Fetch, *path: str, **body: Any) -> Any:
    answer = await jp_fetch(*path, method="POST", body=json.dumps(body), request_timeout=DEADLINE)
    return json.loads(answer.body)


async def get(jp_fetch: Fetch, *path: str) -> Any:
    return json.loads((await jp_fetch(*path, request_timeout=DEADLINE)).body)


async def do(jp_fetch: Fetch, kernel: str, action: str, **body: Any) -> Any:
    return await post(jp_fetch, *API, "kernels", kernel, action, **body)


async def refused(doing: Awaitable[Any]) -> tuple[int, Any]:
    with pytest.raises(HTTPClientError) as raised:
        await doing
    assert raised.value.response is not None
    return raised.value.code, json.loads(raised.value.response.body)


async def kernel(jp_fetch: Fetch, ours: str, **wanted: Any) -> Any:
    """Its row in the overview, as soon as it has these values."""
    deadline = time.monotonic() + DEADLINE
    while True:
        rows = [one for one in (await get(jp_fetch, *API, "overview"))["kernels"] if one["id"] == ours]
        if rows and wanted.items() <= rows[0].items():
            return rows[0]
        assert time.monotonic() < deadline, rows
        await asyncio.sleep(0.2)


async def start(jp_fetch: Fetch, name: str) -> tuple[str, str]:
    """Our id and Jupyter's of a new kernel of this server."""
    theirs = (await post(jp_fetch, "api", "kernels", name=name))["id"]
    deadline = time.monotonic() + DEADLINE
    while True:  # a launcher takes a moment until the hub knows its kernel
        rows = await get(jp_fetch, *API, "kernels")
        for one in rows:
            if one["kernel_id"] == theirs and one["state"] == "idle":
                return one["id"], theirs
        assert time.monotonic() < deadline, rows
        await asyncio.sleep(0.1)


@contextlib.contextmanager
def front_end(remote: Remote, name: str, **arguments: Any) -> Any:
    """Another program with a kernel of its own. It is detached when the program leaves."""
    settings = json.loads(
        (remote.data / "kernels" / f"{name}-argv" / "kernel.json").read_text(encoding="utf-8")
    )["metadata"]["jupyter_gpu_kernel"]
    connection = {"transport": "tcp", "ip": "127.0.0.1", "key": uuid.uuid4().hex}
    connection["signature_scheme"] = "hmac-sha256"
    with HubClient() as hub:
        answer = hub.call(
            "start", settings=settings, name=name, connection=connection, front_end_kind="other", **arguments
        )
        yield answer


class Page:
    """A websocket on a kernel."""

    def __init__(self, socket: Any) -> None:
        self._socket = socket
        self._session = Session()

    async def send(self, code: str) -> str:
        content = {"code": code, "silent": False, "store_history": True, "allow_stdin": False}
        message = dict(self._session.msg("execute_request", content), channel="shell")
        await self._socket.write_message(json.dumps(message, default=json_default))
        return str(message["header"]["msg_id"])

    async def reply(self, asked: str) -> tuple[Any, str]:
        """The reply's content, and what the cell printed."""
        printed, reply, idle = "", None, False
        while not (reply and idle):
            message = json.loads(await asyncio.wait_for(self._socket.read_message(), DEADLINE))
            if message["parent_header"].get("msg_id") == asked:
                printed += message["content"]["text"] if message["msg_type"] == "stream" else ""
                idle = idle or message["content"].get("execution_state") == "idle"
                reply = message["content"] if message["msg_type"] == "execute_reply" else reply
        return reply, printed

    async def run(self, code: str) -> str:
        return (await self.reply(await self.send(code)))[1]


@contextlib.asynccontextmanager
async def page(jp_ws_fetch: Fetch, kernel_id: str) -> AsyncIterator[Page]:
    socket = await jp_ws_fetch("api", "kernels", kernel_id, "channels")
    try:
        yield Page(socket)
    finally:
        socket.close()


@pytest.mark.parametrize("name", ["cpu", "cpu-argv"])
async def test_a_kernel_of_this_server(jp_fetch: Fetch, jp_ws_fetch: Fetch, name: str) -> None:
    ours, theirs = await start(jp_fetch, name)
    async with page(jp_ws_fetch, theirs) as shown:
        await shown.run("treasure = 1")
        asked = await shown.send("import time; time.sleep(600)")
        row = await kernel(jp_fetch, ours, state="busy", kernel_id=theirs)
        assert row["busy_since"] == row["since"]
        assert (await do(jp_fetch, theirs, "interrupt"))["ok"]
        reply, _ = await shown.reply(asked)
        assert reply["ename"] == "KeyboardInterrupt"
        assert (await do(jp_fetch, ours, "restart"))["ok"]
        assert await shown.run("print('treasure' in globals())") == "False\n"
    assert (await get(jp_fetch, *API, "kernels", ours, "story"))[0]["event"] == "start"
    assert (await do(jp_fetch, ours, "stop"))["ok"]
    assert all(one["id"] != theirs for one in await get(jp_fetch, "api", "kernels"))


async def test_a_detached_kernel_is_restarted_attached_and_stopped(
    remote: Remote, jp_fetch: Fetch, jp_ws_fetch: Fetch, jp_root_dir: Path
) -> None:
    for name in ("own.ipynb", "other.ipynb"):
        (jp_root_dir / name).write_text(EMPTY)
    with front_end(remote, "cpu", notebook=str(jp_root_dir / "own.ipynb")) as answer:
        ours = answer["id"]
    row = await kernel(jp_fetch, ours, state="detached")
    assert (row["path"], row["kernel_id"], row["link"]) == ("own.ipynb", None, None)
    assert (await do(jp_fetch, ours, "interrupt"))["ok"]
    assert (await do(jp_fetch, ours, "restart"))["ok"]
    while (await kernel(jp_fetch, ours, state="detached"))["pid"] == row["pid"]:
        await asyncio.sleep(0.1)
    taken = await do(jp_fetch, ours, "attach")
    assert (taken["name"], taken["path"]) == ("cpu", "own.ipynb")
    assert taken["session"]["path"] == "own.ipynb"
    assert taken["session"]["kernel"]["id"] == taken["kernel_id"]
    async with page(jp_ws_fetch, taken["kernel_id"]) as shown:
        assert await shown.run("print(2 + 2)") == "4\n"
        await kernel(jp_fetch, ours, kernel_id=taken["kernel_id"], link="up", path="own.ipynb")
        assert (await do(jp_fetch, ours, "attach"))["kernel_id"] == taken["kernel_id"]
        await shown.run("treasure = 1")
        assert (await do(jp_fetch, ours, "restart"))["ok"]
        assert await shown.run("print('treasure' in globals())") == "False\n"
    assert (await do(jp_fetch, ours, "stop"))["ok"]
    code, refusal = await refused(do(jp_fetch, ours, "attach"))
    assert code == 404 and ours in refusal["message"]


async def test_a_kernel_of_another_front_end(
    remote: Remote, jp_fetch: Fetch, jp_ws_fetch: Fetch, jp_root_dir: Path
) -> None:
    """As one of VS Code: it gets another front end, and ends for both."""
    (jp_root_dir / "other.ipynb").write_text(EMPTY)
    with front_end(remote, "cpu") as answer:
        ours = answer["id"]
        assert (await do(jp_fetch, ours, "interrupt"))["link"] == "up"
        taken = await do(jp_fetch, ours, "attach", path="other.ipynb")
        assert taken["path"] == "other.ipynb"
        async with page(jp_ws_fetch, taken["kernel_id"]) as shown:
            assert await shown.run("treasure = 1; print(treasure)") == "1\n"
            assert (await do(jp_fetch, ours, "restart"))["ok"]
            assert await shown.run("print('treasure' in globals())") == "False\n"
        assert (await do(jp_fetch, ours, "stop"))["ok"]
        assert all(one["id"] != taken["kernel_id"] for one in await get(jp_fetch, "api", "kernels"))
        (seen,) = [one for one in await get(jp_fetch, *API, "kernels") if one["id"] == ours]
        assert (seen["state"], seen["front_ends"]) == ("ended", 1)  # as the other front end sees it


async def test_the_priority_of_kernels(jp_fetch: Fetch) -> None:
    ours, theirs = await start(jp_fetch, "gpu")
    changed = await do(jp_fetch, theirs, "priority", priority=7)
    assert (changed["ok"], changed["priority"], changed["place"]) == (True, 7, None)
    assert (await kernel(jp_fetch, ours, priority=7))["kernel_id"] == theirs
    for wrong in (None, True, "7", 7.0, 100, -100):
        code, refusal = await refused(do(jp_fetch, ours, "priority", priority=wrong))
        assert code == 400 and refusal["error"]["cause"] == "a priority is a number from -99 to 99"
    await do(jp_fetch, ours, "stop")


async def test_a_page_sees_what_it_has_changed(jp_fetch: Fetch) -> None:
    """The overview, which serves many pages for two seconds, is asked for anew after each action, also a failed one."""

    async def answered() -> float:
        return float((await get(jp_fetch, *API, "overview"))["time"])

    ours, _ = await start(jp_fetch, "cpu")
    for action, body in (("interrupt", {}), ("priority", {"priority": 7}), ("attach", {}), ("stop", {})):
        before = await answered()
        await do(jp_fetch, ours, action, **body)
        after = await answered()
        await refused(do(jp_fetch, "nothere", action, **body))
        assert before < after < await answered(), action


async def test_refusals(jp_fetch: Fetch) -> None:
    for action in ("interrupt", "restart", "stop", "attach"):
        code, refusal = await refused(do(jp_fetch, "nothere", action))
        assert code == 404 and refusal["error"]["remedy"], refusal
    assert (await refused(do(jp_fetch, "nothere", "priority", priority=1)))[0] == 404
    assert (await refused(get(jp_fetch, *API, "kernels", "nothere", "story")))[0] == 404
    assert (await refused(do(jp_fetch, "nothere", "attach", path="../secret")))[0] == 400
    local = (await post(jp_fetch, "api", "kernels", name="python3"))["id"]
    code, refusal = await refused(do(jp_fetch, local, "stop"))
    assert code == 404 and refusal["error"]["cause"] == "there is no remote kernel of this id"
    await jp_fetch("api", "kernels", local, method="DELETE", request_timeout=DEADLINE)
