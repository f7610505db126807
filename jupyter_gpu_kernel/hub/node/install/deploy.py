"""Deploys the agent to a node: installs it if missing, and starts `attach`. This module knows no paramiko."""

from __future__ import annotations

import contextlib
import re
import shlex

from ....errors import AgentError, ConnectError, GpuKernelError
from ....wire.stream.frames import MAGIC, MAX_NOISE
from ... import sanitize
from ...transport.connection import Connection
from ...transport.short_command import SPARE_LINE, STARTUP_FILES
from ...transport.stream import CommandStream
from .agent_file import OLD_PYTHON, Package

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
