"""The settings of a kernel on its node, as they are read and passed on."""

from __future__ import annotations

import json
import sys
from typing import Any

import pytest

from jupyter_gpu_kernel.agent.kernel_settings import CurrentSettings, KernelSettings, settings_from
from jupyter_gpu_kernel.wire.fields import FieldError


def test_a_process_gets_the_same_settings_as_json() -> None:
    given = KernelSettings(
        id="k1", python="/opt/python", setup=("module load cuda",), env={"A": "1"}, idle_timeout=0,
        pin={"commit": "ab12"}, gpus_per_user=2, reserved_gpus=("GPU-1",),
    )  # fmt: skip
    assert settings_from(json.loads(json.dumps(given.to_json()))) == given


def test_what_a_hub_leaves_out_or_knows_and_this_agent_does_not() -> None:
    settings = settings_from({"id": "k1", "python": None, "of_a_newer_hub": [1]})
    assert settings == KernelSettings(id="k1", python=sys.executable)


@pytest.mark.parametrize(
    "data",
    [
        {"id": 7},
        {"gpus": "2"},
        {"gpus": True},
        {"setup": "line"},
        {"setup": [7]},
        {"env": ["A"]},
        {"idle_timeout": "1h"},
        {"fresh": 1},
        {"reserved_gpus": [5]},
    ],
)
def test_a_value_of_a_wrong_type_is_refused(data: dict[str, Any]) -> None:
    with pytest.raises(FieldError, match=next(iter(data))):
        settings_from(data)


def test_a_change_is_stored() -> None:
    stored: list[KernelSettings] = []
    current = CurrentSettings(KernelSettings(id="k1"), lambda: stored.append(current.now))
    current.change(priority=3, notebook="/a.ipynb")
    assert stored == [KernelSettings(id="k1", notebook="/a.ipynb", priority=3)]
