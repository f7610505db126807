"""jupyter_server, as JupyterLab uses it: REST and websocket, the text of its dialog, our HTTP API, its event loop."""

from __future__ import annotations

import asyncio
import contextlib
import json
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
from jupyter_client.jsonutil import json_default
from jupyter_client.session import Session
from remote import Remote
from server_fixtures import *  # noqa: F403 (for this file)
from tornado.httpclient import HTTPClientError
from tornado.websocket import WebSocketClientConnection
from waiting import DEADLINE

from jupyter_gpu_kernel.client import HubClient

pytestmark = pytest.mark.usefixtures("remote")
Fetch = Callable[..., Awaitable[Any]]


class Browser:
    """One websocket on a kernel, with messages as JupyterLab sends them."""

    def __init__(self, socket: WebSocketClientConnection) -> None:
        self.socket = socket
        self.session = Session()
        self.received: list[dict[str, Any]] = []

    async def send(self, msg_type: str, channel: str = "shell", **content: Any) -> str:
        message = dict(self.session.msg(msg_type, content), channel=channel)
        await self.socket.write_message(json.dumps(message, default=json_default))
        return str(message["header"]["msg_id"])

    async def until(self, msg_type: str, parent: str = "", **content: Any) -> dict[str, Any]:
        """The next message of this type to this parent, with this content."""
        while True:
            data = await asyncio.wait_for(self.socket.read_message(), DEADLINE)
            assert data is not None, "the server closed the websocket"
            message: dict[str, Any] = json.loads(data)
            self.received.append(message)
            if message["msg_type"] != msg_type or not content.items() <= message["content"].items():
                continue
            if not parent or message["parent_header"].get("msg_id") == parent:
                return message

    async def run(self, code: str) -> str:
        """What a cell printed."""
        del self.received[:]
        asked = await self.execute(code)
        replied = await self.until("execute_reply", asked)
        assert replied["content"]["status"] == "ok", replied
        if not any(m["content"].get("execution_state") == "idle" for m in self.received if self.of(m, asked)):
            await self.until("status", asked, execution_state="idle")
        streams = (m for m in self.received if self.of(m, asked) and m["msg_type"] == "stream")
        return "".join(message["content"]["text"] for message in streams)

    async def execute(self, code: str) -> str:
        return await self.send(
            "execute_request",
            code=code,
            silent=False,
            store_history=True,
            allow_stdin=True,
            stop_on_error=True,
        )

    @staticmethod
    def of(message: dict[str, Any], asked: str) -> bool:
        return message["parent_header"].get("msg_id") == asked


@contextlib.asynccontextmanager
async def browser(jp_ws_fetch: Fetch, kernel_id: str) -> AsyncIterator[Browser]:
    socket = await jp_ws_fetch("api", "kernels", kernel_id, "channels")
    try:
        yield Browser(socket)
    finally:
        socket.close()


async def post(jp_fetch: Fetch, *path: str, **body: Any) -> Any:
    answer = await jp_fetch(*path, method="POST", body=json.dumps(body), request_timeout=DEADLINE)
    return json.loads(answer.body) if answer.body else None


async def get(jp_fetch: Fetch, *path: str) -> Any:
    return json.loads((await jp_fetch(*path, request_timeout=DEADLINE)).body)


async def delete(jp_fetch: Fetch, kernel_id: str) -> None:
    await jp_fetch("api", "kernels", kernel_id, method="DELETE", request_timeout=DEADLINE)


GPU = "import os; print(os.environ['CUDA_VISIBLE_DEVICES'])"


async def test_a_kernel_that_ends_is_started_anew_by_the_next_cell_and_not_before(
    remote: Remote, jp_fetch: Fetch, jp_ws_fetch: Fetch
) -> None:
    """By itself, by its owner in a terminal; the server's restarter looks every 3 s and must see nothing. Nor does it
    matter that another front end came to the kernel."""
    kernel_id = (await post(jp_fetch, "api", "kernels", name="gpu"))["id"]
    guest = await asyncio.to_thread(HubClient, start=False)
    connection = {"transport": "tcp", "ip": "127.0.0.1", "key": "guest", "signature_scheme": "hmac-sha256"}
    (ours,) = await get(jp_fetch, "jupyter-gpu-kernel", "api", "kernels")
    await guest.acall("attach", kernel=ours["id"], specs=[], front_end_kind="other", connection=connection)
    async with browser(jp_ws_fetch, kernel_id) as lab:
        await lab.run("treasure = 1")
        for end in ("import os; os._exit(3)", "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"):
            asked = await lab.execute(end)
            reply = await lab.until("execute_reply", asked)
            assert "the kernel ended" in reply["content"]["evalue"]
            (ours,) = await get(jp_fetch, "jupyter-gpu-kernel", "api", "kernels")
            assert ours["state"] == "ended" and ours["gpus"] == []
            assert await lab.run("print('treasure' in globals())") == "False\n"
            printed = [
                m["content"]["data"]["text/plain"] for m in lab.received if m["msg_type"] == "display_data"
            ]
            assert printed[0].startswith("The kernel had ended: ")
            assert (await lab.run(GPU)).strip() in remote.free
        (kernel,) = remote.kernels_on_node()
        await asyncio.to_thread(stop_in_terminal, remote, kernel)
        assert await lab.run("print('treasure' in globals())") == "False\n"
        assert not any(m["content"].get("execution_state") in ("restarting", "dead") for m in lab.received)
    await asyncio.to_thread(guest.close)
    await delete(jp_fetch, kernel_id)
    await asyncio.to_thread(remote.nothing_left)


def stop_in_terminal(remote: Remote, kernel: str) -> None:
    command = [sys.executable, "-m", "jupyter_gpu_kernel.cli", "stop", kernel]
    subprocess.run(command, env=remote.program_environment(), check=True, timeout=DEADLINE)


async def test_a_notebook_s_life(remote: Remote, jp_fetch: Fetch, jp_ws_fetch: Fetch) -> None:
    kernel_id = (await post(jp_fetch, "api", "kernels", name="gpu"))["id"]
    async with browser(jp_ws_fetch, kernel_id) as lab:
        gpu = (await lab.run(GPU)).strip()
        assert gpu in remote.free
        asked = await lab.execute("print('runs', flush=True)\nimport time; time.sleep(600)")
        await lab.until("stream", asked)
        await post(jp_fetch, "api", "kernels", kernel_id, "interrupt")
        assert (await lab.until("execute_reply", asked))["content"]["ename"] == "KeyboardInterrupt"
        assert await lab.run("x = 1; print(x)") == "1\n"
        await post(jp_fetch, "api", "kernels", kernel_id, "restart")
        assert await lab.run("print('x' in globals())") == "False\n"
        assert (await lab.run(GPU)).strip() == gpu
    await delete(jp_fetch, kernel_id)
    assert await get(jp_fetch, "api", "kernels") == []
    await asyncio.to_thread(remote.nothing_left)


async def test_the_kernels_of_our_api(remote: Remote, jp_fetch: Fetch, jp_ws_fetch: Fetch) -> None:
    path = ("jupyter-gpu-kernel", "api", "kernels")
    assert await get(jp_fetch, *path) == []
    kernel_id = (await post(jp_fetch, "api", "kernels", name="gpu"))["id"]
    (kernel,) = await get(jp_fetch, *path)
    assert set(kernel) >= {"id", "kernel_id", "name", "node", "state", "link", "gpus"}
    assert kernel["kernel_id"] == kernel_id
    assert (kernel["name"], kernel["link"], kernel["gpus"]) == ("gpu", "up", [])
    async with browser(jp_ws_fetch, kernel_id) as lab:
        gpu = (await lab.run(GPU)).strip()
    (kernel,) = await get(jp_fetch, *path)
    assert kernel["state"] in ("idle", "busy") and kernel["node"]
    assert kernel["gpus"] == [gpu]
    await delete(jp_fetch, kernel_id)
    assert await get(jp_fetch, *path) == []


async def test_the_journal_and_the_nodes_of_our_api(jp_fetch: Fetch, jp_ws_fetch: Fetch) -> None:
    api = ("jupyter-gpu-kernel", "api")
    kernel_id = (await post(jp_fetch, "api", "kernels", name="cpu"))["id"]
    async with browser(jp_ws_fetch, kernel_id) as lab:
        assert await lab.run("print(6 * 7)") == "42\n"
    (kernel,) = await get(jp_fetch, *api, "kernels")
    for name in (kernel_id, kernel["id"]):
        journal = await get(jp_fetch, *api, "kernels", name, "journal")
        assert journal["kernel"] == kernel["id"]
        (cell,) = journal["cells"]
        assert (cell["code"], cell["status"], cell["execution_count"]) == ("print(6 * 7)", "ok", 1)
        assert cell["outputs"] == [{"msg_type": "stream", "content": {"name": "stdout", "text": "42\n"}}]
    assert (await jp_fetch(*api, "kernels", kernel_id, "journal", params={"cell": "other"})).code == 200
    nodes = await get(jp_fetch, *api, "nodes")
    assert nodes and all(
        {"node", "names", "state", "connected", "problem", "program"} == set(node) for node in nodes
    )
    await delete(jp_fetch, kernel_id)
    with pytest.raises(HTTPClientError) as refused:
        await get(jp_fetch, *api, "kernels", kernel_id, "journal")
    assert refused.value.code == 404 and refused.value.response is not None
    assert kernel_id in json.loads(refused.value.response.body)["message"]


async def test_our_api_is_for_the_owner(jp_fetch: Fetch) -> None:
    with pytest.raises(HTTPClientError) as refused:
        await jp_fetch("jupyter-gpu-kernel", "api", "kernels", headers={"Authorization": "token wrong"})
    assert refused.value.code == 403


@pytest.mark.parametrize("api", ["kernels", "sessions"])
async def test_the_dialog_says_why_it_did_not_start(remote: Remote, jp_fetch: Fetch, api: str) -> None:
    remote.write("spoilt", provisioner=True, python="/nowhere/bin/python")
    body: dict[str, Any] = {"name": "spoilt"}
    if api == "sessions":  # JupyterLab's way
        body = {"path": "a.ipynb", "type": "notebook", "name": "", "kernel": {"name": "spoilt"}}
    with pytest.raises(HTTPClientError) as refused:
        await post(jp_fetch, "api", api, **body)
    assert refused.value.code == 500 and refused.value.response is not None
    message = json.loads(refused.value.response.body)["message"]
    assert message.startswith("work: ") and "/nowhere/bin/python" in message and "gpu-kernel" in message
    assert "Traceback" not in message


@contextlib.asynccontextmanager
async def stalls(of: str) -> AsyncIterator[None]:
    """Prints the longest time the loop did nothing else. No limit here: it depends on the machine."""
    longest = 0.0

    async def tick() -> None:
        nonlocal longest
        while True:
            before = time.perf_counter()
            await asyncio.sleep(0.005)
            longest = max(longest, time.perf_counter() - before - 0.005)

    task = asyncio.create_task(tick())
    yield
    task.cancel()
    print(f"longest stall of the server's loop, {of}: {longest * 1000:.0f} ms")


async def test_the_server_s_loop_goes_on(remote: Remote, jp_fetch: Fetch, jp_ws_fetch: Fetch) -> None:
    async with stalls("start"):
        kernel_id = (await post(jp_fetch, "api", "kernels", name="gpu"))["id"]
    async with browser(jp_ws_fetch, kernel_id) as lab:
        async with stalls("first cell"):
            await lab.run(GPU)
        before = remote.logins()
        async with stalls("drop"):
            asked = await lab.execute(
                "import time\nfor i in range(200):\n    print(i)\n    time.sleep(0.005)"
            )
            await lab.until("stream", asked)
            await asyncio.to_thread(remote.hops.login.drop)
            await lab.until("execute_reply", asked)
        assert remote.logins() > before
        async with stalls("restart"):
            await post(jp_fetch, "api", "kernels", kernel_id, "restart")
        async with stalls("first cell after restart"):
            await lab.run(GPU)
    async with stalls("shutdown"):
        await delete(jp_fetch, kernel_id)
