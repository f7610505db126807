"""What a kernel's process is born with: the user's own variables, but for those that are ours to set."""

from __future__ import annotations

from pathlib import Path

import pytest
from contexts import context
from runtimes import ManualLoop

from jupyter_gpu_kernel.agent.process.environment import kernel_environment


def test_the_gpus_given_and_our_own_names_win_over_the_users(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a kernelspec's or the node's variable would show it GPUs that are somebody else's."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "5")
    monkeypatch.setenv("JPY_PARENT_PID", "1")
    own = {"CUDA_VISIBLE_DEVICES": "0,1", "CUDA_DEVICE_ORDER": "FASTEST_FIRST", "JUPYTER_GPU_KERNEL_ID": "k2"}
    env = {**own, "JUPYTER_GPU_KERNEL_ROOT": "/", "MINE": "yes"}
    found = kernel_environment(
        context(ManualLoop(), tmp_path, id="k1", env=env), {"CUDA_VISIBLE_DEVICES": "GPU-1"}
    )
    expected = {
        "CUDA_VISIBLE_DEVICES": "GPU-1",
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "JUPYTER_GPU_KERNEL_ID": "k1",
        "JUPYTER_GPU_KERNEL_ROOT": str(tmp_path),
        "MINE": "yes",
    }
    assert {name: found[name] for name in expected} == expected
    assert "JPY_PARENT_PID" not in found
