"""A kernel used through a jupyter_server of its own, with Tornado's websocket client, as a browser does."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import secrets
import subprocess
import sys
import time
import uuid
from pathlib import Path
from typing import Any

from kernel import chosen_ports
from ports import choose
from tornado.httpclient import AsyncHTTPClient, HTTPRequest
from tornado.websocket import WebSocketClientConnection, websocket_connect

_TIMEOUT = 60.0


class Server:
    """A jupyter_server that has a kernel. With `extension`, it has this project's server extension."""

    def __init__(self, kernelspec: str, *, extension: bool, ports: bool) -> None:
        """`ports`: as for `Kernel`."""
        self._loop = asyncio.new_event_loop()
        (port,) = choose(1)
        token = secrets.token_hex(16)
        self._url = f"127.0.0.1:{port}/api/kernels"
        self._authorization = {"Authorization": f"token {token}"}
        folder = Path(os.environ["HOME"], f"server-{port}")
        folder.mkdir(mode=0o700)
        app = {
            "jpserver_extensions": {"jupyter_gpu_kernel": extension},
            "tornado_settings": {"ws_ping_interval": 0},  # nobody answers while other ways are measured
        }
        content: dict[str, Any] = {"ServerApp": app}
        content |= {"KernelManager": chosen_ports()} if ports else {}
        (folder / "jupyter_server_config.json").write_text(json.dumps(content))
        words = [sys.executable, "-m", "jupyter_server", "--no-browser", f"--port={port}"]
        words += ["--ServerApp.port_retries=0", f"--ServerApp.root_dir={folder}"]
        words += ["--allow-root"] if hasattr(os, "geteuid") and os.geteuid() == 0 else []
        environment = {**os.environ, "JUPYTER_TOKEN": token, "JUPYTER_CONFIG_PATH": str(folder)}
        with (folder / "log").open("w") as log:
            self._process = subprocess.Popen(
                words, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        try:
            self._connection = self._run(self._open(kernelspec))
            for _ in range(20):
                self.cell("pass")
        except BaseException:
            self.close()
            raise

    def cell(self, code: str) -> float:
        """Seconds until the cell's reply and idle are both there."""
        return float(self._run(self._cell(code)))

    def close(self) -> None:
        """End the kernel and the server."""
        with contextlib.suppress(Exception):
            self._run(self._request("DELETE", f"/{self._kernel}"))
        self._process.terminate()
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()
        self._loop.close()

    async def _open(self, kernelspec: str) -> WebSocketClientConnection:
        deadline = time.monotonic() + _TIMEOUT
        while True:
            try:
                model = await self._request("POST", "", {"name": kernelspec})
                break
            except OSError:  # the server does not listen yet
                if time.monotonic() > deadline or self._process.poll() is not None:
                    raise
                await asyncio.sleep(0.1)
        self._kernel = model["id"]
        url = f"ws://{self._url}/{self._kernel}/channels?session_id={uuid.uuid4().hex}"
        request = HTTPRequest(url, headers=self._authorization)
        return await websocket_connect(request, max_message_size=1 << 30)

    async def _request(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        request = HTTPRequest(
            f"http://{self._url}{path}",
            method=method,
            headers=self._authorization,
            body=None if body is None else json.dumps(body),
            request_timeout=_TIMEOUT,
        )
        answer = await AsyncHTTPClient(force_instance=True).fetch(request)
        return json.loads(answer.body) if answer.body else None

    async def _cell(self, code: str) -> float:
        header = {"msg_id": uuid.uuid4().hex, "msg_type": "execute_request", "version": "5.3"}
        header |= {"username": "bench", "session": "bench", "date": ""}
        content = {"code": code, "silent": False, "store_history": True, "allow_stdin": False}
        message = {"channel": "shell", "header": header, "parent_header": {}, "metadata": {}}
        began = time.perf_counter()
        await self._connection.write_message(json.dumps({**message, "content": content}))
        missing = {"reply", "idle"}
        while missing:
            data = await asyncio.wait_for(self._connection.read_message(), _TIMEOUT)
            if data is None:
                raise ConnectionError("the server has closed the websocket")
            answer = json.loads(data)
            if answer["parent_header"].get("msg_id") != header["msg_id"]:
                continue
            if answer["msg_type"] == "execute_reply":
                missing.discard("reply")
            elif answer["content"].get("execution_state") == "idle":
                missing.discard("idle")
        return time.perf_counter() - began

    def _run(self, coroutine: Any) -> Any:
        return self._loop.run_until_complete(coroutine)
