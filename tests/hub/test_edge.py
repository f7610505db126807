"""The sockets of a front end, met by somebody who does not know its key."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
import zmq
from edges import KEY, Meeting, meet, request
from jupyter_client.session import Session
from runtimes import RUNTIME, make
from waiting import DEADLINE

from jupyter_gpu_kernel.errors import HubError, SettingsError
from jupyter_gpu_kernel.hub.front_end import edge as edge_module
from jupyter_gpu_kernel.hub.front_end.delivered import Clients
from jupyter_gpu_kernel.hub.front_end.edge import Edge
from jupyter_gpu_kernel.wire.messages import Channel, Message


@pytest.mark.parametrize("channel", ["shell", "control", "stdin"])
def test_what_is_not_signed_is_not_received(channel: str) -> None:
    """On any channel; what is signed, and comes behind it, is."""

    async def test(meeting: Meeting) -> None:
        client = meeting.client(channel)
        good = request(b"key", "shutdown_request")
        for bad in (
            request(b"another key"),
            [b"<IDS|MSG>", b"", *good[2:]],
            [b"<IDS|MSG>", good[1][:-1], *good[2:]],
            [*good[:5], b'{"restart": true}'],
            [b"<IDS|MSG>"],
            [b"nothing"],
            good[:5],
            good + [b"buffer"] * 1000,
        ):
            client.send_multipart(bad)
        client.send_multipart([*good, b"buffer"])
        await meeting.until(lambda: meeting.received)
        (message,) = meeting.received
        assert message.channel is Channel[channel.upper()] and message.parts == (*good[2:], b"buffer")

    meet(test)


def test_what_is_signed_twice_comes_from_the_same_client() -> None:
    async def test(meeting: Meeting) -> None:
        for identity in (b"one", b"two", b"one"):
            client = meeting.client("control", identity=identity)
            before = len(meeting.received)
            client.send_multipart(request(b"key"))
            await meeting.until(lambda before=before: len(meeting.received) > before)
            client.close()
        assert [message.client for message in meeting.received] == [1, 2, 1]

    meet(test)


def test_clients_without_end_are_not_served(monkeypatch: pytest.MonkeyPatch) -> None:
    """A number on the wire says which front end it is, and which of its clients."""
    monkeypatch.setattr(edge_module, "_MAX_CLIENTS", 3)

    async def test(meeting: Meeting) -> None:
        for number in range(6):
            meeting.client("shell", identity=b"client %d" % number).send_multipart(request(b"key"))
        again = meeting.client("control", identity=b"client 0")
        await meeting.until(lambda: len(meeting.received) >= 3)
        again.send_multipart(request(b"key"))
        await meeting.until(lambda: any(one.channel is Channel.CONTROL for one in meeting.received))
        assert {message.client for message in meeting.received} <= {1, 2, 3}

    meet(test)


@pytest.mark.parametrize("session", ["", "the kernel's", 'a "b" \\'])
@pytest.mark.parametrize("separators", [(", ", ": "), (",", ":")])
def test_all_messages_to_one_front_end_have_one_session(session: str, separators: tuple[str, str]) -> None:
    """Those of the kernel, of its keeper and of the hub, also after a restart: JupyterLab and VS Code drop others."""
    header = {"msg_id": '"session": "1"', "session": session, "msg_type": "status"}
    sent = json.dumps(header, separators=separators).encode()
    seen: set[str] = set()

    async def test(meeting: Meeting) -> None:
        client = meeting.client("iopub", zmq.SUB)
        client.subscribe(b"")
        await meeting.until(lambda: meeting.subscribed)
        for parts in ((sent, b"{}", b"{}", b"{}", b"buffer"), make("status", {})):
            meeting.edge.send(Message(Channel.IOPUB, 0, parts))
            await meeting.until(lambda: client.poll(0))
            _, frames = Session(key=b"key").feed_identities(client.recv_multipart())
            read = Session(key=b"key").deserialize(frames)["header"]
            seen.add(read["session"])
        assert len(frames) == 5 and read["msg_type"] == "status"

    meet(test)
    meet(test)  # as at the hub after one that was killed
    assert len(seen) == 1 and not seen & {session, ""}


def test_a_flood_of_subscriptions_ends_it_and_others_come_back() -> None:
    async def test(meeting: Meeting) -> None:
        good = meeting.client("iopub", zmq.SUB)
        good.subscribe(b"")
        await meeting.until(lambda: meeting.subscribed)
        flood = meeting.client("iopub", zmq.SUB)
        before = meeting.edge._sockets._sockets.get("iopub")
        for number in range(3000):
            flood.subscribe(b"%d" % number)
        await meeting.until(lambda: meeting.edge._sockets._sockets.get("iopub") is not before)
        flood.close()
        message = Message(Channel.IOPUB, 0, tuple(request(b"key", "status")[2:]))

        def hears() -> bool:  # a client subscribes again when it looks at its socket
            meeting.edge.send(message)
            return bool(good.poll(1))

        await meeting.until(hears)
        assert good.recv_multipart()[-3:] == list(message.parts[1:])

    meet(test)


def test_a_heartbeat_is_answered_and_a_large_one_is_not() -> None:
    async def test(meeting: Meeting) -> None:
        large, small = meeting.client("hb"), meeting.client("hb")
        large.send(bytes(10_000))
        small.send(b"ping")
        assert await asyncio.to_thread(small.poll, DEADLINE * 1000) and small.recv() == b"ping"
        assert not large.poll(0)

    meet(test)


def test_each_heartbeat_is_answered() -> None:
    """Also those that come at once."""

    async def test(meeting: Meeting) -> None:
        client = meeting.client("hb", zmq.DEALER)
        for number in range(250):
            client.send(b"%d" % number)
        for number in range(250):
            assert await asyncio.to_thread(client.poll, DEADLINE * 1000)
            assert client.recv() == b"%d" % number

    meet(test)


def test_a_closed_edge_watches_no_socket() -> None:
    async def test(meeting: Meeting) -> None:
        sockets = meeting.edge._sockets
        descriptors = [bound.socket.FD for bound in sockets._sockets.values()]
        assert len(descriptors) == 5
        sockets.close()
        loop = asyncio.get_running_loop()
        assert not any(map(loop.remove_reader, descriptors)), "one is still watched"

    meet(test)


@pytest.mark.parametrize("connection", [{}, {"key": ""}, {"key": None}])
def test_a_connection_file_without_a_key_is_refused(connection: dict[str, Any]) -> None:
    async def main() -> None:
        with pytest.raises(SettingsError, match="no key") as error:
            Edge(RUNTIME, connection, lambda message: None, lambda: None)
        assert "Session.key" in error.value.remedy

    asyncio.run(main())


@pytest.mark.parametrize("ip", ["0.0.0.0", "192.0.2.1", "::", "*", "example.org"])
def test_an_address_that_others_can_reach_is_refused(ip: str) -> None:
    async def main() -> None:
        with pytest.raises(SettingsError, match="address"):
            Edge(RUNTIME, {**KEY, "ip": ip}, lambda message: None, lambda: None)

    asyncio.run(main())


def encrypted() -> dict[str, Any]:
    public, secret = (key.decode() for key in zmq.curve_keypair())
    return {**KEY, "curve_publickey": public, "curve_secretkey": secret}


def test_an_address_that_others_can_reach_is_allowed_where_all_is_encrypted() -> None:
    async def main() -> None:
        Edge(RUNTIME, {**encrypted(), "ip": "0.0.0.0"}, lambda message: None, lambda: None).close()

    asyncio.run(main())


@pytest.mark.parametrize("connection", [KEY, encrypted()])
@pytest.mark.parametrize("ip", ["::1", "fd00::1"])
def test_an_address_that_jupyters_clients_cannot_use_is_refused(connection: dict[str, Any], ip: str) -> None:
    async def main() -> None:
        with pytest.raises(SettingsError, match="IPv6") as error:
            Edge(RUNTIME, {**connection, "ip": ip}, lambda message: None, lambda: None)
        assert "127.0.0.1" in error.value.remedy

    asyncio.run(main())


def test_an_address_of_another_computer_has_a_remedy_of_its_own() -> None:
    """It is not the port that is wrong."""

    async def main() -> None:
        with pytest.raises(HubError, match=r"192\.0\.2\.1") as error:
            Edge(RUNTIME, {**encrypted(), "ip": "192.0.2.1"}, lambda message: None, lambda: None)
        assert "address of this computer" in error.value.remedy

    asyncio.run(main())


def test_what_is_for_a_client_of_a_killed_hub_waits_until_the_client_has_connected(tmp_path: Path) -> None:
    """ZeroMQ would drop it, as nobody of that name is connected."""

    async def test(meeting: Meeting) -> None:
        clients = Clients(tmp_path / "clients")
        clients.add(b"notebook")
        edge = Edge(RUNTIME, dict(KEY), lambda message: None, lambda: None, clients, known=True)
        meeting.edge.close()
        meeting.edge = edge
        question = Message(Channel.STDIN, 1, make("input_request", {"prompt": "? "}))
        assert not edge.has_room(question)
        edge.send(question)
        stdin = meeting.client("stdin", identity=b"notebook")
        meeting.client("iopub", zmq.SUB).subscribe(b"")
        await meeting.until(lambda: stdin.poll(0))
        assert stdin.recv_multipart()[-1] == question.parts[3]
        assert edge.has_room(question)

    meet(test)


def test_a_client_of_a_killed_hub_that_does_not_read_iopub_gets_its_replies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is on iopub still waits until the client subscribes."""
    monkeypatch.setattr(edge_module, "SUBSCRIBE_TIMEOUT", 2.0)

    async def test(meeting: Meeting) -> None:
        clients = Clients(tmp_path / "clients")
        clients.add(b"notebook")
        edge = Edge(RUNTIME, dict(KEY), lambda message: None, lambda: None, clients, known=True)
        meeting.edge.close()
        meeting.edge = edge
        shell = meeting.client("shell", identity=b"notebook")
        output = Message(Channel.IOPUB, 0, make("stream", {"name": "stdout", "text": "1"}))
        replies = [Message(Channel.SHELL, 1, make("execute_reply", {"execution_count": n})) for n in (1, 2)]
        for message in (output, replies[0]):
            edge.send(message)
        await meeting.until(lambda: shell.poll(0))
        edge.send(replies[1])
        for reply in replies:
            await meeting.until(lambda: shell.poll(0))
            assert shell.recv_multipart()[-1] == reply.parts[3]
        iopub = meeting.client("iopub", zmq.SUB)
        iopub.subscribe(b"")
        await meeting.until(lambda: iopub.poll(0))
        assert iopub.recv_multipart()[-1] == output.parts[3]

    meet(test)
