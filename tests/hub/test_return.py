"""Leaving and coming back: the same notebook finds its kernel, hears what happened, and sees what it missed."""

from __future__ import annotations

import os

import pytest
from streams import Front, LoopThread, Node, until, wait_for

from jupyter_gpu_kernel.hub.kernels import RemoteKernel
from jupyter_gpu_kernel.hub.link import Link

STATUSES = "[cell['status'] for cell in gpu_kernel.missed()]"
pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="the agent needs a POSIX system")


def start(loop: LoopThread, link: Link, notebook: str, name: str = "gpu2", key: str = "key") -> RemoteKernel:
    remote = loop.kernel(link, key=key, notebook=notebook, name=name)
    until(remote, "idle", "busy")
    return remote


def detached(loop: LoopThread, link: Link, kernel_id: str) -> None:
    def gone() -> bool:
        states = loop.run(link.request("list"))["kernels"]
        return any(state["id"] == kernel_id and not state["attached"] for state in states)

    wait_for(gone, "the keeper to notice that nobody is attached")


def test_the_same_notebook_returns_to_its_kernel_and_is_told_what_happened(
    loop: LoopThread, link: Link, node: Node
) -> None:
    first = start(loop, link, "/home/me/a.ipynb")
    with Front(first.edge.connection) as front:
        front.run("treasure = 42")
        request = front.client.execute("import time\nfor i in range(20): print(i); time.sleep(0.05)\n'done'")
        front.until_text(request, "3")
    loop.call(first.close)  # the server is gone, the cell runs on
    detached(loop, link, first.kernel_id)

    again = start(loop, link, "/home/me/a.ipynb", key="another key")
    assert again.kernel_id == first.kernel_id
    with Front(again.edge.connection) as front:
        cell = front.run("treasure")
        greeting = str(cell.outputs)
        assert f"Back on kernel {first.kernel_id}" in greeting and "42" in greeting
        assert "'Back on" not in str(front.run("1").outputs), "said once"
        front.run("import gpu_kernel")
        wait_for(lambda: "'ok'" in str(front.run(STATUSES).outputs), "the cell to end")
        shown = front.run("%gpu missed")
        numbers = [int(word) for word in shown.text.split() if word.isdigit()]
        assert numbers == list(range(numbers[0], 20)), "what was not heard before, in order and once"
        assert "'done'" in str(shown.outputs)
        assert "Nothing was missed" in front.run("%gpu missed").text
    assert "back in /home/me/a.ipynb" in node.story(first.kernel_id)


@pytest.mark.parametrize(
    ("notebook", "name"), [("/home/me/b.ipynb", "gpu2"), ("/home/me/a.ipynb", "other"), ("", "gpu2")]
)
def test_others_get_a_kernel_of_their_own(loop: LoopThread, link: Link, notebook: str, name: str) -> None:
    first = start(loop, link, "/home/me/a.ipynb" if notebook else "")
    loop.call(first.close)
    detached(loop, link, first.kernel_id)
    second = start(loop, link, notebook, name)
    assert second.kernel_id != first.kernel_id


def test_a_kernel_that_somebody_has_is_not_taken_over(loop: LoopThread, link: Link) -> None:
    first = start(loop, link, "/home/me/c.ipynb")
    second = start(loop, link, "/home/me/c.ipynb")
    assert second.kernel_id != first.kernel_id


def test_an_idle_kernel_that_nobody_is_attached_to_ends_and_says_why(
    loop: LoopThread, link: Link, node: Node
) -> None:
    remote = loop.kernel(link, idle_timeout=2, idle_timeout_attached=60)
    until(remote, "idle")
    loop.call(remote.close)
    wait_for(lambda: "idle for" in node.story(remote.kernel_id), "the idle clock")
    wait_for(lambda: not (node.root / "k" / remote.kernel_id).exists(), "its end")
