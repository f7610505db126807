"""An open way to a machine: run a command, open a byte stream, notice the end, close from any thread.

Made by `ssh.connect`, which adds one transport per hop. Knows no route, no keys and no meaning of the bytes.
"""

from __future__ import annotations

import contextlib
import hashlib
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass

import paramiko

from ...errors import ConnectError
from . import tcp
from .packets import WINDOW
from .transport import Transport

_TAIL = 64 * 1024  # bytes of stderr that are kept
_OUTPUT = 4 * 1024 * 1024  # bytes of a short command's output
_SESSIONS = 4  # helper commands at a time; a server allows 10 sessions per connection (MaxSessions)
_LATE = 1.0  # seconds without output after which a command that has ended has said all
_OPEN_TIMEOUT = 20.0  # seconds for the server to open a session
_PATIENCE = 2.0  # seconds to wait for a session that is just being given back


@dataclass(frozen=True)
class Completed:
    """A finished command. `returncode` is -1 if the server did not say; `stderr` is its last 64 KiB."""

    returncode: int
    stdout: bytes
    stderr: bytes


class Stream:
    """One command's stdin and stdout as a byte stream. One reader and one writer thread; close from any."""

    def __init__(self, channel: paramiko.Channel) -> None:
        self._channel = channel
        self._count = 0
        self._tail = bytearray()
        self._drain = threading.Thread(target=self._drain_stderr, name="ssh stderr", daemon=True)
        self._drain.start()

    def read(self, size: int = WINDOW) -> bytes:
        """Block for 1 to `size` bytes; b"" once the command ended, we closed, or the way broke."""
        try:
            data = self._channel.recv(max(size, 1))
        except (OSError, EOFError, paramiko.SSHException):
            return b""
        self._count += len(data)
        return data

    def write(self, data: bytes) -> None:
        """Block until all of `data` is on its way. OSError when the stream has ended."""
        view = memoryview(data)
        while view:
            try:
                sent = self._channel.send(view[: 1 << 20])  # type: ignore[arg-type]
            except (EOFError, paramiko.SSHException) as error:
                raise OSError(f"the stream has ended: {error}") from error
            if not sent:
                raise OSError("the stream has ended")
            view = view[sent:]

    def end_of_input(self) -> None:
        """Let the command see the end of its stdin."""
        with contextlib.suppress(OSError, EOFError, paramiko.SSHException):  # ended by itself already
            self._channel.shutdown_write()

    def stderr_tail(self) -> str:
        """The last 64 KiB of stderr so far; after the end of stdout, all there is."""
        if self._channel.closed:
            self._drain.join(1.0)
        return self._tail.decode("utf-8", "replace")

    @property
    def exit_status(self) -> int | None:
        """None while the command runs; -1 when it was lost or killed by a signal."""
        return self._channel.exit_status if self._channel.exit_status_ready() else None

    def wait(self, timeout: float) -> int | None:
        """The exit status, waiting up to `timeout` (s) for it: it comes a moment after the end of stdout."""
        self._channel.status_event.wait(timeout)
        return self.exit_status

    def end_with_command(self) -> None:
        """Block until the command has ended, and end the stream: what the shell's start-up files, or the command, left
        running may hold its other end open for ever."""
        self._channel.status_event.wait()
        before = -1
        while self._count != before:  # what it wrote may still be on its way
            before = self._count
            time.sleep(_LATE)
        self.close()

    def close(self) -> None:
        """Free a blocked reader. On a dead link the farewell may wait: it does so on a thread of its own."""
        closer = threading.Thread(target=self._say_goodbye, name="ssh close", daemon=True)
        closer.start()
        closer.join(1.0)

    def _say_goodbye(self) -> None:
        with contextlib.suppress(OSError, EOFError, paramiko.SSHException):  # already gone is what we want
            self._channel.close()

    def _drain_stderr(self) -> None:
        # stderr shares its window with stdout: left unread it would stop both.
        while True:
            try:
                data = self._channel.recv_stderr(WINDOW)
            except (OSError, EOFError, paramiko.SSHException):
                return
            if not data:
                return
            self._tail += data
            del self._tail[:-_TAIL]


class SSHConnection:
    """A way of one or more hops. `hops`: (label, step, seconds) of each step made, in order."""

    def __init__(self) -> None:
        self.hops: list[tuple[str, str, float]] = []
        self.asked = False
        """Whether its owner typed something for it: it cannot be made anew without them."""
        self.closed = False
        """Whether it was closed here."""
        self.machine = ""
        """The host key of the last hop, hashed: ways that end at the same one lead to one machine, or to its twins."""
        self.labels: list[str] = []
        self._transports: list[Transport] = []
        # None may be collected while it is open: it would send from there.
        self._channels: set[paramiko.Channel] = set()
        self._lock = threading.Lock()
        self._helpers = threading.BoundedSemaphore(_SESSIONS)

    # --- for ssh.connect

    @property
    def last_transport(self) -> Transport | None:
        return self._transports[-1] if self._transports else None

    def add(self, label: str, transport: Transport) -> None:
        """The next hop is there."""
        self.labels.append(label)
        self._transports.append(transport)
        self.machine = hashlib.sha256(transport.get_remote_server_key().asbytes()).hexdigest()

    def nudge(self) -> None:
        """Run `true` on the last hop so far, unwaited: OpenSSH sends small packets at once (TCP_NODELAY) only
        where there once was a session, and a mere jump never has one. It may refuse: then it is slower."""
        transport = self._transports[-1]
        threading.Thread(target=self._nudge, args=(transport,), name="ssh nudge", daemon=True).start()

    def _nudge(self, transport: Transport) -> None:
        try:
            channel = transport.open_session(timeout=_OPEN_TIMEOUT)
            with self._lock:
                self._channels.add(channel)
            channel.exec_command("true")
            channel.shutdown_write()
        except (paramiko.SSHException, OSError, EOFError):
            pass  # a forced command, nologin, MaxSessions: the way works all the same

    # --- for everybody

    def open(self, command: str) -> Stream:
        """Run `command` in the last hop's login shell; its stdin and stdout are the stream. ConnectError."""
        return self._open(command, _OPEN_TIMEOUT)

    def run(self, command: str, *, stdin: bytes = b"", timeout: float = 30.0) -> Completed:
        """Run a short command. ConnectError if it does not end within `timeout` (s) or the way breaks."""
        with self._helpers:
            stream = self._open(command, timeout)
            with self._limited(stream, timeout, command):
                feeder = threading.Thread(
                    target=self._feed, args=(stream, stdin), name="ssh stdin", daemon=True
                )
                feeder.start()
                threading.Thread(target=stream.end_with_command, name="ssh end", daemon=True).start()
                stdout = self._all_of(stream)
                returncode = stream._channel.recv_exit_status()
        if returncode < 0 and not self.alive():
            raise self._lost()
        return Completed(returncode, stdout, stream.stderr_tail().encode())

    def _all_of(self, stream: Stream) -> bytes:
        said = bytearray()
        while data := stream.read():
            said += data
            if len(said) > _OUTPUT:
                cause = f"a command there printed more than {_OUTPUT >> 20} MiB"
                raise ConnectError(
                    cause, hop=self.labels[-1], remedy="Look at what its shell's start-up files print."
                )
        return bytes(said)

    def alive(self) -> bool:
        """Whether every hop still looks connected; a silent death shows only by asking the far end."""
        return bool(self._transports) and all(transport.is_active() for transport in self._transports)

    def answers(self, within: float) -> bool:
        """Whether the far end opens a session, or refuses to, within so many seconds. Blocks."""
        try:
            self._transports[-1].open_session(timeout=within).close()
        except paramiko.ChannelException:
            return True
        except (paramiko.SSHException, OSError, EOFError):
            return False
        return True

    def keep_waiting(self) -> None:
        """Its owner typed something for it: a silence, however long, is waited out."""
        self.asked = True
        tcp.be_patient(self._transports[0].sock)

    def close(self) -> None:
        """End all of it. The first hop goes first: those behind it may be stuck in sending through it."""
        self.closed = True
        for transport in self._transports:
            with contextlib.suppress(
                OSError, EOFError, paramiko.SSHException
            ):  # already gone is what we want
                transport.close()

    # --- sessions

    def _open(self, command: str, timeout: float) -> Stream:
        channel = self._session(time.monotonic() + min(timeout, _OPEN_TIMEOUT))
        with self._lock:
            self._channels = {one for one in self._channels if not one.closed} | {channel}
        timer = threading.Timer(timeout, channel.close)  # exec_command itself waits for ever
        timer.daemon = True
        timer.start()
        try:
            channel.exec_command(command)
        except (paramiko.SSHException, OSError, EOFError) as error:
            raise self._not_run(error) from error
        finally:
            timer.cancel()
        return Stream(channel)

    def _session(self, end: float) -> paramiko.Channel:
        patience = min(time.monotonic() + _PATIENCE, end)
        while True:
            try:
                return self._transports[-1].open_session(WINDOW, timeout=max(end - time.monotonic(), 0.05))
            except paramiko.ChannelException as error:
                # The server may still be busy giving back the session that we closed a moment ago.
                if time.monotonic() > patience:
                    raise ConnectError(
                        f"opens no further session on this connection (MaxSessions): {error.text}",
                        hop=self.labels[-1],
                        remedy="Close other uses of this connection, or ask its administrators.",
                    ) from error
                time.sleep(0.05)
            except (paramiko.SSHException, OSError, EOFError) as error:
                raise self._not_run(error) from error

    @staticmethod
    def _feed(stream: Stream, data: bytes) -> None:
        with contextlib.suppress(OSError):  # a command need not read all its input
            stream.write(data)
        stream.end_of_input()

    @contextlib.contextmanager
    def _limited(self, stream: Stream, timeout: float, command: str) -> Iterator[None]:
        expired = threading.Event()

        def expire() -> None:
            expired.set()
            stream.close()

        timer = threading.Timer(timeout, expire)
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()
            stream.close()
        if expired.is_set():
            raise ConnectError(
                f"a command did not end within {timeout:.0f} s: {command[:80]}",
                hop=self.labels[-1],
                remedy="The machine may be overloaded, or its file system slow: try again.",
            )

    def _not_run(self, error: Exception) -> ConnectError:
        if not self.alive():
            return self._lost()
        if str(error) == "Timeout opening channel.":
            return ConnectError(
                "does not answer (timed out)", hop=self.labels[-1], remedy="Check the network and try again."
            )
        return ConnectError(
            f"does not run commands for us: {error}",
            hop=self.labels[-1],
            remedy="Try `ssh HOST true` by hand.",
        )

    def _lost(self) -> ConnectError:
        return ConnectError(
            "the connection was lost", hop=self.labels[-1], remedy="Check the network and try again."
        )
