"""`stop`, and the IDs of kernels in commands, with a hub that the test plays."""

from __future__ import annotations

import json
import sys

import pytest
from played_hub import PlayedHub, hub

from jupyter_gpu_kernel import kernelspecs
from jupyter_gpu_kernel.wire.kernel_settings import KernelSettings

__all__ = ["hub"]
pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="its pipes are no sockets")
ID = "3f2a00000001"


def test_a_kernel_of_which_several_rows_tell_is_stopped_once(hub: PlayedHub) -> None:
    """A kernel that waits for its job is away on each node that cannot be reached."""
    kernelspecs.write("a100", KernelSettings(("login",), slurm=True, python=sys.executable))
    hub.rows = [{"id": "k1", "state": state, "node": "login"} for state in ("waiting", "away", "away")]
    done = hub.run("stop", "--all", "--json")
    assert json.loads(done.stdout) == {"stopped": ["k1"], "errors": []}, done.stderr
    assert hub.asked == [("stop", "k1")]


@pytest.fixture
def two(hub: PlayedHub) -> PlayedHub:
    """A hub with two kernels, whose IDs begin with different four characters."""
    kernelspecs.write("gpu2", KernelSettings(("gpu2",), python=sys.executable))
    hub.rows = [{"id": one, "state": "ended", "node": "gpu2"} for one in (ID, "3f2b00000002")]
    return hub


@pytest.mark.parametrize("words", ["--all --leftovers", f"{ID} --all", f"{ID} --leftovers"])
def test_what_is_to_be_stopped_is_given_in_one_way(two: PlayedHub, words: str) -> None:
    done = two.run("stop", *words.split())
    assert done.returncode == 2 and "--all and --leftovers exclude each other" in done.stderr
    assert two.asked == []


@pytest.mark.parametrize(
    ("words", "op"),
    [
        ("stop 3f2a", "stop"),
        ("attach 3f2a", "attach"),
        ("priority 3f2a 5", "priority"),
        ("logs 3f2a", "logs"),
    ],
)
def test_the_hub_is_asked_for_the_whole_id(two: PlayedHub, words: str, op: str) -> None:
    """The user has written its beginning."""
    done = two.run(*words.split())
    assert two.asked == [(op, ID)], done.stderr


def test_fewer_than_four_characters_are_too_few(two: PlayedHub) -> None:
    done = two.run("stop", ID[:3])
    assert done.returncode == 1 and "Write at least 4 characters of the ID." in done.stderr
    assert two.asked == []
