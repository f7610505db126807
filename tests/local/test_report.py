"""The report of `check --report`: it has what helps, and nobody's name, address or secret."""

from __future__ import annotations

import getpass
import socket

from jupyter_gpu_kernel.cli.show.report import report
from jupyter_gpu_kernel.wire.kernel_settings import KernelSettings

SETTINGS = KernelSettings(
    route=("alice@login.lab.example.org:7092", "gpu2"),
    python="/home/alice/envs/ml/bin/python",
    transport="ssh",
    setup=("export TOKEN=hunter2",),
    env={"PLACE": "bay-17"},
    cwd="/home/alice/secret-project",
    gpus=2,
)
STEPS = [
    {
        "step": "reach",
        "hop": "login.lab.example.org",
        "ok": True,
        "seconds": 0.1,
        "message": "",
        "remedy": "",
    },
    {
        "step": "sign in",
        "hop": "gpu2",
        "ok": False,
        "seconds": 0.2,
        "message": "gpu2: 10.1.2.3 port 22: alice is refused, key SHA256:abc+/=",
        "remedy": "Ask the administrators of gpu2.",
    },
]
STORY = [
    {
        "time": 0.0,
        "event": "start",
        "text": "a kernel for /Users/alice/x.ipynb at fe80:1:2:3::9, gpu2.cs.example.edu:/export/home/a, C:\\Users\\a",
        "hop": "gpu2",
    }
]


def test_it_has_versions_settings_steps_and_the_story() -> None:
    text = report(SETTINGS, STEPS, STORY)
    for found in ("jupyter-gpu-kernel 0.", "paramiko ", "transport: ssh", "gpus: 2", "hops: 2", "sign in"):
        assert found in text
    assert "Ask the administrators of <hop 2>." in text and "a kernel for ~/x.ipynb" in text
    assert "none" in report(SETTINGS, STEPS, [])


def test_it_names_nobody_and_nothing_private() -> None:
    text = report(SETTINGS, STEPS, STORY)
    private = ("alice", "lab.example", "gpu2", "hunter2", "TOKEN", "bay-17", "secret-project", "10.1.2.3")
    private += ("cs.example", "export", "Users", "fe80", "SHA256:abc", "envs/ml", socket.gethostname())
    assert [word for word in private if word in text] == []
    assert f" {getpass.getuser()} " not in text
