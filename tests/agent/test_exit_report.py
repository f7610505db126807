"""The look for why a kernel ended may take seconds: meanwhile its keeper answers, and does what it is told."""

from __future__ import annotations

import os
from pathlib import Path
from typing import List

import pytest
from contexts import context
from keepers import Hub, Place
from practice_gpus import Gpus
from runtimes import RUNTIME
from waiting import DEADLINE, eventually

from jupyter_gpu_kernel.agent.exit import node_checks
from jupyter_gpu_kernel.agent.exit.report import ExitReport
from jupyter_gpu_kernel.agent.story import read_story
from jupyter_gpu_kernel.agent.system.loop import Loop
from jupyter_gpu_kernel.wire.messages import keeper_message


def test_the_loop_goes_on_while_the_cause_is_looked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """nvidia-smi answers when a later turn of the loop lets it."""
    go = tmp_path / "go"
    program = tmp_path / "nvidia-smi"
    program.write_text(f"#!/bin/sh\nwhile [ ! -e {go} ]; do sleep 0.02; done\necho No devices were found\n")
    program.chmod(0o700)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr(node_checks, "TIMEOUT", DEADLINE)
    loop, reported = Loop(RUNTIME), []  # type: ignore[var-annotated]

    def done(text: str) -> None:
        reported.append(text)
        loop.stop()

    ending = ExitReport(context(loop, tmp_path, id="k1"))
    ending.process_started(os.getpid(), guard=True)
    ending.explain(-11, "", {}, ["GPU-1"], done)
    assert not reported
    loop.later(0, go.touch)
    loop.run()
    assert "no GPU" in reported[0]
    assert [entry["event"] for entry in read_story(tmp_path / "story")] == ["end"]


def test_a_fault_beside_the_loop_is_the_loops() -> None:
    loop = Loop(RUNTIME)
    loop.run_in_thread(lambda: 1 // 0, lambda _: None)
    with pytest.raises(ZeroDivisionError):
        loop.run()


def test_a_guard_that_was_switched_off_is_reported(place: Place) -> None:
    hub = place.start("g1")
    for switch in ("off", "on", "off"):
        assert f"guard {switch}" in hub.run(f"%gpu guard {switch}")
    cell = hub.ask("import os, signal; os.kill(os.getpid(), signal.SIGTERM)")
    assert "ended it (the guard was off)" in hub.reply(cell).content()["evalue"]
    reported = [entry["text"] for entry in place.story("g1", "guard")]
    assert reported == [f"the guard was switched {switch}" for switch in ("off", "on", "off")]
    hub.sock.close()


class Gpu(Gpus):
    """A practice nvidia-smi with one GPU, whose answer the test may keep back."""

    def __init__(self, folder: Path) -> None:
        self.log = folder / "log"
        super().__init__(folder)
        self.mode("ok")

    def mode(self, mode: str) -> None:
        """From now on."""
        self.report(1, log=str(self.log), mode=mode)

    def calls(self) -> int:
        return len(self.log.read_text().splitlines()) if self.log.exists() else 0


@pytest.fixture
def gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Gpu:
    gpu = Gpu(tmp_path)
    for name, value in gpu.env.items():
        monkeypatch.setenv(name, value)
    return gpu


def crashed(hub: Hub, gpu: Gpu) -> str:
    """The cell in which the kernel crashed; nvidia-smi is asked why, and does not answer yet."""
    gpu.mode("wait")
    before = gpu.calls()
    cell = hub.ask("import os; os.abort()")
    eventually(lambda: gpu.calls() > before, "the look for the cause")
    return cell


def test_meanwhile_cells_wait_and_a_restart_is_one(place: Place, gpu: Gpu) -> None:
    hub = place.start("e1", gpus=1)
    assert hub.run("x = 1; print('GPU')").endswith("GPU\n")
    cell = crashed(hub, gpu)
    (row,) = place.handlers.handle({"do": "list"})["kernels"]
    assert row["id"] == "e1" and row["state"] != "unresponsive"
    behind = hub.ask("print('behind')")
    gpu.mode("ok")
    for one in (cell, behind):
        content = hub.reply(one).content()
        assert content["ename"] == "DeadKernelError" and "abort" in content["evalue"]

    hub.tell(keeper_message(do="restart"))
    assert hub.run("print('x' in globals())").endswith("False\n")
    cell = crashed(hub, gpu)
    hub.tell(keeper_message(do="restart"))
    gpu.mode("ok")
    assert hub.run("print('x' in globals(), 2)").endswith("False 2\n")
    assert hub.reply(cell).content()["ename"] == "DeadKernelError"
    events: List[str] = [entry["event"] for entry in place.story("e1")]
    assert events.count("start") == 3 and events.count("end") == 2
    crashed(hub, gpu)
    hub.tell(keeper_message(do="stop", why="enough"))
    gpu.mode("ok")
    hub.leave()
    eventually(lambda: not place.folder("e1").exists(), "the folder's end")
