"""What a kernel keeps for the successor of a killed keeper."""

from __future__ import annotations

import json
from typing import Any

from jupyter_gpu_kernel.agent.in_kernel import unread_messages
from jupyter_gpu_kernel.agent.in_kernel.unread_messages import LastReplies, UnreadOutput
from jupyter_gpu_kernel.agent.read_marks import DELIMITER


class Output:
    """The output of a kernel: `sent` is what its socket was given; `run` lets iopub's thread do what is scheduled."""

    def __init__(self) -> None:
        self.sent: list[str] = []
        self.scheduled: list[Any] = []
        self.unread = UnreadOutput()
        self.unread.bind(self.scheduled.append)
        self._total = 0

    def send(self, text: str, session: str = "front end", msg_type: str = "stream") -> None:
        headers = [json.dumps({"msg_type": msg_type}), json.dumps({"session": session})]
        frames = [b"topic", DELIMITER, b"", *map(str.encode, headers), b"{}", text.encode()]
        self._total += 1
        self.unread.send(self._total, frames, lambda: self.sent.append(text))

    def run(self) -> list[str]:
        """Return what was sent since the last call."""
        for function in self.scheduled:
            function()
        sent, self.sent[:], self.scheduled[:] = list(self.sent), [], []
        return sent


def test_messages_are_held_while_there_is_no_keeper() -> None:
    output = Output()
    output.unread.keep()
    output.send("before")
    output.unread.hold()
    output.send("1")
    output.send("the keeper's status", "keeper", "status")
    output.send("of a thread", "keeper")
    output.send('displays "session": "keeper"')
    assert output.run() == ["before", "the keeper's status"]
    output.unread.release()
    output.unread.hold()  # it was killed before iopub's thread had sent anything
    output.send("2")
    assert output.run() == []
    output.unread.release()
    output.unread.release()  # it says so twice
    output.send("3")
    assert output.run() == ["1", "of a thread", 'displays "session": "keeper"', "2", "3"]
    output.unread.hold()
    output.send("for nobody")
    output.unread.drop()
    output.send("4")
    output.unread.release()
    assert output.run() == ["4"]


def reply(client: int, text: str, session: str = "front end") -> list[bytes]:
    parts = [b"{}", json.dumps({"session": session}).encode(), b"{}", json.dumps({"text": text}).encode()]
    return [b"identity", b"%d" % client, DELIMITER, b"signature", *parts]


class Socket:
    """A socket that takes everything."""

    def send_multipart(self, frames: list[Any], flags: int = 0) -> int:
        return flags


def texts(replies: LastReplies) -> list[Any]:
    return [json.loads(one["parts"][3])["text"] for one in replies.to_json()]


def test_the_last_replies_are_kept() -> None:
    replies = LastReplies()
    send = replies.socket_members(Socket)["send_multipart"]
    assert send(Socket(), reply(7, "first"), flags=3) == 3
    send(Socket(), list(map(memoryview, reply(8, "second"))))
    send(Socket(), reply(0, "the keeper's own", "keeper"))
    assert [one["client"] for one in replies.to_json()] == ["7", "8"]
    assert texts(replies) == ["first", "second"]
    for number in range(5):
        send(Socket(), reply(1, f"{number}" * (unread_messages.MAX_REPLIES // 3)))
    assert [text[0] for text in texts(replies)] == ["3", "4"]
    send(Socket(), reply(1, "x" * 2 * unread_messages.MAX_REPLIES))
    assert len(texts(replies)) == 1
