"""A node with GPUs of a practice nvidia-smi, and front ends there: `from practice_gpus import *`."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fronts import Front
from gpu_names import new_uuid
from streams import LoopThread, Node, wait_for

from jupyter_gpu_kernel.hub.kernel.remote_kernel import RemoteKernel
from jupyter_gpu_kernel.hub.node.link import Link

PROGRAMS = Path(__file__).parent / "programs"
AGENT = """import sys
from jupyter_gpu_kernel.agent.gpus import judge
judge.DEFAULT_CRITERIA = judge.Criteria(interval=0.1, wait=(0.6, 0.9))
from jupyter_gpu_kernel.agent.__main__ import main
sys.exit(main(sys.argv[1:]))"""
"""The agent, but cells that wait for a GPU look three times as often whether one is free."""
VISIBLE = "import os; print(os.environ['CUDA_VISIBLE_DEVICES'])"


class Gpus:
    """What the practice nvidia-smi shows: as many GPUs as `report` got. No other test run has their UUIDs."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "gpus.json"
        self.uuids = [new_uuid() for _ in range(4)]
        path = [str(PROGRAMS), str(Path(sys.executable).parent), os.environ["PATH"]]
        self.env = {"PATH": ":".join(path), "FAKE_NVIDIA_STATE": str(self.path)}
        self.report(4)

    def report(self, count: int, **words: Any) -> None:
        """From now on."""
        self.show({"gpus": [{"uuid": name} for name in self.uuids[:count]], **words})

    def show(self, words: dict[str, Any]) -> None:
        """From now on this, in the words of the practice nvidia-smi."""
        new = self.path.with_suffix(".new")
        new.write_text(json.dumps(words))
        new.replace(self.path)


@pytest.fixture(scope="module")
def gpus(tmp_path_factory: pytest.TempPathFactory) -> Gpus:
    return Gpus(tmp_path_factory.mktemp("gpus"))


@pytest.fixture(scope="module")
def node(gpus: Gpus) -> Iterator[Node]:
    with Node(**gpus.env) as node:
        program = node.root / "agent-0"
        program.mkdir()
        (program / "__main__.py").write_text(AGENT)
        node.program = [str(program)]
        yield node


@pytest.fixture(scope="module")
def loop(node: Node) -> Iterator[LoopThread]:
    with LoopThread() as loop:
        yield loop


@pytest.fixture(scope="module")
def link(node: Node, loop: LoopThread) -> Link:
    return loop.link(node)


@pytest.fixture
def stack(loop: LoopThread) -> Iterator[contextlib.ExitStack]:
    with contextlib.ExitStack() as stack:
        yield stack


def open_front(loop: LoopThread, remote: RemoteKernel, stack: contextlib.ExitStack) -> Front:
    """A front end; the kernel is stopped when the test ends."""
    front = stack.enter_context(Front(remote.edge.connection))

    def stop() -> None:
        loop.call(remote.command, "stop")
        wait_for(lambda: remote.ended, "the kernel's end")

    stack.callback(stop)
    return front
