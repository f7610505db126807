"""Runs the program `agent/virtual_env/program.py` on a node, with one of its Pythons, and reads the answer.

Blocks. There is no agent on the node yet, so the program is sent as text, over any connection that runs /bin/sh.
"""

from __future__ import annotations

import contextlib
import json
import shlex
import threading
from collections.abc import Callable, Iterator, Sequence
from importlib import resources
from typing import Any

from ...errors import AgentError, ConnectError, GpuKernelError
from .. import sanitize
from ..node.install.deploy import CommandOpener
from ..transport.stream import READ_SIZE, CommandStream

MARK = "=== jupyter-gpu-kernel environment "
IDLE_LIMIT = 120.0
"""Seconds without a word from the node, or without a byte sent to it, after which the stream is closed."""
_MAX_LINE = 1 << 20
_MAX_OUTPUT = 16 << 20
_MODULES = ("output", "record", "plan", "create", "removal", "program")
"""Of the program, in an order in which each one imports those before it only."""
_LOADER = """
import sys, types
sys.modules["virtual_env"] = types.ModuleType("virtual_env")
for name, source in sources:
    module = sys.modules["virtual_env." + name] = types.ModuleType("virtual_env." + name)
    module.__package__ = "virtual_env"
    exec(compile(source, name + ".py", "exec"), module.__dict__)
sys.exit(module.main(sys.argv[1:]))
"""
_STDIN = 3
"""The descriptor of our data; descriptor 0 is /dev/null, as the set-up lines may read it."""

Send = Callable[[CommandStream, Callable[[], None]], None]
"""Writes the data to a stream, and calls the function after each part."""


def command(python: str, verb: str, request: dict[str, Any]) -> list[str]:
    """Return the command that runs the program with this Python."""
    folder = resources.files("jupyter_gpu_kernel").joinpath("agent/virtual_env")
    sources = [(name, folder.joinpath(f"{name}.py").read_text("utf-8")) for name in _MODULES]
    code = f"sources = {sources!r}\n{_LOADER}"
    return [python, "-I", "-c", code, verb, json.dumps(request)]


class NodeScript:
    """One Python of a node that can run the script. `close` ends a run, from any thread."""

    def __init__(
        self,
        connection: CommandOpener,
        hop: str,
        python: str,
        step: Callable[[str], None],
        setup: Sequence[str] = (),
    ) -> None:
        """`step` is called with each step; `setup`: lines for a login shell, which then becomes the Python."""
        self._connection = connection
        self._hop = hop
        self._python = python
        self._step = step
        self._setup = setup
        self._stream: CommandStream | None = None
        self._closed = False

    def run(self, verb: str, request: dict[str, Any], send: Send | None = None) -> dict[str, Any]:
        """Return the answer. Raises NodeProblem if the script reports one, or another GpuKernelError."""
        try:
            stream = self._stream = self._connection.open("/bin/sh")
        except OSError as error:
            raise ConnectError(f"no session could be opened: {error}", hop=self._hop) from None
        watchdog = _Watchdog(stream)
        try:
            if self._closed:
                raise ConnectError("cancelled", hop=self._hop)
            with contextlib.suppress(OSError):  # if the shell has ended, its output says why
                stream.write(self._script(verb, {**request, "stdin": _STDIN}))
            return self._read_answer(stream, watchdog, send)
        except OSError as error:
            raise ConnectError(f"the connection broke: {error}", hop=self._hop) from None
        finally:
            watchdog.cancel()
            stream.close()

    def close(self) -> None:
        """End the run; the script on the node notices, and removes what is not finished."""
        self._closed = True
        if self._stream is not None:
            self._stream.close()

    def _script(self, verb: str, request: dict[str, Any]) -> bytes:
        line = shlex.join(["exec", *command(self._python, verb, request)])
        if not self._setup:
            return f"{{\n{line} {_STDIN}<&0 </dev/null\n}}\n".encode()
        # The set-up lines are in a file that nobody else can read, since everybody can read command lines.
        text = shlex.quote("\n".join([*self._setup, line]))
        return (
            '{\numask 077\nfile=$(mktemp "${TMPDIR:-/tmp}/jupyter-gpu-kernel-setup.XXXXXX") || exit 94\n'
            f"printf '%s\\n' {text} >\"$file\"\n"
            f'bash --login "$file" {_STDIN}<&0 </dev/null\nstatus=$?\nrm -f "$file"\nexit $status\n}}\n'
        ).encode()

    def _read_answer(self, stream: CommandStream, watchdog: _Watchdog, send: Send | None) -> dict[str, Any]:
        noise = b""
        for line in _lines(stream):
            watchdog.restart()
            if not line.startswith(MARK.encode()):
                noise = (noise + line + b"\n")[-2000:]
                continue
            kind, value = self._parsed(line)
            if kind == "answer" and isinstance(value, dict):
                return value
            if kind == "problem" and isinstance(value, dict):
                raise NodeProblem(sanitize.word(value.get("code")), value.get("text"), self._hop)
            if kind == "step":
                self._step(sanitize.line(value, 300))
            if kind == "send" and send is not None:
                threading.Thread(
                    target=self._send, args=(stream, watchdog, send), name="wheels", daemon=True
                ).start()
                send = None
        raise self._no_answer(stream, noise, watchdog)

    @staticmethod
    def _send(stream: CommandStream, watchdog: _Watchdog, send: Send) -> None:
        with contextlib.suppress(OSError):  # the script has ended, and says why
            send(stream, watchdog.restart)

    def _parsed(self, line: bytes) -> tuple[str, Any]:
        kind, _, value = line[len(MARK) :].decode("utf-8", "replace").partition(" ")
        try:
            return kind, json.loads(value)
        except (ValueError, RecursionError):
            raise AgentError("the node's answer is malformed", hop=self._hop, remedy="Try again.") from None

    def _no_answer(self, stream: CommandStream, noise: bytes, watchdog: _Watchdog) -> GpuKernelError:
        if self._closed:
            return ConnectError("cancelled", hop=self._hop)
        if watchdog.expired:
            cause = f"nothing was received from the node for {IDLE_LIMIT:.0f} s"
            return ConnectError(cause, hop=self._hop, remedy="Its file system may hang: try again later.")
        status = stream.wait(5.0)
        said = stream.stderr_tail().strip() or noise.decode("utf-8", "replace").strip()
        if status is None and not said:
            return ConnectError("the connection was lost", hop=self._hop, remedy="Run this command again.")
        setup = " after the set-up lines" if self._setup else ""
        cause = f"{self._python} ended without an answer{setup} (exit status {status}); its output:"
        return AgentError(
            f"{cause}\n{sanitize.block(said[-2000:], 10) or '| (none)'}",
            hop=self._hop,
            remedy="Choose another Python with --python, or correct the --setup lines.",
        )


class NodeProblem(GpuKernelError):
    """The script reports a problem: its code, and in the cause what it says."""

    def __init__(self, code: str, text: object, hop: str) -> None:
        super().__init__(sanitize.quoted("the node", text), hop=hop)
        self.code = code


class _Watchdog:
    """Closes a stream on which nothing happens."""

    def __init__(self, stream: CommandStream) -> None:
        self._stream = stream
        self.expired = False
        self._timer = self._start()

    def restart(self) -> None:
        """Something happened."""
        self._timer.cancel()
        self._timer = self._start()

    def cancel(self) -> None:
        """Watch no more."""
        self._timer.cancel()

    def _start(self) -> threading.Timer:
        timer = threading.Timer(IDLE_LIMIT, self._expire)
        timer.daemon = True
        timer.start()
        return timer

    def _expire(self) -> None:
        self.expired = True
        self._stream.close()


def _lines(stream: CommandStream) -> Iterator[bytes]:
    """Yield the lines of the output, as far as it is not too long."""
    rest, total = b"", 0
    while data := stream.read(READ_SIZE):
        total += len(data)
        *lines, rest = (rest + data).split(b"\n")
        yield from (line.rstrip(b"\r") for line in lines)
        if total > _MAX_OUTPUT or len(rest) > _MAX_LINE:
            return
