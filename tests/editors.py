"""`jupyter gpu-kernel serve` as a process, and editors such as VS Code at its REST API and websockets."""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.request
import uuid
from collections.abc import Callable
from typing import Any

from jupyter_server.services.kernels.connection.base import deserialize_msg_from_ws_v1, serialize_msg_to_ws_v1
from remote import Remote
from waiting import DEADLINE
from websocket import ABNF, create_connection

PROTOCOL = "v1.kernel.websocket.jupyter.org"
RESUME_PAUSE = 0.5


class Editor:
    """One window of an editor, at the websocket of a kernel. `received`: all messages that came. `pings`: how many
    came that confirm no message."""

    def __init__(self, url: str, token: str) -> None:
        self.received: list[dict[str, Any]] = []
        self.pings = 0
        self.session = uuid.uuid4().hex
        header = {"Authorization": f"token {token}"}
        self.socket = create_connection(
            f"{url}?session_id={self.session}", DEADLINE, header=header, subprotocols=[PROTOCOL]
        )
        self.send("kernel_info_request", {})

    def send(self, msg_type: str, content: dict[str, Any], **metadata: Any) -> str:
        """The request's message id."""
        asked = uuid.uuid4().hex
        header = {"msg_id": asked, "msg_type": msg_type, "session": self.session, "version": "5.3"}
        header |= {"username": "", "date": "2026-01-01T00:00:00Z"}
        message = {"header": header, "parent_header": {}, "metadata": metadata, "content": content}
        packed = serialize_msg_to_ws_v1(message, "shell", lambda part: json.dumps(part).encode())
        self.socket.send_binary(packed)
        return asked

    def execute(self, code: str, *, store_history: bool = True, **metadata: Any) -> str:
        content = {"code": code, "silent": False, "store_history": store_history, "stop_on_error": False}
        return self.send("execute_request", content, **metadata)

    def until(self, reached: Callable[[], bool]) -> None:
        """Takes messages until that is true. A real client, too, takes the ping behind a message in the same turn."""
        while not reached():
            self._take()

    def ended(self, asked: str) -> bool:
        """Whether the cell's reply and its idle status have come."""
        of_it = self.of(asked)
        idle = any(one["content"].get("execution_state") == "idle" for one in of_it)
        return idle and any(one["msg_type"] == "execute_reply" for one in of_it)

    def run(self, code: str, **metadata: Any) -> str:
        """What a cell printed."""
        asked = self.execute(code, **metadata)
        self.until(lambda: self.ended(asked))
        return self.printed(asked)

    def of(self, asked: str) -> list[dict[str, Any]]:
        return [one for one in self.received if one["parent_header"].get("msg_id") == asked]

    def printed(self, asked: str) -> str:
        """What the cell shows."""
        text = ""
        for one in self.of(asked):
            text = "" if one["msg_type"] == "clear_output" else text + one["content"].get("text", "")
        return text

    def _take(self) -> None:
        """One message; with output of a cell also what comes behind it, to the ping that ends it."""
        while self._take_frame() == "stream":
            pass

    def _take_frame(self) -> str:
        """The type of the message; "" for another frame."""
        opcode, frame = self.socket.recv_data_frame(control_frame=True)
        self.pings += opcode == ABNF.OPCODE_PING and not frame.data
        assert opcode != ABNF.OPCODE_CLOSE, "the server closed the websocket"
        if opcode != ABNF.OPCODE_BINARY:
            return ""
        channel, parts = deserialize_msg_from_ws_v1(frame.data)
        names = ("header", "parent_header", "metadata", "content")
        message = {name: json.loads(part) for name, part in zip(names, parts, strict=False)}
        self.received.append({**message, "msg_type": message["header"]["msg_type"], "channel": channel})
        return str(self.received[-1]["msg_type"])

    def close(self) -> None:
        """The window is closed."""
        self.socket.close(timeout=0)

    def vanish(self) -> None:
        """The editor is killed."""
        self.socket.shutdown()


class HubServer:
    """The server's process. `url` and `token`: as it has printed them."""

    def __init__(self, remote: Remote, *words: str, resume_pause: float = RESUME_PAUSE) -> None:
        self._editors: list[Editor] = []
        pause = f"--PageConnection.resume_pause={resume_pause}"
        self.process = subprocess.Popen(
            [sys.executable, "-m", "jupyter_gpu_kernel.cli", "serve", "--json", pause, *words],
            env=remote.program_environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, self.process.communicate()
        self.url, self.token = (json.loads(line)[key] for key in ("url", "token"))

    def ask(self, method: str, path: str, body: Any = None, **headers: str) -> Any:
        data = None if body is None else json.dumps(body).encode()
        headers = {"Authorization": f"token {self.token}", "Content-Type": "application/json", **headers}
        request = urllib.request.Request(f"{self.url}{path}", data, headers, method=method)
        with urllib.request.urlopen(request, timeout=DEADLINE) as answer:
            return json.loads(answer.read() or b"null")

    def open(self, notebook: str, spec: str = "cpu") -> str:
        """Jupyter's id of the kernel that the notebook gets."""
        body = {"path": notebook, "type": "notebook", "name": notebook, "kernel": {"name": spec}}
        return str(self.ask("POST", "api/sessions", body)["kernel"]["id"])

    def editor(self, kernel_id: str) -> Editor:
        address = self.url.replace("http:", "ws:")
        self._editors.append(Editor(f"{address}api/kernels/{kernel_id}/channels", self.token))
        return self._editors[-1]

    def stop(self, number: int) -> tuple[int, str]:
        """Its exit status, and what it wrote to stderr."""
        self.process.send_signal(number)
        _, printed = self.process.communicate(timeout=DEADLINE)
        return self.process.returncode, printed

    def __enter__(self) -> HubServer:
        return self

    def __exit__(self, *exception: object) -> None:
        if self.process.poll() is None:
            self.process.terminate()
        self.process.communicate(timeout=DEADLINE)
        for editor in self._editors:
            editor.vanish()
