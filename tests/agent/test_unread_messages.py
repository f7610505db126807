"""What a kernel keeps for the successor of a killed keeper."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import zmq
from waiting import DEADLINE
from zmq.utils.monitor import recv_monitor_message

from jupyter_gpu_kernel.agent.in_kernel import unread_messages
from jupyter_gpu_kernel.agent.in_kernel.output_window import OutputWindow
from jupyter_gpu_kernel.agent.in_kernel.unread_messages import LastReplies, UnreadMessages
from jupyter_gpu_kernel.agent.kernel_protocol import DELIMITER, read_mark

DEADLINE_MS = int(DEADLINE * 1000)


class Output:
    """The output of a kernel. `run` lets iopub's thread do what is scheduled; `marks` has what its socket was given."""

    def __init__(self) -> None:
        self.marks: dict[str, int | None] = {}
        self.window = OutputWindow()
        self.unread = self.window.unread
        self.unread.bind(lambda function: self._scheduled.append(function))
        self._scheduled: list[Any] = []
        self._sent: list[str] = []

    def send(self, text: str, session: str = "front end", msg_type: str = "stream") -> None:
        headers = [json.dumps({"msg_type": msg_type}), json.dumps({"session": session})]
        content = json.dumps({"text": text, "execution_state": "idle"})
        frames = [DELIMITER, b"", *map(str.encode, headers), b"{}", content.encode()]

        def send(frames: Sequence[Any]) -> None:
            self._sent.append(text)
            self.marks[text] = read_mark(frames[0])

        self.window.send(frames, send)

    def run(self) -> list[str]:
        """Return what was sent since the last call."""
        for function in self._scheduled:
            function()
        sent, self._sent, self._scheduled = self._sent, [], []
        return sent


def test_what_the_keeper_has_not_read_is_sent_to_its_successor() -> None:
    """Nothing is sent while there is no keeper, but statuses by which the successor notices that it receives."""
    output = Output()
    output.send("for nobody: this kernel has no keeper")
    output.unread.keep()
    output.send("read", msg_type="status")
    output.send("unread")
    output.send("status", msg_type="status")
    output.window.read(output.marks["read"] or 0)
    assert output.run() == ["for nobody: this kernel has no keeper", "read", "unread", "status"]
    assert not output.marks["unread"] and output.marks["status"]
    output.unread.hold()
    output.send("1")
    output.send("the keeper's status", "keeper", "status")
    output.send("of a thread", "keeper")
    output.send('displays "session": "keeper"')
    assert output.run() == ["the keeper's status"]
    assert not output.marks["the keeper's status"], "what was published before has not been sent"
    output.unread.release()
    output.unread.hold()  # it was killed before iopub's thread had sent anything
    output.send("2")
    assert output.run() == []
    output.unread.release()
    output.unread.release()  # it says so twice
    output.send("3")
    kept = ["unread", "status", "1", "of a thread", 'displays "session": "keeper"', "2", "3"]
    assert output.run() == kept
    output.unread.hold()  # it was killed, too, and had read nothing
    output.unread.release()
    assert output.run() == kept
    output.unread.hold()
    output.send("4")
    output.unread.drop()
    output.send("5")
    output.unread.release()
    assert output.run() == ["5"]


def reply(client: int, text: str, session: str = "front end") -> list[bytes]:
    parts = [b"{}", json.dumps({"session": session}).encode(), b"{}", json.dumps({"text": text}).encode()]
    return [b"identity", b"%d" % client, DELIMITER, b"signature", *parts]


class Socket:
    """A socket that takes everything."""

    def send_multipart(self, frames: list[Any], flags: int = 0) -> int:
        return flags


def texts(replies: LastReplies) -> list[Any]:
    return [json.loads(content)["text"] for *_, content in replies.to_json()]


def test_the_last_replies_are_kept() -> None:
    replies = LastReplies(b"keeper")
    send = replies.socket_members(Socket)["send_multipart"]
    assert send(Socket(), reply(7, "first"), flags=3) == 3
    send(Socket(), list(map(memoryview, reply(8, "second"))))
    send(Socket(), reply(0, "the keeper's own", "keeper"))
    assert [reply[0] for reply in replies.to_json()] == ["7", "8"]
    assert texts(replies) == ["first", "second"]
    for number in range(5):
        send(Socket(), reply(1, f"{number}" * (unread_messages.MAX_REPLIES // 3)))
    assert [text[0] for text in texts(replies)] == ["3", "4"]
    send(Socket(), reply(1, "x" * 2 * unread_messages.MAX_REPLIES))
    assert len(texts(replies)) == 1


def test_a_request_of_a_killed_keeper_is_answered_to_its_successor(tmp_path: Path) -> None:
    """The kernel was busy when it came, and reads it when the successor has connected."""
    unread, place = UnreadMessages(b"keeper"), f"ipc://{tmp_path / 'shell'}"
    answering = type("Answering", (zmq.Socket,), unread.shell.socket_members(zmq.Socket))
    with zmq.Context() as context, context.socket(zmq.ROUTER) as kernel:
        kernel.router_handover = True
        kernel.bind(place)
        events = kernel.get_monitor_socket(zmq.EVENT_HANDSHAKE_SUCCEEDED | zmq.EVENT_DISCONNECTED)
        events.rcvtimeo = DEADLINE_MS
        with connect_keeper(context, place, b"1", b"2"):
            assert kernel.poll(DEADLINE_MS)
        recv_monitor_message(events), recv_monitor_message(events)
        kernel.__class__ = answering
        with connect_keeper(context, place, b"3") as successor:
            recv_monitor_message(events)
            for _ in range(3):
                assert kernel.poll(DEADLINE_MS)
                kernel.send_multipart(kernel.recv_multipart())
            assert {successor.recv_multipart()[0] for _ in range(3)} == {b"1", b"2", b"3"}
        kernel.disable_monitor()
        events.close()
    assert {reply[0] for reply in unread.replies()["shell"]} == {"1", "2", "3"}


def connect_keeper(context: zmq.Context[Any], place: str, *clients: bytes) -> zmq.Socket[bytes]:
    """Return a socket of a keeper, which has sent a request of each client."""
    socket = context.socket(zmq.DEALER)
    socket.identity, socket.rcvtimeo, socket.linger = b"keeper", DEADLINE_MS, 1000
    socket.connect(place)
    for client in clients:
        socket.send_multipart([client, DELIMITER, b"signature", *[b"{}"] * 4])
    return socket
