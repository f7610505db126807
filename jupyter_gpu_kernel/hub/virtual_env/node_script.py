"""Runs the program `agent/virtual_env.py` on a node, with one of its Pythons, and checks the answer.

Blocks. There is no agent on the node yet, so the program is sent as text, over any connection that runs /bin/sh.
"""

from __future__ import annotations

import contextlib
import json
import re
import shlex
import threading
from collections.abc import Callable, Iterator, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

from ...errors import AgentError, ConnectError, GpuKernelError
from .. import sanitize
from ..sanitize import Malformed, Shape, fields, flag, line, number, one_of, rows, text
from ..transport.connection import Connection
from ..transport.stream import READ_SIZE, CommandStream

MARK = b"=== jupyter-gpu-kernel environment "
IDLE_LIMIT = 120.0
"""Seconds without a word from the node, or without a byte sent to it, after which the stream is closed."""
_MAX_LINE = 1 << 20
_MAX_OUTPUT = 16 << 20
_BLOCK = 1 << 20
_STDIN = 3
"""The descriptor of our data; descriptor 0 is /dev/null, as the set-up lines may read it."""
_END = "end of the set-up lines of jupyter-gpu-kernel"


# --- the answers


def _matching(pattern: str) -> Shape:
    def checked(value: Any) -> str:
        if not isinstance(value, str) or not re.fullmatch(pattern, value):
            raise Malformed(f"{pattern} was expected")
        return value

    return checked


def _path(value: Any) -> str:
    if not isinstance(value, str) or not value.startswith("/") or line(value, 4096) != value:
        raise Malformed("an absolute path was expected")
    return value


def _all(**shapes: Shape) -> Shape:
    return fields(*shapes, **shapes)


_mib = number(0, 1e9)
_packages = rows(rows(text(100), 2), 2000)
_users = rows(_all(kernel=text(64)), 200)
SHAPES: dict[str, Shape] = {
    "plan": _all(
        path=_path,
        state=one_of("new", "ours", "broken", "unfinished"),
        packages=_packages,
        group=text(100),
        python=_path,
        version=_matching(r"\d+\.\d+\.\d+"),
        abi=_matching(r"cp\d{2,4}t?"),
        machine=_matching(r"[a-z0-9_]{1,20}"),
        libc=_matching(r"glibc \d+\.\d+[.\d]*|musl"),
    ),
    "create": _all(mib=_mib),
    "status": _all(id=_matching("([0-9a-f]{32})?"), there=flag, added=_packages, mib=_mib, users=_users),
    "remove": _all(mib=_mib),
}

_STORAGE = "another folder with --env-dir DIR, on storage that all your nodes share and that is not cleaned"
_NOTHING_REMOVED = "Nothing was removed. Without --env, “remove” removes the kernelspec alone."
_REMEDIES = {
    "write": f"Free some space or quota there, or allow writing; or name {_STORAGE}. Nothing was left on the node.",
    "open": "Choose a folder that only you can write to with --env-dir.",
    "foreign": "Choose another folder with --env-dir DIR, or another --name. Nothing was changed.",
    "elsewhere": "Choose another folder for this node with --env-dir DIR. Or remove the environment (“remove --env” "
    "with its kernelspec), and make it from a Python that all nodes with this folder have, such as one in your home: "
    "--python PATH.",
    "busy": "Wait until that has ended (after a lost connection: two minutes), then run this command again.",
    "make": "Choose another Python of the node with --python PATH, or with --setup LINE. Nothing was left on the node.",
    "start": f"The folder may be mounted without the right to run programs: name {_STORAGE}.",
    "not_ours": _NOTHING_REMOVED,
    "in_use": "End these first (jupyter gpu-kernel stop ID), then run this command again. Nothing was removed.",
    "no_python": f"Remove its folder there by hand (rm -r), if nothing uses it. {_NOTHING_REMOVED}",
}
"""What to do, by the code of the problem that the program reports."""


# --- the shell scripts


def command(python: str, verb: str, request: dict[str, Any]) -> list[str]:
    """Return the command that runs the program with this Python."""
    source = resources.files("jupyter_gpu_kernel").joinpath("agent/virtual_env.py").read_text("utf-8")
    return [python, "-I", "-c", source, verb, json.dumps({"stdin": _STDIN, **request})]


def with_python(python: str, setup: Sequence[str], verb: str, request: dict[str, Any]) -> str:
    """Return the script that runs the program with this Python; `setup`: lines for a login shell that come before."""
    start = shlex.join(["exec", *command(python, verb, request)])
    if not setup:
        return f"{start} {_STDIN}<&0 </dev/null"
    # The set-up lines come through a descriptor, since every user of the node can read command lines.
    lines = "\n".join([*setup, start])
    return f"exec bash --login /proc/self/fd/4 {_STDIN}<&0 </dev/null 4<<'{_END}'\n{lines}\n{_END}"


def with_any_python(verb: str, request: dict[str, Any]) -> str:
    """Return the script that runs the program with the Python from which the environment was made, or else with one on
    PATH, since the environment's own Python would run in it."""
    path = request["path"]
    answer = {
        "code": "no_python",
        "text": f"no Python of the node can be started that could tell about {path}",
    }
    return (
        f'for python in "$(readlink -f {shlex.quote(path)}/bin/python)" python3 python /usr/bin/python3 '
        "/usr/libexec/platform-python; do\n"
        '"$python" -I -c "import sys; sys.exit(sys.version_info < (3, 8))" </dev/null 2>/dev/null &&\n'
        f'exec "$python" {shlex.join(command("", verb, request)[1:])} {_STDIN}<&0 </dev/null\n'
        f"done\nprintf '%s\\n' {shlex.quote(f'{MARK.decode()}problem {json.dumps(answer)}')}"
    )


# --- one run


class NodeScript:
    """One run of the program. `close` ends it, from any thread; the program then removes what is not finished."""

    def __init__(self, hop: str, verb: str, step: Callable[[str], None]) -> None:
        """`step` is called with each step."""
        self._hop = hop
        self._verb = verb
        self._step = step
        self._stream: CommandStream | None = None
        self._closed = ""
        self._watchdog = threading.Timer(0, self.close)

    def run(self, connection: Connection, script: str, archive: Path | None = None) -> dict[str, Any]:
        """Return the answer to the script; `archive` is sent when the program wants it. Raises GpuKernelError."""
        try:
            stream = self._stream = connection.open("/bin/sh")
        except OSError as error:
            raise ConnectError(f"no session could be opened: {error}", hop=self._hop) from None
        try:
            self._restart_watchdog()
            if not self._closed:
                with contextlib.suppress(OSError):  # if the shell has ended, its output says why
                    stream.write(f"{{\n{script}\n}}\n".encode())
            return self._read_answer(stream, archive)
        except OSError as error:
            raise ConnectError(f"the connection broke: {error}", hop=self._hop) from None
        except (Malformed, ValueError, RecursionError) as error:
            cause = f"the node's answer is malformed: {error}"
            raise AgentError(cause, hop=self._hop, remedy="Try again.") from None
        finally:
            self._watchdog.cancel()
            stream.close()

    def close(self, reason: str = "cancelled") -> None:
        """End the run."""
        self._closed = reason
        if self._stream is not None:
            self._stream.close()

    def _restart_watchdog(self) -> None:
        self._watchdog.cancel()
        reason = f"nothing was received from the node for {IDLE_LIMIT:.0f} s; its file system may hang"
        self._watchdog = threading.Timer(IDLE_LIMIT, self.close, [reason])
        self._watchdog.daemon = True
        self._watchdog.start()

    def _read_answer(self, stream: CommandStream, archive: Path | None) -> dict[str, Any]:
        noise = b""
        for one in self._lines(stream):
            if not one.startswith(MARK):
                noise = (noise + one + b"\n")[-2000:]
                continue
            kind, _, rest = one[len(MARK) :].partition(b" ")
            value = json.loads(rest)
            if kind == b"answer":
                answer: dict[str, Any] = SHAPES[self._verb](value)
                return answer
            if kind == b"problem":
                raise self._problem(value if isinstance(value, dict) else {})
            if kind == b"step":
                self._step(line(value, 300))
            if kind == b"send" and archive is not None:
                with contextlib.suppress(OSError):  # the program has ended, and says why
                    self._send(stream, archive)
        raise self._no_answer(stream, noise)

    def _lines(self, stream: CommandStream) -> Iterator[bytes]:
        """Yield the lines of the output, as far as it is not too long."""
        rest, total = b"", 0
        while data := stream.read(READ_SIZE):
            self._restart_watchdog()
            total += len(data)
            *lines, rest = (rest + data).split(b"\n")
            yield from (one.rstrip(b"\r") for one in lines)
            if total > _MAX_OUTPUT or len(rest) > _MAX_LINE:
                return

    def _send(self, stream: CommandStream, archive: Path) -> None:
        data = archive.read_bytes()
        for start in range(0, len(data), _BLOCK):
            self._step(f"sending packages: {start / 2**20:.1f} of {len(data) / 2**20:.1f} MiB")
            stream.write(data[start : start + _BLOCK])
            self._restart_watchdog()

    def _problem(self, value: dict[str, Any]) -> AgentError:
        word = "removed" if self._verb in ("status", "remove") else "made"
        said = sanitize.quoted("the node", value.get("text"))
        remedy = _REMEDIES.get(sanitize.word(value.get("code")), "Try again.")
        return AgentError(f"the environment cannot be {word}; {said}", hop=self._hop, remedy=remedy)

    def _no_answer(self, stream: CommandStream, noise: bytes) -> GpuKernelError:
        status = None if self._closed else stream.wait(5.0)
        said = stream.stderr_tail().strip() or noise.decode("utf-8", "replace").strip()
        if self._closed or (status is None and not said):
            cause = self._closed or "the connection was lost"
            return ConnectError(cause, hop=self._hop, remedy="Run this command again.")
        return AgentError(
            f"the node's Python ended without an answer (exit status {status}); its output:\n"
            f"{sanitize.block(said[-2000:], 10) or '| (none)'}",
            hop=self._hop,
            remedy="Choose another Python with --python, or correct the --setup lines.",
        )
