"""Processes of kernels that no longer exist, as `gpus` shows and `stop --leftovers` ends them, over two hops."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from remote import Remote
from repositories import Repository
from runtimes import RUNTIME
from waiting import DEADLINE

from jupyter_gpu_kernel.agent.paths import Root
from jupyter_gpu_kernel.agent.pinned_code.checkout import Checkouts

pytestmark = pytest.mark.full


@pytest.fixture()
def leftover(remote: Remote) -> Iterator[subprocess.Popen[bytes]]:
    """What a killed keeper and kernel left; the practice nvidia-smi shows it on a GPU."""
    remote.program("ps")  # installs the agent
    (root,) = remote.base.glob("jupyter-gpu-kernel-*")
    env = dict(os.environ, JUPYTER_GPU_KERNEL_ID="past", JUPYTER_GPU_KERNEL_ROOT=str(root))
    state = remote.folder / "gpus.json"
    before = state.read_text()
    with subprocess.Popen([sys.executable, "-c", "input()"], env=env, stdin=subprocess.PIPE) as process:
        gpus = json.loads(before)
        gpus["gpus"][1]["processes"] = [{"pid": process.pid, "memory": 500, "name": "python"}]
        state.with_suffix(".new").write_text(json.dumps(gpus))
        state.with_suffix(".new").replace(state)
        yield process
        process.kill()
    state.with_suffix(".new").write_text(before)
    state.with_suffix(".new").replace(state)


NOTHING = {"ended": [], "code": [], "errors": []}


def rows(ran: subprocess.CompletedProcess[str]) -> Any:
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout)


def test_shown_by_gpus_and_ended_by_stop(remote: Remote, leftover: subprocess.Popen[bytes]) -> None:
    shown = [row for row in rows(remote.program("gpus", "cpu", "--json")) if row["leftovers"]]
    assert [row["uuid"] for row in shown] == remote.free[:1]
    assert [(one["pid"], one["kernel"]) for one in shown[0]["leftovers"]] == [(leftover.pid, "past")]
    assert "left over from kernel past" in remote.program("gpus", "cpu").stdout

    ended = remote.program("stop", "--leftovers")
    assert ended.returncode == 0, ended.stderr
    assert str(leftover.pid) in ended.stdout.splitlines()[1] and f"Ended: {leftover.pid}" in ended.stdout
    assert leftover.wait(DEADLINE) < 0
    assert rows(remote.program("stop", "--leftovers", "--json")) == NOTHING


def test_a_node_ends_what_it_listed_itself(
    remote: Remote, leftover: subprocess.Popen[bytes], spec: list[dict[str, Any]]
) -> None:
    """The others may list a process of this one."""
    (row,) = remote.ask("leftovers", specs=spec)
    forged = [{**row, "node": "another"}]
    assert remote.ask("end_leftovers", specs=spec, leftovers=forged) == [] and leftover.poll() is None
    assert [one["pid"] for one in remote.ask("end_leftovers", specs=spec, leftovers=[row])] == [leftover.pid]


def test_pinned_code_is_removed_unless_it_was_changed(
    remote: Remote, monkeypatch: pytest.MonkeyPatch
) -> None:
    remote.program("ps")  # installs the agent
    (root,) = remote.base.glob("jupyter-gpu-kernel-*")
    monkeypatch.setenv("HOME", str(remote.hops.work.home))
    repository = Repository(remote.hops.work.home / "project")
    checkouts = Checkouts(RUNTIME, Root(root))
    one, two = (checkouts.make(kernel, str(repository.path), "HEAD") for kernel in ("past-1", "past-2"))
    (Path(two.tree) / "results").write_text("1")

    stopped = remote.program("stop", "--leftovers")
    assert stopped.returncode == 0, stopped.stderr
    ended, _, removed, kept = map(str.split, stopped.stdout.splitlines())
    assert ended == ["Ended:", "none"]
    assert removed[1:] == ["past-1", "removed", one.tree]
    assert (kept[1], kept[2], kept[-1]) == ("past-2", "kept:", two.tree)
    (Path(two.tree) / "results").unlink()
    (row,) = rows(remote.program("stop", "--leftovers", "--json"))["code"]
    assert (row["kernel"], row["folder"], row["kept"]) == ("past-2", two.tree, "")
    assert rows(remote.program("stop", "--leftovers", "--json")) == NOTHING
    assert not Path(one.tree).parent.exists() and not Path(two.tree).parent.exists()
