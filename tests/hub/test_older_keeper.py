"""A keeper that an older build of the same protocol started is served: drops, outputs, shutdown.

The fixture is that build's agent, as it was sent to nodes. For each new protocol number another one is added, from
the last build of the one before.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import uuid
from pathlib import Path

import pytest
from fronts import Front
from streams import LoopThread, Node, until, wait_for

from jupyter_gpu_kernel.errors import AgentRefusal
from jupyter_gpu_kernel.hub.kernel.logged_cells import read_logged_cells

pytestmark = [
    pytest.mark.full,
    pytest.mark.skipif(not hasattr(os, "fork"), reason="the agent needs a POSIX system"),
]
AGENTS = sorted((Path(__file__).parent.parent / "fixtures").glob("agent-protocol-*.pyz"))


def start_keeper(node: Node, agent: Path) -> str:
    """As that agent's `attach` would; the kernel's id."""
    kernel_id = uuid.uuid4().hex[:12]
    folder = node.root / "k" / kernel_id
    folder.mkdir(mode=0o700, parents=True)
    settings = {
        "id": kernel_id,
        "gpus": 0,
        "python": sys.executable,
        "name": "test",
        "notebook": "/home/me/a.ipynb",
    }
    (folder / "settings").write_text(json.dumps(settings))
    program = shutil.copy(agent, node.root / agent.name)
    subprocess.run([sys.executable, program, "serve", kernel_id], check=True, env=without_ours(), timeout=60)
    return kernel_id


def without_ours() -> dict[str, str]:
    """The agent is to take its own modules, not this checkout's."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}


@pytest.mark.parametrize("agent", AGENTS, ids=lambda agent: agent.stem)
def test_a_keeper_of_an_older_build_is_served(loop: LoopThread, node: Node, agent: Path) -> None:
    kernel_id = start_keeper(node, agent)
    link = loop.link(node)
    first = loop.kernel(link, kernel_id)
    until(first, "idle")
    with Front(first.edge.connection) as front:
        assert "agent-protocol" in front.run("import gpu_kernel; print(gpu_kernel.__file__)").text
        asked = front.client.execute(
            "import time\nfor i in range(100): print(i, flush=True); time.sleep(0.02)"
        )
        front.until_text(asked, "5\n")
        node.streams[-1].cut()
        assert front.finish(asked).text.split()[-1] == "99"
        assert front.run("1 / 0").reply["status"] == "error"
        assert front.run("treasure = 1").reply["status"] == "ok", "it knows no marks"
    loop.call(first.close)

    def left() -> bool:
        return not loop.run(link.request("list"))["kernels"][0]["attached"]

    wait_for(left, "the keeper to notice that nobody is there")
    again = loop.kernel(link, notebook="/home/me/a.ipynb")
    until(again, "idle")
    assert again.kernel_id == kernel_id
    with Front(again.edge.connection) as front:
        assert "Back on kernel" in str(front.run("treasure").outputs)
        with pytest.raises(AgentRefusal):  # which is told, and breaks nothing
            loop.run(read_logged_cells(link, kernel_id))
        with pytest.raises(AgentRefusal, match="started by an earlier version"):
            loop.run(link.request("priority", kernel=kernel_id, priority=1))
        assert front.control("shutdown_request", restart=False)["status"] == "ok"
    wait_for(lambda: not (node.root / "k" / kernel_id).exists(), "the kernel's end")


def test_there_is_a_fixture() -> None:
    assert AGENTS
