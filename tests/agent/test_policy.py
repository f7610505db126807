"""A site's policy file, and what follows from one that is broken."""

from __future__ import annotations

import grp
import json
import os
import pwd

import pytest
from runtimes import RUNTIME

from jupyter_gpu_kernel.agent.kernel_settings import KernelSettings
from jupyter_gpu_kernel.agent.mux.handlers import RequestHandlers
from jupyter_gpu_kernel.agent.paths import Root
from jupyter_gpu_kernel.agent.policy import (
    EVERY_GPU,
    STRICT_GPUS,
    STRICT_IDLE,
    PolicyError,
    read_policy,
)
from jupyter_gpu_kernel.agent.refused import Refused


@pytest.fixture()
def policy(tmp_path):
    def read(rules):
        text = rules if isinstance(rules, str) else json.dumps(rules)
        (tmp_path / "policy.json").write_text(text)
        return read_policy(tmp_path / "policy.json")

    return read


def test_no_file_no_rules(tmp_path):
    policy = read_policy(tmp_path / "none" / "policy.json")
    settings = KernelSettings(gpus=8)
    assert policy.apply(settings) == settings and str(policy) == ""


def test_the_guard_can_be_forbidden(policy):
    rules = policy({"guard": False})
    assert rules.apply(KernelSettings()).sigterm == "default"
    assert "no guard" in str(rules)
    assert policy({"guard": True}).apply(KernelSettings(sigterm="default")).sigterm == "default"


def test_too_many_gpus_are_refused_in_the_sites_name(policy, tmp_path):
    rules = policy({"max_gpus": 1})
    assert rules.apply(KernelSettings()) == KernelSettings()
    with pytest.raises(PolicyError) as refused:
        rules.apply(KernelSettings(gpus=2))
    assert [
        w
        for w in ("site's policy", "policy.json", "at most 1 GPU;", "--gpus 1")
        if w not in str(refused.value)
    ] == []
    with pytest.raises(PolicyError):
        policy({"max_gpus": 0}).apply(KernelSettings())


def test_the_gpus_of_all_kernels_of_a_user(policy):
    rules = policy({"gpus_per_user": 2})
    assert rules.apply(KernelSettings(gpus=2)).gpus_per_user == 2
    with pytest.raises(PolicyError, match="allows a user at most 2 GPUs; 3 requested"):
        rules.apply(KernelSettings(gpus=3))
    assert policy({"max_idle": 7}).apply(KernelSettings()).gpus_per_user is None


def test_no_spare_interpreters(policy):
    assert policy({"spare": False}).apply(KernelSettings()).spare == "off"
    assert "no spare interpreters" in str(policy({"spare": False}))
    assert policy({"spare": True}).apply(KernelSettings()).spare == "on"
    for broken in ({"spare": "off"}, {"spear": True}):
        assert policy(broken).apply(KernelSettings()).spare == "off"


def test_reserved_gpus(policy):
    me, group = pwd.getpwuid(os.getuid()).pw_name, grp.getgrgid(os.getgid()).gr_name
    assert policy({"reserved_gpus": ["GPU-12ab", 3]}).reserved_from_us() == ["GPU-12ab", "3"]
    users = {"GPU-12ab": [me], "2": [f"@{group}", "amy"], "3": ["amy", "@nobodys"], "MIG-7": []}
    rules = policy({"reserved_gpus": users})
    assert rules.apply(KernelSettings()).reserved_gpus == ("3", "MIG-7") and "reserved GPUs" in str(rules)
    assert policy({"reserved_gpus": {}}).apply(KernelSettings()).reserved_gpus == ()


def test_idle_is_the_least_of_both(policy):
    rules = policy({"max_idle": 600})

    def applied(**settings):
        allowed = rules.apply(KernelSettings(**settings))
        return allowed.idle_timeout, allowed.idle_timeout_attached

    assert applied() == (600, 600)
    assert applied(idle_timeout=60) == (60, 600)
    assert applied(idle_timeout=0) == (600, 600), "0 is never"
    assert applied(idle_timeout=60, idle_timeout_attached=500) == (60, 500), "each by itself"
    assert policy({"max_idle": 1e6}).apply(KernelSettings()) == KernelSettings(), "the defaults are shorter"


@pytest.mark.parametrize("text", ["", "{", "[]", "7", "\x00", '{"guard": false', "[" * 100_000])
def test_a_broken_file_is_read_strictly(policy, text):
    rules = policy(text)
    assert (rules.guard, rules.max_gpus, rules.max_idle) == (False, STRICT_GPUS, STRICT_IDLE)
    assert (rules.gpus_per_user, rules.reserved_gpus) == (STRICT_GPUS, None)
    assert "read strictly" in str(rules)


@pytest.mark.parametrize(
    ("rules", "reserved"),
    [
        *(({"guard": wrong}, None) for wrong in ("off", None, 0)),
        ({"gaurd": False}, None),
        *(({"max_gpus": wrong}, None) for wrong in ("two", True, -1, None)),
        ({"gpus_per_user": 1.5, "max_gpus": 4, "guard": True}, None),
        *(({"max_idle": wrong}, None) for wrong in (0, "1h", True, 10**400, float("inf"), float("nan"))),
        ({"reserved_gpus": {"3": ["amy"]}, "max_gpus": "two"}, {"3": ["amy"]}),
        ({"max_gpus": "two", "reserved_gpus": "GPU-1"}, {EVERY_GPU: ()}),
        *(
            ({"reserved_gpus": wrong}, {EVERY_GPU: ()})
            for wrong in (
                3,
                "GPU-1",
                ["gpu 1"],
                [[]],
                [True],
                {"GPU-1": "amy"},
                {"*": ["amy"]},
                {"1": [None]},
            )
        ),
    ],
)
def test_one_broken_key(policy, rules, reserved):
    """The whole file is read strictly, but which GPUs it reserves still counts."""
    read = policy(rules)
    assert (read.guard, read.spare) == (False, False)
    assert (read.max_gpus, read.max_idle, read.gpus_per_user) == (STRICT_GPUS, STRICT_IDLE, STRICT_GPUS)
    assert read.reserved_gpus == reserved
    assert read.problem and read.problem in str(read)


def test_an_unreadable_file_is_strict(tmp_path):
    (tmp_path / "policy.json").mkdir()  # root reads everything else
    assert read_policy(tmp_path / "policy.json").guard is False


def test_a_file_that_is_no_text_is_strict(tmp_path):
    (tmp_path / "policy.json").write_bytes(b'{"guard": true, "\xff": 1}')
    rules = read_policy(tmp_path / "policy.json")
    assert rules.guard is False and "it is not JSON" in rules.problem


def test_the_handler_refuses_before_anything_starts(policy, tmp_path):
    policy({"max_gpus": 1})
    (tmp_path / "root").mkdir(mode=0o700)
    handlers = RequestHandlers(RUNTIME, Root(tmp_path / "root"), tmp_path / "policy.json")
    with pytest.raises(Refused) as refused:
        handlers.open("k1", {"create": {"gpus": 2}})
    assert refused.value.code == "policy" and "at most 1 GPU" in str(refused.value)
    assert os.listdir(str(tmp_path / "root")) == []
