"""Other users of this machine connect to a kernel's ports."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import sys

import pytest
import zmq
from edges import KEY, Meeting, meet, request
from runtimes import RUNTIME
from waiting import DEADLINE

from jupyter_gpu_kernel.hub.front_end import local_peers
from jupyter_gpu_kernel.hub.front_end.edge import Edge
from jupyter_gpu_kernel.wire.messages import Channel, Message

STRANGER = 61234
PROGRAM = """
import os, socket, sys
uid, port, count, data = int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), bytes.fromhex(sys.argv[4])
if uid != os.getuid():
    os.setgroups([]); os.setgid(uid); os.setuid(uid)
for _ in range(count):
    said = b""
    with socket.socket() as connection:  # nothing is imported any more
        try:
            connection.connect(("127.0.0.1", port))
            connection.sendall(data)
            while b"READY" not in said:
                more = connection.recv(4096)
                if not more:
                    break
                said += more
        except ConnectionError:
            pass
    print("welcome" if b"READY" in said else "refused", flush=True)
"""
"""A user who connects again and again, and says at once all that a client of libzmq says in its handshake."""

tells_users_apart = pytest.mark.skipif(
    not local_peers.available(), reason="only Linux tells whose a connection is"
)
as_root = pytest.mark.skipif(
    not (local_peers.available() and os.geteuid() == 0), reason="only root can act as another user"
)


@tells_users_apart
@pytest.mark.parametrize("family", [socket.AF_INET, socket.AF_INET6])
def test_a_peer_is_found_until_it_closes(family: int) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.socket(family) as client:
        port = server.getsockname()[1]
        try:
            client.connect(("127.0.0.1" if family == socket.AF_INET else "::ffff:127.0.0.1", port))
        except OSError:
            pytest.skip("this machine has no IPv6")
        accepted, peer = server.accept()
        with accepted:
            assert local_peers.query_netlink(peer, server.getsockname()) == os.geteuid()
            assert local_peers.query_netlink(server.getsockname(), ("127.0.0.1", 1)) is None  # it listens
            client.close()
            assert local_peers.query_netlink(peer, server.getsockname()) is None


async def visit(meeting: Meeting, uid: int, channel: str, count: int, identity: bytes = b"") -> list[str]:
    """How a user's connections end."""
    port = str(meeting.edge.connection[f"{channel}_port"])
    data = handshake(b"SUB" if channel == "iopub" else b"DEALER", identity)
    user = await asyncio.create_subprocess_exec(
        sys.executable, "-c", PROGRAM, str(uid), port, str(count), data.hex(), stdout=asyncio.subprocess.PIPE
    )
    printed, _ = await asyncio.wait_for(user.communicate(), DEADLINE)
    return printed.decode().split()


def handshake(kind: bytes, identity: bytes) -> bytes:
    """ZMTP 3.0, without a mechanism that authenticates."""
    greeting = b"\xff" + bytes(8) + b"\x7f\x03\x00" + b"NULL".ljust(20, b"\0") + bytes(32)
    ready = b"\x05READY"
    for name, value in ((b"Socket-Type", kind), (b"Identity", identity)):
        ready += bytes([len(name)]) + name + len(value).to_bytes(4, "big") + value
    return greeting + b"\x04" + bytes([len(ready)]) + ready


@as_root
@pytest.mark.parametrize("channel", ["shell", "stdin", "control", "hb", "iopub"])
def test_other_users_are_refused(channel: str) -> None:
    async def test(meeting: Meeting) -> None:
        assert await visit(meeting, STRANGER, channel, 3) == ["refused"] * 3

    meet(test)


@tells_users_apart
@pytest.mark.parametrize("channel", ["shell", "iopub"])
def test_the_same_user_is_not_refused(channel: str) -> None:
    async def test(meeting: Meeting) -> None:
        assert await visit(meeting, os.geteuid(), channel, 3) == ["welcome"] * 3

    meet(test)


@as_root
def test_another_user_takes_nobodys_replies_and_holds_nobody_up() -> None:
    """With the identity of a client. Meanwhile clients of this user come, of which the newest gets the replies."""

    async def test(meeting: Meeting) -> None:
        async def served(client: zmq.Socket[bytes]) -> None:
            before = len(meeting.received)
            client.send_multipart(asked := request(b"key"))
            await meeting.until(lambda: len(meeting.received) > before)
            meeting.edge.send(Message(Channel.SHELL, 1, tuple(asked[2:])))
            await meeting.until(lambda: client.poll(0))
            header, *parts = client.recv_multipart()[2:]
            assert [json.loads(header)["msg_id"], *parts] == [json.loads(asked[2])["msg_id"], *asked[3:]]

        clients = [meeting.client("shell", identity=b"mine")]
        await served(clients[0])
        strangers = asyncio.create_task(visit(meeting, STRANGER, "shell", 200, b"mine"))
        while not strangers.done():
            await served(clients[-1])
            if len(clients) < 10:
                clients.append(meeting.client("shell", identity=b"mine"))
        assert strangers.result() == ["refused"] * 200
        await served(clients[-1])
        assert not any(client.poll(0) for client in clients)
        assert {message.client for message in meeting.received} == {1}

    meet(test)


@tells_users_apart
def test_sockets_that_are_closed_leave_nothing_behind() -> None:
    """Also those that nobody ever connected to."""

    def descriptors() -> int:
        return len(os.listdir("/proc/self/fd"))

    async def test(meeting: Meeting) -> None:
        before = descriptors()
        for _ in range(20):
            Edge(RUNTIME, dict(KEY), lambda message: None, lambda: None).close()
        await meeting.until(lambda: descriptors() <= before)

    meet(test)


@as_root
def test_a_refusal_is_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    async def test(meeting: Meeting) -> None:
        await visit(meeting, STRANGER, "iopub", 1)

    meet(test)
    assert f"uid {STRANGER}" in caplog.text
