"""What no hub of ours asks attach for, and what no keeper of ours answers: an error, and the others are served."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import threading
from typing import Iterator, List

import pytest
from keepers import Place
from malformed import NO_OBJECTS
from waiting import DEADLINE

from jupyter_gpu_kernel.agent.refused import Refused
from jupyter_gpu_kernel.wire import PROTOCOL
from jupyter_gpu_kernel.wire.stream.frames import MAGIC, Frame, FrameReader, Kind, json_frame


@pytest.fixture
def attach(place: Place) -> Iterator[subprocess.Popen[bytes]]:
    process = place.attach()
    assert process.stdin and process.stdout
    assert process.stdout.read(len(MAGIC)) == MAGIC
    yield process
    process.stdin.close()
    process.wait(DEADLINE)
    process.stdout.close()


def answers(process: subprocess.Popen[bytes], *frames: Frame) -> List[Frame]:
    """What attach says until it has answered a ping after them."""
    assert process.stdin and process.stdout
    for frame in (*frames, Frame(Kind.PING, number=99)):
        process.stdin.write(frame.encode())
    reader, got = FrameReader(greeting=False), []
    wanted = sum(frame.kind is Kind.REQUEST for frame in frames)
    while True:
        data = os.read(process.stdout.fileno(), 1 << 16)
        assert data, "attach has ended"
        got += reader.feed(data)
        replies = [frame for frame in got if frame.kind is Kind.REPLY]
        if len(replies) == wanted and Frame(Kind.PONG, number=99) in got:
            return got


NO_REQUESTS = [
    *NO_OBJECTS,
    b"{}",
    b'{"do": 5}',
    b'{"do": "open"}',
    b'{"do": "open", "kernel": "k", "attachment": 4294967296}',
    b'{"do": "open", "kernel": "../..", "attachment": 1}',
    b'{"do": "open", "kernel": {}, "attachment": 1}',
    b'{"do": "open", "kernel": "k", "attachment": 1, "create": 7}',
    b'{"do": "story"}',
    b'{"do": "journal", "kernel": 3}',
    b'{"do": "stop", "kernel": []}',
    b'{"do": "take_detached", "notebook": [], "name": {}}',
    b'{"do": "end_leftovers", "leftovers": "all"}',
]


def test_attach_answers_what_is_no_request(attach: subprocess.Popen[bytes]) -> None:
    sent = [Frame(Kind.REQUEST, number=number, payload=payload) for number, payload in enumerate(NO_REQUESTS)]
    replies = {frame.number: frame.json() for frame in answers(attach, *sent) if frame.kind is Kind.REPLY}
    for number, payload in enumerate(NO_REQUESTS):
        reply = replies[number]
        assert "error" in reply or reply["kernel"] == "", payload[:80]


def test_attach_passes_on_only_what_is_for_keepers(attach: subprocess.Popen[bytes]) -> None:
    sent = [Frame(kind, 5, 1) for kind in (Kind.HELLO, Kind.DATA, Kind.REPLY, Kind.PONG, Kind.ACK)]
    assert [frame.kind for frame in answers(attach, *sent)].count(Kind.CLOSE) == 3


class Fake:
    """A keeper's socket behind which somebody else answers; `received`: the frames that came."""

    def __init__(self, place: Place, kernel_id: str, answer: bytes) -> None:
        self.received: List[Frame] = []
        self._answer = answer
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        place.handlers.root.make_kernel(kernel_id)
        self._listener.bind(str(place.folder(kernel_id) / "keeper"))
        self._listener.listen(16)
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                thread = threading.Thread(target=self._serve, args=self._listener.accept()[:1])
                self._threads.append(thread)
                thread.start()

    def _serve(self, sock: socket.socket) -> None:
        reader = FrameReader(greeting=False)
        with sock, contextlib.suppress(ConnectionError):
            while True:
                data = sock.recv(1 << 16)
                if not data:
                    return
                self.received += reader.feed(data)
                sock.sendall(self._answer)

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(DEADLINE)
        self._listener.close()


def test_a_keeper_of_another_protocol_is_left_alone(place: Place) -> None:
    """Refused by a code, before anybody is thrown out; a return does not take it either."""
    status = {"protocol": PROTOCOL + 1, "id": "k8", "state": "idle", "notebook": "/n.ipynb", "name": "gpu"}
    fake = Fake(place, "k8", json_frame(Kind.REPLY, status, number=1).encode())
    try:
        for request in ({}, {"attach": {}}, {"create": {"gpus": 0}}):
            with pytest.raises(Refused, match="another version") as refused:
                place.handlers.open("k8", request)
            assert refused.value.code == "protocol"
        left = place.handlers.handle({"do": "take_detached", "notebook": "/n.ipynb", "name": "gpu"})
        assert left == {"kernel": ""}
        asked = [frame.json()["do"] for frame in fake.received if frame.kind is Kind.REQUEST]
        assert set(asked) <= {"owner", "status"} and len(asked) == len(fake.received)
    finally:
        fake.close()


@pytest.mark.parametrize("answer", [b"\xff" * 64, Frame(Kind.REPLY, number=1, payload=b"[]").encode()])
def test_a_keeper_that_answers_nonsense_is_none(place: Place, answer: bytes) -> None:
    """The others are listed."""
    fake = Fake(place, "k9", answer)
    try:
        assert place.handlers.handle({"do": "list"}) == {"kernels": []}
    finally:
        fake.close()
