"""Messages of a kernel, as they wait in a backlog; and the fixture `backlog`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from runtimes import RUNTIME, make

from jupyter_gpu_kernel.agent.kernel_settings import KernelSettings
from jupyter_gpu_kernel.agent.relay.output.backlog import Backlog
from jupyter_gpu_kernel.wire.messages import Channel, Message

NEVER = ("status", "error", "execute_input", "comm_open", "comm_close", "execute_reply")


def message(kind: str, cell: str = "a", **content: Any) -> Message:
    """A message of the kernel's in that cell."""
    channel = Channel.SHELL if kind == "execute_reply" else Channel.IOPUB
    parent = json.dumps({"msg_id": cell}, indent=1 if kind == "stream" else None)  # kernels write both ways
    return Message(channel, 0, make(kind, content, parent.encode()))


def stream(text: str, cell: str = "a", name: str = "stdout") -> Message:
    return message("stream", cell, name=name, text=text)


def drain(backlog: Backlog) -> list[Message]:
    taken = []
    while backlog:
        taken += [Message.decode(data) for data in backlog.take()]
    return taken


def kind_of(message: Message) -> str:
    return "" if message.channel is Channel.KEEPER else str(message.header()["msg_type"])


def printed(messages: list[Message], cell: str = "a", name: str = "stdout") -> str:
    contents = [m.content() for m in messages if kind_of(m) == "stream" and m.parent()["msg_id"] == cell]
    return "".join(content["text"] for content in contents if content["name"] == name)


@pytest.fixture
def backlog(tmp_path: Path) -> Iterator[Backlog]:
    """With small sizes."""
    backlog = Backlog(RUNTIME, [tmp_path], KernelSettings(journal_memory_mib=0.25, journal_cap_mib=4))
    yield backlog
    backlog.close()
