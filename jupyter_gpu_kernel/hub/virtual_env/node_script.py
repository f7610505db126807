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
from typing import Any

from ...errors import AgentError, ConnectError, GpuKernelError
from .. import sanitize
from ..sanitize import Malformed, Shape, fields, flag, line, number, one_of, rows, text
from ..transport.connection import Connection
from ..transport.stream import READ_SIZE, CommandStream

MARK = b"=== jupyter-gpu-kernel environment "
LIMIT = 1800.0
"""Seconds that one run may take: a slow file server needs minutes for thousands of small files."""
_MAX_LINE = 1 << 20
_MAX_OUTPUT = 16 << 20
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
        state=one_of("new", "ours", "left"),
        packages=_packages,
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
    """One run of the program. `close` ends the run, from any thread; the program then removes what is not finished."""

    def __init__(self, hop: str, verb: str, step: Callable[[str], None]) -> None:
        """`step` is called with each step."""
        self._hop = hop
        self._verb = verb
        self._step = step
        self._stream: CommandStream | None = None
        self._closed = False

    def run(self, connection: Connection, script: str, archive: bytes = b"") -> dict[str, Any]:
        """Return the answer to the script; `archive` is sent when the program wants it. Raises GpuKernelError."""
        try:
            with (
                contextlib.closing(connection.open("/bin/sh")) as stream,
                stream.closing_after(LIMIT) as expired,
            ):
                self._stream = stream
                if self._closed:
                    raise ConnectError("the run was cancelled", hop=self._hop)
                with contextlib.suppress(OSError):  # if the shell has ended, its output says why
                    stream.write(f"{{\n{script}\n}}\n".encode())
                return self._read_answer(stream, archive, expired)
        except OSError as error:
            raise ConnectError(f"the connection broke: {error}", hop=self._hop) from None
        except (Malformed, ValueError, RecursionError) as error:
            cause = f"the node's answer is malformed: {error}"
            raise AgentError(cause, hop=self._hop, remedy="Try again.") from None

    def close(self) -> None:
        """End the run."""
        self._closed = True
        if self._stream is not None:
            self._stream.close()

    def _read_answer(self, stream: CommandStream, archive: bytes, expired: threading.Event) -> dict[str, Any]:
        noise = b""
        for one in _lines(stream):
            kind, _, value = one.removeprefix(MARK).partition(b" ")
            if not one.startswith(MARK):
                noise = (noise + one + b"\n")[-2000:]
            elif kind == b"answer":
                answer: dict[str, Any] = SHAPES[self._verb](json.loads(value))
                return answer
            elif kind == b"problem":
                raise self._problem(json.loads(value))
            elif kind == b"step":
                self._step(line(json.loads(value), 300))
            elif kind == b"send":
                self._step(f"sending packages: {len(archive) / 2**20:.1f} MiB")
                with contextlib.suppress(OSError):  # the program has ended, and says why
                    stream.write(archive)
        raise self._no_answer(stream, noise, expired.is_set())

    def _problem(self, value: Any) -> AgentError:
        problem = value if isinstance(value, dict) else {}
        word = "removed" if self._verb in ("status", "remove") else "made"
        said = sanitize.quoted("the node", problem.get("text"))
        remedy = _REMEDIES.get(sanitize.word(problem.get("code")), "Try again.")
        return AgentError(f"the environment cannot be {word}; {said}", hop=self._hop, remedy=remedy)

    def _no_answer(self, stream: CommandStream, noise: bytes, expired: bool) -> GpuKernelError:
        if expired:
            cause = f"the node has not finished in {LIMIT / 60:.0f} min; its file system may hang"
            return ConnectError(cause, hop=self._hop, remedy="Run this command again.")
        status = stream.wait(5.0)
        said = stream.stderr_tail().strip() or noise.decode("utf-8", "replace").strip()
        if status is None and not said:
            return ConnectError("the connection was lost", hop=self._hop, remedy="Run this command again.")
        return AgentError(
            f"the node's Python ended without an answer (exit status {status}); its output:\n"
            f"{sanitize.block(said[-2000:], 10) or '| (none)'}",
            hop=self._hop,
            remedy="Choose another Python with --python, or correct the --setup lines.",
        )


def _lines(stream: CommandStream) -> Iterator[bytes]:
    """Yield the lines of the output, as far as it is not too long."""
    rest, total = b"", 0
    while data := stream.read(READ_SIZE):
        total += len(data)
        *lines, rest = (rest + data).split(b"\n")
        yield from (one.rstrip(b"\r") for one in lines)
        if total > _MAX_OUTPUT or len(rest) > _MAX_LINE:
            return
