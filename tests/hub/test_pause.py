"""A kernel is paused when its hub has left, and goes on when that is taken back."""

from __future__ import annotations

import os

import psutil
import pytest
from streams import wait_for
from successions import *  # noqa: F403 (its fixture)
from successions import Kernel, loops

pytestmark = [
    pytest.mark.full,
    pytest.mark.skipif(not hasattr(os, "fork"), reason="the agent needs a POSIX system"),
]


def test_a_pause_begins_when_the_keeper_has_noticed_that_the_hub_left(kernel: Kernel) -> None:
    """The request has a socket of its own, which may be read before the end of the other one."""
    code, stop = loops(kernel.node)
    request = kernel.front.client.execute(code)
    kernel.front.until_text(request, "3\n")
    pause = {"do": "pause", "kernel": kernel.remote.kernel_id}
    kernel.node.handlers.handle(pause)
    assert not kernel.story("pause")
    kernel.node.pull()
    wait_for(lambda: psutil.Process(kernel.pid).status() == psutil.STATUS_STOPPED, "the pause")
    kernel.node.handlers.handle(dict(pause, do="resume"))
    kernel.node.plugged = True
    stop.touch()
    assert kernel.front.finish(request).reply["status"] == "ok"


def test_a_pause_that_was_taken_back_does_not_begin(kernel: Kernel) -> None:
    """However often it was asked for."""
    code, stop = loops(kernel.node)
    request = kernel.front.client.execute(code)
    kernel.front.until_text(request, "3\n")
    pause = {"do": "pause", "kernel": kernel.remote.kernel_id}
    for do in ("pause", "pause", "resume"):
        kernel.node.handlers.handle(dict(pause, do=do))
    kernel.node.pull()
    wait_for(lambda: kernel.story("drop"), "the drop")
    kernel.node.plugged = True
    stop.touch()
    assert kernel.front.finish(request).reply["status"] == "ok"
    assert not kernel.story("pause")


def test_a_pause_leaves_no_process_behind(kernel: Kernel) -> None:
    code, stop = loops(kernel.node)
    request = kernel.front.client.execute(code)
    kernel.front.until_text(request, "3\n")
    keeper = psutil.Process(kernel.keeper)
    before = {child.pid for child in keeper.children()}
    kernel.node.pull()
    pause = {"do": "pause", "kernel": kernel.remote.kernel_id}
    wait_for(lambda: kernel.node.handlers.handle(pause) and kernel.story("pause"), "the pause")
    (child,) = [child for child in keeper.children() if child.pid not in before]
    child.terminate()  # as a scheduler does, which ends everything
    kernel.node.handlers.handle(dict(pause, do="resume"))
    assert not child.is_running() and {child.pid for child in keeper.children()} == before
    kernel.node.plugged = True
    stop.touch()
    assert kernel.front.finish(request).reply["status"] == "ok"
