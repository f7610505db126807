"""The settings of a kernel in the hub: what comes in from clients, and what goes out to them and to nodes."""

from __future__ import annotations

import json
from typing import Any

import pytest

from jupyter_gpu_kernel.errors import SettingsError
from jupyter_gpu_kernel.hub.kernel_settings import KernelSettings, Spec, settings_from


def test_what_a_kernelspec_says_goes_out_as_it_came_in() -> None:
    """Also what only the agent reads; what only a newer front end knows is left out."""
    given = {
        "route": ["login", "gpu2"], "gpus": 1, "setup": ["module load cuda"], "env": {"A": "1"}, "idle_timeout": 60,
        "warn_before": 90.0, "slurm": True,
    }  # fmt: skip
    settings = settings_from({**given, "of_a_newer_front_end": [1]})
    assert settings.route == ("login", "gpu2") and settings.warn_before == 90 and settings.slurm
    assert settings.to_json() == given
    assert settings_from({"route": ["gpu2"], "config": None}).to_json() == {"route": ["gpu2"], "gpus": 1}


def test_another_hub_gets_the_same_settings() -> None:
    """A front end keeps what the hub answered, for the hub that adopts its kernel."""
    given = KernelSettings(("gpu2",), hosts=("gpu1", "gpu2"), name="lab")
    chosen = given.placed("/opt/python", "it has free GPUs")
    in_job = KernelSettings(("login", "node7"), job="7", login_route=("login",), env={"A": "1"})
    for settings in (chosen, in_job):
        assert settings_from(json.loads(json.dumps(settings.to_json()))) == settings
    assert in_job.to_json()["login_route"] == ["login"]


@pytest.mark.parametrize(
    "data",
    [
        {"route": "gpu2"},
        {"gpus": "2"},
        {"gpus": True},
        {"hosts": [7]},
        {"python": ["python"]},
        {"given_python": 3},
        {"slurm": 1},
        {"keep_job": "1h"},
        {"login_route": "login"},
    ],
)
def test_a_value_of_a_wrong_type_is_refused(data: dict[str, Any]) -> None:
    with pytest.raises(SettingsError, match=next(iter(data))):
        Spec.from_json({"settings": data, "name": "lab"})


def test_the_host_that_was_chosen_is_left_out_again() -> None:
    given = KernelSettings(("login", "gpu1"), hosts=("gpu1", "bob@gpu2"), gpus=2)
    one, two = given.each_host()
    assert (one.route, two.route) == (("login", "gpu1"), ("login", "bob@gpu2"))
    assert two.each_host() == [one, two] and KernelSettings(("gpu1",)).each_host() == [
        KernelSettings(("gpu1",))
    ]
    placed = two.placed("/opt/python", "it has free GPUs")
    assert placed.python == "/opt/python" and placed.as_given() == two == two.as_given()


def test_the_way_to_the_login_node() -> None:
    given = KernelSettings(("login",), via=("ssh -q inner",), slurm=True)
    in_job = given.replace(via=(*given.via, "srun"), job="7", login_route=given.route, login_via=given.via)
    assert in_job.at_login() == given == given.at_login()
