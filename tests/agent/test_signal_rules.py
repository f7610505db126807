"""What a SIGTERM means and what follows from it, and what makes a kernel be in use: as pure functions."""

from __future__ import annotations

import pytest
from runtimes import Clock

from jupyter_gpu_kernel.agent.in_kernel import usage as usage_module
from jupyter_gpu_kernel.agent.in_kernel.signal_rules import (
    ENDED,
    SURVIVED,
    Sender,
    classify,
    decide,
    sentence,
)
from jupyter_gpu_kernel.agent.in_kernel.usage import Usage


@pytest.mark.parametrize(
    ("pid", "uid", "command", "own", "kind"),
    [
        (0, 0, "", 1000, "container"),
        (7, 0, "containerd-shim", 1000, "container"),
        (7, 0, "slurmstepd", 1000, "scheduler"),
        (7, 1000, "sbatchd", 1000, "scheduler"),
        (7, 61999, "earlyoom", 1000, "memory"),
        (7, 0, "systemd-oomd", 1000, "memory"),
        (1, 0, "systemd", 1000, "system"),
        (7, 1000, "systemd", 1000, "system"),
        (7, 0, "kill", 1000, "root"),
        (7, 0, "kill", 0, "root"),
        (7, 0, "", 1000, "root"),
        (7, 1000, "kill", 1000, "owner"),
        (7, 1001, "kill", 1000, "other"),
    ],
)
def test_senders(pid, uid, command, own, kind):
    assert classify(pid, uid, command, own) == kind


@pytest.mark.parametrize(
    ("kind", "in_use", "since", "action"),
    [
        ("root", True, None, SURVIVED),
        ("root", True, 0.1, SURVIVED),
        ("scheduler", True, 0.1, SURVIVED),
        ("owner", True, None, SURVIVED),
        ("owner", True, 5.0, ENDED),
        ("owner", True, 5.1, SURVIVED),
        ("unknown", True, 0.1, SURVIVED),
        ("memory", True, None, SURVIVED),
        ("memory", True, 10.0, ENDED),
        ("root", False, None, ENDED),
        ("owner", False, None, ENDED),
    ],
)
def test_decisions(kind, in_use, since, action):
    assert decide(kind, in_use, since) == action


def test_sentences():
    kill = Sender("root", 42, 0, "root", "kill")
    assert sentence(kill, "12:03:04", SURVIVED) == (
        "SIGTERM from root (pid 42, kill) at 12:03:04: the kernel stays, the cell goes on."
    )
    assert sentence(kill, "12:03:04", ENDED).endswith("12:03:04: the kernel ends.")
    assert "from 1001 (pid 42) at" in sentence(Sender("other", 42, 1001), "1", SURVIVED)
    by_scheduler = sentence(Sender("scheduler", 1, 0, "root", "slurmd"), "1", SURVIVED)
    assert "SIGKILL usually follows. The cell goes on until then" in by_scheduler
    assert "the kernel stays" not in by_scheduler
    assert sentence(Sender("unknown"), "1", SURVIVED).startswith("SIGTERM from an unknown sender at 1: ")


def test_what_counts_as_use(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(usage_module, "time", clock)
    usage = Usage(linger=2.0)
    assert usage.in_use()  # a fresh kernel
    clock.sleep(2.0)
    assert not usage.in_use()
    with usage.cell("request", by_user=False):
        assert usage.in_use() and usage.visible_cells() == ["request"]
    assert not usage.in_use()
    with usage.cell(None, by_user=False), usage.hold():
        assert usage.in_use() and usage.visible_cells() == []
    assert not usage.in_use()
    with usage.cell("request", by_user=True):
        pass
    assert usage.in_use()
