"""A cell that waits for GPUs, and a driver that fails now and then."""

from __future__ import annotations

import json
import os
import sys
import uuid
from pathlib import Path
from typing import List

import pytest
from runtimes import ManualLoop

from jupyter_gpu_kernel.agent.gpus.acquisition import RETRIES, RETRY_AFTER, Acquisition
from jupyter_gpu_kernel.agent.gpus.gpu import Gpu, SmiError
from jupyter_gpu_kernel.agent.gpus.nvidia_smi import TIMEOUT
from jupyter_gpu_kernel.agent.gpus.sampler import Sample
from jupyter_gpu_kernel.agent.process_control import ProcessControl

PROGRAMS = Path(__file__).parents[1] / "programs"
HANG = SmiError("hang", "nvidia-smi does not answer")


def test_only_failures_in_a_row_end_the_cell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cell may wait for days: three short faults in that time are none, nor is one that lasts a minute."""
    state = tmp_path / "state"
    state.write_text(json.dumps({"mode": "wait"}))  # the test delivers the samples
    folders = [str(PROGRAMS), os.path.dirname(sys.executable), os.environ["PATH"]]
    monkeypatch.setenv("PATH", os.pathsep.join(folders))
    monkeypatch.setenv("FAKE_NVIDIA_STATE", str(state))
    loop = ManualLoop()
    errors: List[str] = []
    texts: List[str] = []
    waiting = Acquisition(
        loop, ProcessControl(), {"id": uuid.uuid4().hex[:12], "gpus": 1}, dict,
        on_acquired=lambda: errors.append("acquired"), on_error=errors.append, on_waiting=texts.append,
    )  # fmt: skip
    busy = Gpu(0, f"GPU-{uuid.uuid4()}", "A100", 40960, 30000, utilization=90)
    waiting.request()
    try:
        for _ in range(4):
            for _ in range(RETRIES[HANG.code]):
                waiting._failed(HANG)
            assert texts[-1] == str(HANG)
            waiting._sampled(Sample(loop.clock.monotonic(), [busy], {}))
            assert "29.3 GiB are used by no visible process" in texts[-1]
        assert not errors
        for _ in range(RETRIES[HANG.code] + 1):
            waiting._failed(HANG)
        assert errors == [str(HANG)]
    finally:
        waiting.release()
    assert RETRIES[HANG.code] * (TIMEOUT + RETRY_AFTER) - TIMEOUT >= 60, "the last call begins after a minute"
