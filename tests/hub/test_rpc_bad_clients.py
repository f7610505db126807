"""Front ends that break the rules of the hub's socket: each loses its own connection, and the hub nothing."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import socket
import struct
import sys
import tempfile
import threading
from collections.abc import Coroutine, Iterator
from multiprocessing.connection import Client, Connection
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from malformed import NO_OBJECTS
from runtimes import RUNTIME
from waiting import eventually

from jupyter_gpu_kernel.client import HubClient
from jupyter_gpu_kernel.errors import HubError
from jupyter_gpu_kernel.hub import client_connection, rpc
from jupyter_gpu_kernel.hub.client_connection import prove_to_hub
from jupyter_gpu_kernel.hub.paths import hub_address, make_hub_key
from jupyter_gpu_kernel.hub.rpc import Call, RpcServer
from jupyter_gpu_kernel.hub.ssh import Secret

DEADLINE = 30.0
pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="its pipes are no sockets")


class Server:
    """The hub's socket without a hub: its operations are in `operation`."""

    def __init__(self) -> None:
        self._others = set(threading.enumerate())  # of tests before
        self.loop = asyncio.new_event_loop()
        self.faults: list[dict[str, Any]] = []
        self.staying = 0
        self.loop.set_exception_handler(lambda _, context: self.faults.append(context))
        self.thread = threading.Thread(target=self.loop.run_forever, name="loop")
        self.thread.start()
        self.key = make_hub_key(RUNTIME)
        self.server = self.run(self._listen())

    async def _listen(self) -> RpcServer:
        return RpcServer(RUNTIME, hub_address(), self.key, self.operation, logging.getLogger("tests"))

    def run(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result(DEADLINE)

    async def operation(self, call: Call) -> Any:
        if call.op == "stay":
            self.staying += 1
            try:
                await asyncio.Event().wait()
            finally:
                self.staying -= 1
        if call.op == "big":
            return "x" * int(call.arguments["size"])
        if call.op == "fail":
            raise RuntimeError("a fault")
        if call.op == "walk":
            call.progress("login", "reach")
        if call.op == "tell":
            call.client.send({"event": "kernel"})
        if call.op == "ask":
            return await asyncio.to_thread(call.secret, "login", "Password: ", Secret())
        return call.arguments

    def threads(self) -> int:
        """Those of connections."""
        ours = set(threading.enumerate()) - self._others
        return sum(thread.name.startswith(("rpc", "Thread")) for thread in ours)

    def nothing_leaks(self) -> None:
        eventually(lambda: self.server.count == 0, "every client has gone")
        eventually(lambda: self.threads() == 1, "only the one that listens is left")
        eventually(lambda: self.staying == 0, "no call is left")
        assert not self.faults, self.faults

    def close(self) -> None:
        self.server.close()
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as sock:  # wakes who accepts
            sock.connect(hub_address())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join(DEADLINE)
        self.loop.close()


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory(prefix="jgk") as folder:
        for name in ("JUPYTER_DATA_DIR", "XDG_RUNTIME_DIR"):
            (Path(folder) / name).mkdir()
            patch.setenv(name, str(Path(folder) / name))
        server = Server()
        try:
            yield server
        finally:
            server.close()


@contextlib.contextmanager
def connected(server: Server) -> Iterator[Connection[Any, Any]]:
    with Client(hub_address()) as connection:
        prove_to_hub(connection, server.key)
        yield connection


def received(connection: Connection[Any, Any]) -> dict[str, Any]:
    assert connection.poll(DEADLINE)
    return dict(json.loads(connection.recv_bytes()))


def until_hung_up(connection: Connection[Any, Any]) -> list[dict[str, Any]]:
    """All that it says until then."""
    sent = []
    with contextlib.suppress(EOFError, OSError):
        while True:
            sent.append(received(connection))
    return sent


BAD = [
    *NO_OBJECTS,
    b"\xff\x00",
    b"null",
    b'["bye"]',
    b'"bye"',
    b"{}",
    b'{"id": 1}',
    b'{"op": "echo"}',
    b'{"id": "1", "op": "echo"}',
    b'{"id": true, "op": "echo"}',
    b'{"id": 1.5, "op": "echo"}',
    b'{"id": null, "op": "echo"}',
    b'{"id": 1' + b"0" * 300 + b', "op": "echo"}',
    b'{"id": 1' + b"0" * 5000 + b', "op": "echo"}',
    b'{"id": 1, "op": 5}',
    b'{"id": 1, "op": null}',
    b'{"id": 1, "op": "../echo"}',
    b'{"id": 1, "op": ""}',
    b'{"answer": "x"}',
    b'{"answer": []}',
    b'{"id": 1, "op": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
]


@pytest.mark.parametrize("bad", BAD, ids=range(len(BAD)))
def test_a_bad_message_ends_its_connection_with_an_error(server: Server, bad: bytes) -> None:
    with connected(server) as good, connected(server) as connection:
        connection.send_bytes(bad)
        (last,) = until_hung_up(connection)
        assert "id" not in last and last["error"]["kind"] == "HubError"
        good.send_bytes(b'{"id": 1, "op": "echo", "x": 5}')
        assert received(good) == {"id": 1, "result": {"x": 5}}
    server.nothing_leaks()


def test_a_message_that_is_too_large(server: Server) -> None:
    with connected(server) as connection:
        os.write(connection.fileno(), struct.pack("!i", client_connection.MAX_MESSAGE + 1))
        (last,) = until_hung_up(connection)
        assert "larger than" in last["error"]["cause"]
    with connected(server) as connection:
        os.write(connection.fileno(), struct.pack("!iQ", -1, 2**60))
        assert "larger than" in until_hung_up(connection)[-1]["error"]["cause"]
    server.nothing_leaks()


def test_thousands_of_bad_messages_leave_no_thread(server: Server) -> None:
    for number in range(400):
        with connected(server) as connection:
            connection.send_bytes(b'{"id": 1, "op": "stay"}')
            connection.send_bytes(BAD[number % len(BAD)])
            if number % 2:
                until_hung_up(connection)
    server.nothing_leaks()


def test_a_client_that_does_not_read_is_hung_up_on(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_connection, "MAX_UNREAD", 1_000_000)
    monkeypatch.setattr(rpc, "MAX_CALLS", 1000)
    with connected(server) as connection:
        with pytest.raises(OSError):
            for number in range(100_000):
                connection.send_bytes(json.dumps({"id": number, "op": "big", "size": 300_000}).encode())
        eventually(lambda: server.server.count == 0, "it is hung up on")
    server.nothing_leaks()


def test_an_answer_larger_than_what_may_wait_comes(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_connection, "MAX_UNREAD", 1000)
    with connected(server) as connection:
        connection.send_bytes(b'{"id": 1, "op": "big", "size": 5000000}')
        assert len(received(connection)["result"]) == 5_000_000


def test_a_client_that_reads_may_get_as_much_as_there_is(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_connection, "MAX_UNREAD", 10_000)
    with connected(server) as connection:
        for number in range(50):
            connection.send_bytes(json.dumps({"id": number, "op": "big", "size": 1000}).encode())
            assert len(received(connection)["result"]) == 1000


def test_a_bad_client_that_does_not_read_either(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rpc, "FLUSH_TIMEOUT", 0.05)
    with connected(server) as connection:
        connection.send_bytes(b'{"id": 1, "op": "big", "size": 5000000}')
        eventually(lambda: connection.poll(0), "the hub has begun to answer")
        connection.send_bytes(b"nonsense")
        server.nothing_leaks()


def test_calls_at_a_time(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rpc, "MAX_CALLS", 2)
    with connected(server) as connection:
        for number in (1, 1, 2, 3):
            connection.send_bytes(json.dumps({"id": number, "op": "stay"}).encode())
        refused = [received(connection), received(connection)]
        assert [(one["id"], one["error"]["kind"]) for one in refused] == [(1, "HubError"), (3, "HubError")]
        assert "in use" in refused[0]["error"]["cause"] and "2 calls" in refused[1]["error"]["cause"]
        eventually(lambda: server.staying == 2, "the others go on")
    server.nothing_leaks()


def test_who_does_not_prove_the_key_in_time_is_hung_up_on(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rpc, "AUTHENTICATION_TIMEOUT", 0.05)
    with Client(hub_address()) as silent, Client(hub_address()) as slow:
        os.write(slow.fileno(), b"\x00\x00")  # the beginning of a length
        for connection in (silent, slow):
            connection.recv_bytes()  # the challenge
            with pytest.raises((EOFError, OSError)):
                connection.recv_bytes()
    server.nothing_leaks()


@pytest.mark.parametrize("sent", [b"", b"x" * 256, b"x" * 10_000, b"#CHALLENGE#", b"\xff" * 40])
def test_a_stranger_who_says_anything(server: Server, sent: bytes) -> None:
    with Client(hub_address()) as connection:
        connection.recv_bytes()
        with contextlib.suppress(OSError):
            connection.send_bytes(sent)
            connection.send_bytes(sent)
    server.nothing_leaks()


def test_more_connections_than_there_may_be(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rpc, "MAX_CLIENTS", 2)
    with connected(server), connected(server), pytest.raises((EOFError, OSError)), connected(server):
        pass
    server.nothing_leaks()
    with connected(server) as connection:
        connection.send_bytes(b'{"id": 1, "op": "echo"}')
        assert received(connection) == {"id": 1, "result": {}}


LEAVES = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8)
VALUES = st.recursive(LEAVES, lambda inner: st.lists(inner, max_size=3), max_leaves=6)
MESSAGES = st.binary(max_size=40) | st.dictionaries(
    st.sampled_from(["id", "op", "answer", "asks", "bye", "settings"]),
    VALUES | st.sampled_from(["echo", "fail", "stay", 1]),
    max_size=4,
).map(lambda message: json.dumps(message).encode())


@settings(max_examples=100, deadline=None)
@given(st.lists(MESSAGES, max_size=5))
def test_whatever_a_client_sends(server: Server, messages: list[bytes]) -> None:
    with connected(server) as connection, contextlib.suppress(OSError):
        for message in messages:
            connection.send_bytes(message)
    assert not server.faults


def test_nothing_of_all_that_is_left(server: Server) -> None:
    server.nothing_leaks()


# ------------------------------------------------------------------------------------ the other end


def test_a_client_hears_why_its_message_was_not_taken(server: Server) -> None:
    with HubClient(start=False) as client, pytest.raises(HubError, match="names no operation"):
        client.call("No Operation", timeout=DEADLINE)


def failing(_: dict[str, Any]) -> None:
    raise TypeError("a fault of the caller's")


def test_a_fault_in_a_callers_progress_is_the_callers(server: Server) -> None:
    events: list[dict[str, Any]] = []
    with HubClient(start=False, on_event=events.append) as client:
        with pytest.raises(TypeError, match="of the caller's"):
            client.call("walk", progress=failing, timeout=DEADLINE)
        assert client.call("echo", x=1, timeout=DEADLINE) == {"x": 1}
        assert not client.closed and events == []


def test_a_fault_in_an_events_listener_is_logged(server: Server, caplog: pytest.LogCaptureFixture) -> None:
    with HubClient(start=False, on_event=failing) as client:
        assert [client.call("tell", timeout=DEADLINE) for _ in range(2)] == [{}, {}]
        assert "a fault of the caller's" in caplog.text


class Asker:
    def secret(self, hop: str, prompt: str, secret: object) -> str:
        raise TypeError("no terminal")

    def confirm_host(self, hop: str, fingerprint: str, key_type: str) -> bool:
        return False


def test_a_fault_of_who_is_asked_is_the_callers(server: Server) -> None:
    with HubClient(start=False) as client:
        with pytest.raises(TypeError, match="no terminal"):
            client.call("ask", ask=Asker(), timeout=DEADLINE)
        assert client.call("echo", timeout=DEADLINE) == {}
