"""The declarations of settings: which of them users have, their options of `add`, and the words that repeat them."""

from __future__ import annotations

import argparse
import dataclasses
from typing import Any

import pytest

from jupyter_gpu_kernel.adding import words_of
from jupyter_gpu_kernel.cli.add.options import add_options, given_settings
from jupyter_gpu_kernel.errors import SettingsError
from jupyter_gpu_kernel.settings import parse
from jupyter_gpu_kernel.wire.kernel_settings import USER_SETTINGS, KernelSettings, default_of, type_of


def given(*words: str) -> dict[str, Any]:
    """The settings that `add` takes from these words."""
    parser = argparse.ArgumentParser(allow_abbrev=False)
    add_options(parser)
    values = given_settings(parser.parse_args(["gpu2", *words]))
    return {name: value for name, value in values.items() if value not in (None, {}) and value is not False}


@pytest.mark.parametrize(
    ("words", "settings"),
    [
        ("-i /a -i /b -F /c", {"identity": ["/a", "/b"], "config": "/c"}),
        ("--gpus 2 --priority -5", {"gpus": 2, "priority": -5}),
        ("--env A=1 --env B=x=y", {"env": {"A": "1", "B": "x=y"}}),
        ("--no-spare --sigterm default", {"spare": "off", "sigterm": "default"}),
        ("--idle-timeout 30m --keep-job 0", {"idle_timeout": 1800.0, "keep_job": 0.0}),
        ("--slurm --share-job --time 8h", {"slurm": True, "share_job": True, "time": "8:00:00"}),
        ("--sbatch=--qos=x", {"sbatch": ["--qos=x"]}),
    ],
)
def test_options_are_settings(words: str, settings: dict[str, Any]) -> None:
    assert given(*words.split()) == settings


def test_the_words_after_add_give_the_same_settings_again() -> None:
    settings = KernelSettings(
        ("gpu2",), ("/key",), python="/p", gpus=2, env={"A": "1 2"}, setup=("a", "b"), spare="off", slurm=True,
        sbatch=("--qos=x", "-w gpu1"), warn_before=0.0, way="ssh", share_job=True, idle_timeout=60.0, gpu_timeout=9.0,
    )  # fmt: skip
    destination, *words = words_of(settings)
    assert destination == "gpu2"
    again = KernelSettings.from_json({"route": ["gpu2"], **given(*words)})
    assert again == settings.replace(gpu_timeout=default_of("gpu_timeout")), "there is no option for that one"


def test_a_kernelspec_has_only_settings_of_users() -> None:
    for name in {one.name for one in dataclasses.fields(KernelSettings)} - USER_SETTINGS.keys():
        with pytest.raises(SettingsError, match=f"“{name}” is unknown"):
            parse({"route": ["gpu2"], name: ""})


def test_each_setting_has_a_default_of_its_type() -> None:
    for name in USER_SETTINGS:
        default = default_of(name)
        assert default is None or type_of(name).accepts(default), name
