"""Messages of a kernel, as they wait for a hub; and the fixture `waiting`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from logs import FiledLog
from runtimes import make

from jupyter_gpu_kernel.agent.kernel_settings import KernelSettings
from jupyter_gpu_kernel.wire.messages import Channel, Message

DEFAULTS = KernelSettings()
NEVER = ("status", "error", "execute_input", "comm_open", "comm_close", "execute_reply")


def message(kind: str, cell: str = "a", **content: Any) -> Message:
    """A message of the kernel's in that cell."""
    channel = Channel.SHELL if kind == "execute_reply" else Channel.IOPUB
    parent = json.dumps({"msg_id": cell}, indent=1 if kind == "stream" else None)  # kernels write both ways
    return Message(channel, 0, make(kind, content, parent.encode()))


def stream(text: str, cell: str = "a", name: str = "stdout") -> Message:
    return message("stream", cell, name=name, text=text)


class Waiting:
    """The messages of a log that wait for a hub. `problems`: what the story has of them."""

    def __init__(self, folder: Path, settings: KernelSettings = DEFAULTS) -> None:
        self.problems: list[str] = []
        self.log = FiledLog(folder, settings, self.problems.append)

    def __bool__(self) -> bool:
        return bool(self.log.file.queue)

    @property
    def size(self) -> int:
        return self.log.file.queue.size

    def put(self, message: Message) -> None:
        self.log.wait(message)
        self.log.flush()

    def take(self) -> list[Message]:
        taken = [Message.decode(data) for data in self.log.take()]
        self.log.flush()
        return taken

    def drain(self) -> list[Message]:
        taken = []
        while self:
            taken += self.take()
        return taken

    def close(self) -> None:
        self.log.close()


def kind_of(message: Message) -> str:
    return "" if message.channel is Channel.KEEPER else str(message.header()["msg_type"])


def printed(messages: list[Message], cell: str = "a", name: str = "stdout") -> str:
    contents = [m.content() for m in messages if kind_of(m) == "stream" and m.parent()["msg_id"] == cell]
    return "".join(content["text"] for content in contents if content["name"] == name)


@pytest.fixture
def waiting(tmp_path: Path) -> Iterator[Waiting]:
    """With small sizes."""
    waiting = Waiting(tmp_path, KernelSettings(journal_memory_mib=0.25, journal_cap_mib=4))
    yield waiting
    waiting.close()
