"""A Jupyter server as a process, spoken to by its REST API and websocket as a browser does; ended in every way."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import urllib.request
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psutil
from remote import Remote
from sshd import free_port
from waiting import DEADLINE, eventually
from websocket import WebSocketException, create_connection

HEADER = {"Authorization": "token secret"}
RUN = """import runpy, sys
sys.modules["rfc3987_syntax"] = None
del sys.argv[0]
runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)"""
"""Run a module as `python -m` does, but without a parser whose grammar takes a second to compile: jsonschema's for
IRIs, which it can do without."""
OTHERS = ["jupyterlab", "jupyter_lsp", "jupyter_server_terminals", "notebook_shim"]
"""Server extensions of the environment that runs the tests; a plain server does not load them."""
TERMINAL = "import pty, sys; pty.spawn(sys.argv[1:])"  # what one types comes in on its stdin


class Page:
    """One websocket on a kernel, with messages as JupyterLab sends them. `received`: all messages that came."""

    def __init__(self, url: str) -> None:
        self.received: list[dict[str, Any]] = []
        self._session = uuid.uuid4().hex
        self._socket = create_connection(f"{url}?session_id={self._session}", DEADLINE, header=HEADER)

    def execute(self, code: str, **metadata: Any) -> str:
        """The request's message id."""
        asked = uuid.uuid4().hex
        header = {"msg_id": asked, "msg_type": "execute_request", "session": self._session, "version": "5.3"}
        header |= {"username": "", "date": "2026-01-01T00:00:00Z"}
        content = {"code": code, "silent": False, "store_history": True, "stop_on_error": True}
        message = {"header": header, "parent_header": {}, "metadata": metadata, "content": content}
        self._socket.send(json.dumps({**message, "channel": "shell", "buffers": []}))
        return asked

    def until(self, asked: str, msg_type: str, **content: Any) -> dict[str, Any]:
        """The next message of this type to this request, with this content."""
        while True:
            message: dict[str, Any] = json.loads(self._socket.recv())
            self.received.append(message)
            of_it = message["parent_header"].get("msg_id") == asked and message["msg_type"] == msg_type
            if of_it and content.items() <= message["content"].items():
                return message

    def run(self, code: str) -> str:
        """What a cell printed."""
        asked = self.execute(code)
        assert self.until(asked, "execute_reply")["content"]["status"] == "ok"
        if not any(m["content"].get("execution_state") == "idle" for m in self._of(asked)):
            self.until(asked, "status", execution_state="idle")
        return self.printed(asked)

    def printed(self, asked: str) -> str:
        """What a cell has printed so far, as far as it was heard."""
        return "".join(m["content"]["text"] for m in self._of(asked) if m["msg_type"] == "stream")

    def rest(self, asked: str) -> str:
        """What a cell had printed until the server was gone."""
        while (data := self._received()) is not None:
            self.received.append(json.loads(data))
        return self.printed(asked)

    def _received(self) -> str | None:
        try:
            return self._socket.recv() or None
        except (OSError, WebSocketException):
            return None

    def _of(self, asked: str) -> list[dict[str, Any]]:
        return [message for message in self.received if message["parent_header"].get("msg_id") == asked]

    def close(self) -> None:
        self._socket.close()


class Server:
    """`root` holds its notebooks; `terminal`: it runs in a terminal of its own, where one can `type`.

    `program`: what it is, with its options: jupyter_server, or jupyterlab.
    """

    def __init__(
        self,
        remote: Remote,
        root: Path,
        terminal: bool = False,
        program: Sequence[str] = ("jupyter_server",),
        python: str = sys.executable,
    ) -> None:
        port = free_port()
        self._pages: list[Page] = []
        self.address = f"127.0.0.1:{port}"
        words = [python, "-c", RUN, *program, "--no-browser", f"--port={port}", "--allow-root"]
        words += ["--IdentityProvider.token=secret", f"--ServerApp.root_dir={root}"]
        if program == ("jupyter_server",):
            words.append(f"--ServerApp.jpserver_extensions={dict.fromkeys(OTHERS, False)}")
        words = [sys.executable, "-c", TERMINAL, *words] if terminal else words
        self.log = root / f"server-{port}.log"
        self._start = lambda: self._run(words, remote.program_environment(), root, terminal)
        self._start()

    def _run(self, words: list[str], environment: dict[str, str], root: Path, terminal: bool) -> None:
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(
                words,
                env=environment,
                stdin=subprocess.PIPE if terminal else subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=root,
            )
        eventually(self._answers, "the server answers")
        children = psutil.Process(self.process.pid).children() if terminal else []
        self.server = children[0] if children else psutil.Process(self.process.pid)

    def kill(self) -> None:
        """As with kill -9."""
        self.server.kill()
        self.ended()

    def start_again(self) -> None:
        """At the same address."""
        self._start()

    def _answers(self) -> bool:
        try:
            return bool(self.ask("GET", "/api"))
        except OSError:
            return False

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        headers = {**HEADER, "Content-Type": "application/json"}
        request = urllib.request.Request(f"http://{self.address}{path}", data, headers, method=method)
        with urllib.request.urlopen(request, timeout=DEADLINE) as answer:
            return json.loads(answer.read() or b"null")

    def open(self, notebook: str, spec: str = "cpu") -> str:
        """Jupyter's id of the kernel that the notebook gets."""
        name = notebook.rpartition("/")[2]
        body = {"path": notebook, "type": "notebook", "name": name, "kernel": {"name": spec}}
        return str(self.ask("POST", "/api/sessions", body)["kernel"]["id"])

    def page(self, kernel_id: str) -> Page:
        self._pages.append(Page(f"ws://{self.address}/api/kernels/{kernel_id}/channels"))
        return self._pages[-1]

    def type(self, text: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(text.encode())
        self.process.stdin.flush()

    def sends(self, text: str) -> None:
        """Waits until it has said so."""
        eventually(lambda: text in self.log.read_text(errors="replace"), text)

    def ended(self) -> None:
        """Waits until it has."""
        self.process.wait(DEADLINE)

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *exception: object) -> None:
        if self.process.poll() is None:
            self.server.send_signal(signal.SIGTERM)
        try:
            self.ended()
        except subprocess.TimeoutExpired:
            # A request that ends in this moment leaves a thread of AnyIO, for which Python waits: jupyterlab#10442.
            assert not self._answers()
            self.kill()
        for page in self._pages:
            page.close()
        if self.process.stdin is not None:
            self.process.stdin.close()
