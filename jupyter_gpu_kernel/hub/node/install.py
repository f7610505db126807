"""Brings the agent to a node: packs it as one piece of data, installs it if it is missing there, and starts `attach`.

The modules are read as data, never imported, and are sent as they are, so tracebacks show their lines; as one stream
they compress better than each by itself. On a node, install.sh unpacks them into a folder that a Python can run. The
folder's name has their hash: another version is another folder, and running kernels keep theirs. This module knows no
paramiko.
"""

from __future__ import annotations

import bz2
import contextlib
import functools
import hashlib
import re
import shlex
import threading
import zlib
from pathlib import Path
from typing import NamedTuple

from ...errors import AgentError, ConnectError, GpuKernelError
from ...wire.stream.frames import MAGIC, MAX_NOISE
from .. import sanitize
from ..transport.connection import SPARE_LINE, STARTUP_FILES, Connection
from ..transport.stream import CommandStream

_PACKAGE = "jupyter_gpu_kernel"
_FOLDER = Path(__file__).resolve().parents[2]
_NOT_SENT = "/agent/framework_check.py"
"""A program that is sent separately."""
_packing = threading.Lock()
"""Threads that connect to several nodes pack at once: the sources are read by the first of them only."""
OLD_PYTHON = 91
"""The exit status of an agent whose Python is too old."""
_MAIN_PY = f"""import sys

if sys.version_info < (3, 8):
    sys.stderr.write("Python %d.%d is too old: 3.8 or newer is needed\\n" % sys.version_info[:2])
    sys.exit({OLD_PYTHON})

from {_PACKAGE}.agent.__main__ import main

sys.exit(main(sys.argv[1:]))
"""
"""The program: its first lines are for Pythons that cannot read any other module of the agent."""
DIAL_TIMEOUT = 60.0
"""Seconds for the node's shell, the upload and the start of Python on a slow file system, together."""
_GREETING = re.compile(re.escape(MAGIC))
_GREETING_OR_SEND = re.compile(re.escape(MAGIC) + rb"|\njupyter-gpu-kernel: send (bz2|zlib)\n")
_NO_STATUS = -1  # paramiko's, for a session that ended without an exit status, as with its connection
EXIT_STATUSES = {
    OLD_PYTHON: ("the node's Python is too old: 3.8 or newer is needed", "Choose another with --python."),
    93: ("the agent's folder on the node is not ours alone", "Ask who created it, or remove it."),
    94: ("no folder on the node has room for the agent", "Free space in /tmp, /var/tmp or your home there."),
    95: (
        "the kernelspec's Python is not on the node",
        "Run “jupyter gpu-kernel add … --replace” to find another.",
    ),
    126: ("the node's Python cannot be run", "Choose another with --python."),
    127: ("the node has no /bin/sh, or the Python is gone", "Choose another with --python."),
}
"""What the exit statuses of install.sh mean: cause and remedy."""


class Package(NamedTuple):
    """The agent, and the shell script that installs it.

    name: Of the agent's folder on the node.
    data: Its files: path, NUL, content, NUL, path …
    sum: The SHA-256 of the contents, in the order of the paths.
    """

    name: str
    data: bytes
    install: bytes
    sum: str

    def packed(self, module: str) -> bytes:
        """Return the data for the way: compressed by a module that the node's Python has, "bz2" or "zlib"."""
        return bz2.compress(self.data) if module == "bz2" else zlib.compress(self.data, 9)


def pack() -> Package:
    """Return the packed modules of `agent` and `wire`: equal sources give equal bytes."""
    with _packing:
        return packed_once()


@functools.cache
def packed_once() -> Package:
    """Read the sources once, as they may be removed or replaced while the hub runs."""
    files = {**_read_sources(), "__main__.py": _MAIN_PY}
    install = (_FOLDER / "agent" / "install.sh").read_bytes()
    digest = hashlib.sha256("".join(files[path] for path in sorted(files)).encode()).hexdigest()
    data = "\0".join(part for path in sorted(files) for part in (path, files[path])).encode()
    return Package(f"agent-{digest[:16]}", data, install, digest)


def _read_sources() -> dict[str, str]:
    """Return the text of each module, by its path."""
    sources = {f"{_PACKAGE}/__init__.py": ""}
    for folder in ("agent", "wire"):
        for path in (_FOLDER / folder).rglob("*.py"):
            if not path.as_posix().endswith(_NOT_SENT):
                sources[f"{_PACKAGE}/{path.relative_to(_FOLDER).as_posix()}"] = path.read_text("utf-8")
    return sources


def dial(
    connection: Connection, package: Package, python: str, hop: str, timeout: float = DIAL_TIMEOUT
) -> CommandStream:
    """Return a stream that begins with the agent's greeting. Blocks. Raises AgentError with the node's output, or
    ConnectError if the agent has not started within `timeout` (s)."""
    try:
        stream = connection.open("/bin/sh")
    except OSError as error:
        raise ConnectError(f"no session could be opened: {error}", hop=hop) from None
    try:
        with stream.closing_after(timeout) as expired:
            _start(stream, package, python, hop)
    except (GpuKernelError, OSError) as error:
        stream.close()
        if expired.is_set():
            remedy = f"The machine may be overloaded, or its file system slow: try again. Or {STARTUP_FILES}."
            cause = f"the agent did not start within {timeout:.0f} s"
            raise ConnectError(cause, hop=hop, remedy=remedy) from error
        if isinstance(error, OSError):
            raise _connection_broken(hop, str(error)) from None
        raise
    return stream


def _start(stream: CommandStream, package: Package, python: str, hop: str) -> None:
    """Send the script, and the agent when the script asks for it. The next that is read is the greeting: what came
    before it is ignored."""
    with contextlib.suppress(OSError):  # if the shell has ended, its output says why
        stream.write(SPARE_LINE + script(package, python))
    received, found = stream.read_until(_GREETING_OR_SEND)
    if found is not None and found[1]:
        packed = package.packed(found[1].decode())
        stream.write(b"%d\n" % len(packed) + packed)
        more, found = stream.read_until(_GREETING)
        received += more
    if found is None:
        raise _start_failed(stream, received, hop)
    stream.unread(MAGIC)


def script(package: Package, python: str) -> bytes:
    """Return the script for the node's /bin/sh. The command itself is only “/bin/sh”, so that it works in any login
    shell."""
    return script_head(package, python) + package.install


def script_head(package: Package, python: str, command: str = "attach") -> bytes:
    """Return the variables that are set before the script. `command`: what the script becomes, "attach" or "job"."""
    given = {
        "name": package.name,
        "size": str(len(package.data)),
        "sum": package.sum,
        "python": python,
        "command": command,
    }
    return "".join(f"{name}={shlex.quote(value)}\n" for name, value in given.items()).encode()


def _connection_broken(hop: str, why: str) -> ConnectError:
    return ConnectError(f"the connection broke while the agent was started: {why}", hop=hop)


def _start_failed(stream: CommandStream, received: bytes, hop: str) -> GpuKernelError:
    """Return the error for a shell from which no greeting has come, with what was received instead."""
    if len(received) >= MAX_NOISE:
        return AgentError(
            "the shell's start-up files on the node print without end",
            hop=hop,
            remedy="Change ~/.bashrc (or ~/.cshrc) there to print only in interactive shells.",
        )
    stderr = stream.stderr_tail().strip()
    status = stream.wait(5.0)  # it arrives shortly after the end of stdout
    if status in (None, _NO_STATUS) and not stderr and not received:
        return _connection_broken(hop, "it ended without output")
    cause, remedy = EXIT_STATUSES.get(status if status is not None else -1, ("", ""))
    if not cause:
        cause = f"the node's shell ended (status {status}) before the agent started"
        remedy = "Check the login shell's start-up files there: “ssh HOST /bin/sh” must work."
    noise = received.decode("utf-8", "replace").strip()
    text = "\n".join(sanitize.block(part[-800:]) for part in (stderr, noise) if part)
    return AgentError(cause + (f"; its output:\n{text}" if text else ""), hop=hop, remedy=remedy)
