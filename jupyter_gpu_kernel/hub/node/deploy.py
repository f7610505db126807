"""Brings the agent to a node and dials it: pack, name by content, install if missing, start `attach`.

The agent is read as data, never imported. It travels as one zip with fixed timestamps, named by its hash:
another version is another file, and what runs keeps the one it began with. This file knows no paramiko.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import io
import shlex
import threading
import zipfile
from pathlib import Path
from typing import NamedTuple, Protocol

from ...errors import AgentError, ConnectError, GpuKernelError
from ...wire.frames import MAGIC, MAX_NOISE
from .. import inert
from .stream import READ, Stream

DIAL_WITHIN = 60.0
"""Seconds for the node's shell, an upload and Python's start on a slow file system, together."""
_SEND = b"\njupyter-gpu-kernel: send\n"
_PACKAGE = "jupyter_gpu_kernel"
_FOLDER = Path(__file__).resolve().parents[2]
_MAIN = f"import sys\nfrom {_PACKAGE}.agent.__main__ import main\nsys.exit(main(sys.argv[1:]))\n"
_ADVICE = {
    90: ("the node's Python cannot run the agent", "Choose another with --python."),
    91: ("the node's Python is too old: 3.8 or newer is needed", "Choose another with --python."),
    93: ("the agent's folder on the node is not ours alone", "Ask who made it, or remove it."),
    94: ("no folder on the node has room for the agent", "Free space in /tmp, /var/tmp or your home there."),
    95: (
        "the kernelspec's Python is not on the node",
        "Run “jupyter gpu-kernel add … --replace” to find another.",
    ),
    126: ("the node's Python cannot be run", "Choose another with --python."),
    127: ("the node has no /bin/sh, or the Python is gone", "Choose another with --python."),
}


class Package(NamedTuple):
    """The agent as one file, and the shell lines that install it. `sum`: the SHA-256 of its data."""

    name: str
    data: bytes
    install: bytes
    sum: str


class Way(Protocol):
    """An open connection to the node: `open` runs a command as a byte stream."""

    def open(self, command: str) -> Stream: ...


@functools.cache
def pack() -> Package:
    """The agent and the wire as a zip, the same bytes for the same sources. Read once: a running hub may outlive the
    files that it came from, or they may be another version's by then."""
    files = {"__main__.py": _MAIN.encode(), f"{_PACKAGE}/__init__.py": b""}
    for room in ("agent", "wire"):
        for path in (_FOLDER / room).rglob("*.py"):
            files[f"{_PACKAGE}/{path.relative_to(_FOLDER).as_posix()}"] = path.read_bytes()
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in sorted(files):
            archive.writestr(zipfile.ZipInfo(name), files[name], zipfile.ZIP_DEFLATED)
    data = buffer.getvalue()
    install = (_FOLDER / "agent" / "install.sh").read_bytes()
    digest = hashlib.sha256(data).hexdigest()
    return Package(f"agent-{digest[:16]}.pyz", data, install, digest)


def dial(way: Way, python: str, hop: str) -> Stream:
    """A stream that begins with the agent's greeting. Blocks. AgentError: what the node said instead."""
    package = pack()
    try:
        stream = way.open("/bin/sh")
    except OSError as error:
        raise ConnectError(f"no session could be opened: {error}", hop=hop) from None
    watchdog = threading.Timer(DIAL_WITHIN, stream.close)
    watchdog.daemon = True
    watchdog.start()
    try:
        with contextlib.suppress(OSError):  # a shell that has ended already said why
            stream.write(script(package, python))
        rest = _await_greeting(stream, package, hop)
    except GpuKernelError:
        stream.close()
        raise
    except OSError as error:
        stream.close()
        raise _broken(hop, str(error)) from None
    finally:
        watchdog.cancel()
    return _Begun(stream, rest)


def script(package: Package, python: str) -> bytes:
    """What the node's /bin/sh reads. The command itself is only “/bin/sh”, so login shells of any kind
    will do."""
    given = {"name": package.name, "size": str(len(package.data)), "sum": package.sum, "python": python}
    head = "".join(f"{name}={shlex.quote(value)}\n" for name, value in given.items())
    return head.encode() + package.install


def _await_greeting(stream: Stream, package: Package, hop: str) -> bytes:
    """Sends the agent when asked; returns what was read from the greeting on. What came before is noise."""
    heard = bytearray()
    sent = False
    while len(heard) < MAX_NOISE:
        data = stream.read(READ)
        if not data:
            raise _refused(stream, bytes(heard), hop)
        heard += data
        at = heard.find(MAGIC)
        if at >= 0:
            return bytes(heard[at:])
        if not sent and _SEND in heard:
            sent = True
            stream.write(package.data)
    raise AgentError(
        "the shell's start-up files on the node print without end",
        hop=hop,
        remedy="Look at ~/.bashrc (or ~/.cshrc) there: print only when the shell is interactive.",
    )


def _broken(hop: str, why: str) -> ConnectError:
    return ConnectError(f"the connection broke while the agent was started: {why}", hop=hop)


def _refused(stream: Stream, heard: bytes, hop: str) -> GpuKernelError:
    said = getattr(stream, "stderr_tail", lambda: "")().strip()
    status = getattr(stream, "wait", lambda timeout: None)(5.0)  # it comes a moment after the end of stdout
    if status is None and not said and not heard:
        return _broken(hop, "it ended without a word")
    cause, remedy = _ADVICE.get(status if status is not None else -1, ("", ""))
    if not cause:
        cause = f"the node's shell ended (status {status}) before the agent started"
        remedy = "Check what the login shell's start-up files do there; “ssh HOST /bin/sh” must work."
    noise = heard.decode("utf-8", "replace").strip()
    text = "\n".join(inert.block(part[-800:]) for part in (said, noise) if part)
    return AgentError(cause + (f"; it says:\n{text}" if text else ""), hop=hop, remedy=remedy)


class _Begun:
    """A stream of which the beginning was read already."""

    def __init__(self, stream: Stream, beginning: bytes) -> None:
        self._stream = stream
        self._beginning = beginning

    def read(self, size: int, /) -> bytes:
        if self._beginning:
            beginning, self._beginning = self._beginning, b""
            return beginning
        return self._stream.read(size)

    def write(self, data: bytes, /) -> None:
        self._stream.write(data)

    def close(self) -> None:
        self._stream.close()

    def stderr_tail(self) -> str:
        """What the agent wrote beside the stream."""
        return str(getattr(self._stream, "stderr_tail", lambda: "")())
