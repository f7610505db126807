"""Run a cell through a jupyter_client client, as tests do it: code in, everything the front end saw out."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any, NamedTuple

from jupyter_client.blocking.client import BlockingKernelClient
from jupyter_client.manager import KernelManager
from remote import Remote
from waiting import DEADLINE


class Ran(NamedTuple):
    """One cell: its reply's content, and the iopub messages of it, in order."""

    reply: dict[str, Any]
    messages: list[dict[str, Any]]

    @property
    def text(self) -> str:
        """What it printed."""
        streams = self.of("stream")
        return "".join(content["text"] for content in streams if content["name"] == "stdout")

    def of(self, msg_type: str) -> list[dict[str, Any]]:
        """The contents of its messages of one type."""
        return [message["content"] for message in self.messages if message["msg_type"] == msg_type]


def run(client: BlockingKernelClient, code: str, **more: Any) -> Ran:
    """Returns once the reply and the idle status are there."""
    messages: list[dict[str, Any]] = []
    reply = client.execute_interactive(code, timeout=DEADLINE, output_hook=messages.append, **more)
    return Ran(reply["content"], messages)


def connect(manager: KernelManager) -> BlockingKernelClient:
    """A client that has heard from the kernel."""
    client: BlockingKernelClient = manager.client()
    client.start_channels()
    client.wait_for_ready(timeout=DEADLINE)
    return client


@contextlib.contextmanager
def started(remote: Remote, spec: str, **more: Any) -> Iterator[tuple[KernelManager, BlockingKernelClient]]:
    """A manager with a running kernel, and its client; shut down at the end."""
    manager = KernelManager(kernel_name=spec, **more)
    manager.start_kernel(env=remote.program_environment())
    client: BlockingKernelClient = manager.client()
    try:
        client.start_channels()
        client.wait_for_ready(timeout=DEADLINE)
        yield manager, client
    finally:
        client.stop_channels()
        manager.shutdown_kernel()


def wait_for(client: BlockingKernelClient, msg_type: str, **content: Any) -> dict[str, Any]:
    """The next iopub message of this type with this content."""
    while True:
        message: dict[str, Any] = client.get_iopub_msg(timeout=DEADLINE)
        if message["msg_type"] == msg_type and content.items() <= message["content"].items():
            return message


def printing(client: BlockingKernelClient, remote: Remote) -> str:
    """A cell that prints numbers until a file is there; its message id."""
    stop = remote.folder / "stop"
    stop.unlink(missing_ok=True)
    asked: str = client.execute(
        f"import os, time\nn = 0\nwhile not os.path.exists({str(stop)!r}):\n"
        "    print(n, flush=True)\n    n += 1\n    time.sleep(0.01)\nprint('end', n)"
    )
    wait_for(client, "stream")
    return asked


def all_it_printed(client: BlockingKernelClient, asked: str, *, repeated: int = 0) -> str:
    """The text that the cell prints from now on. So many messages may come twice: those that a hub sent and did not
    count before it was killed. The client's session rejects them the second time."""
    text = ""
    while True:
        try:
            message = client.get_iopub_msg(timeout=DEADLINE)
        except ValueError as error:
            if "Duplicate Signature" not in str(error) or not repeated:
                raise
            repeated -= 1
            continue
        if message["parent_header"].get("msg_id") != asked:
            continue
        text += message["content"].get("text", "")
        if message["content"].get("execution_state") == "idle":
            return text
