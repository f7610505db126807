"""The Python from which an environment is made: chosen by the real script, on homes made for it."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest
from probed_node import Node, real_venv
from runtimes import RUNTIME

from jupyter_gpu_kernel.errors import AgentError
from jupyter_gpu_kernel.hub.virtual_env import find_base

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="the script runs on the work node's sh")


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


def base(node: Node, wanted: str = "", *setup: str) -> str:
    return find_base(node, "gpu2", wanted, setup, RUNTIME.monotonic)[0].path


def system(node: Node, version: str) -> Path:
    python = node.python(node.root / "usr", version, None, name="python3")
    (node.programs / "python3").symlink_to(python)
    return python


def test_a_python_of_the_home_is_preferred_to_the_systems_and_both_to_environments(node: Node) -> None:
    (node.programs / "bash").symlink_to(str(shutil.which("bash")))
    venv = real_venv(node.home / "project", None)
    assert base(node) == str(venv)
    usr = system(node, "3.11.2")
    assert base(node) == str(usr)
    conda = node.conda(node.home / "miniconda3", "3.12.1", None)
    node.conda(node.home / "miniconda3" / "envs" / "ml", "3.13.1", None)
    assert base(node) == str(conda)
    module = node.python(node.root / "modules" / "python-3.9", "3.9.1", None, name="python3")
    assert base(node, "", f"PATH={module.parent}:$PATH") == str(module)


def test_one_with_current_packages_is_preferred_and_one_that_is_too_old_is_not_used(node: Node) -> None:
    node.conda(node.home / "miniconda3", "3.8.1", None)
    usr = system(node, "3.11.2")
    assert base(node) == str(usr)
    with pytest.raises(AgentError, match=r"is Python 3\.6\.8; 3\.8 or newer is needed"):
        base(node, str(node.python(node.home / "old", "3.6.8", None)))


def test_no_python_that_is_new_enough(node: Node) -> None:
    usr = system(node, "3.6.8")
    with pytest.raises(AgentError) as raised:
        base(node)
    assert f"{usr} is Python 3.6.8; 3.8 or newer is needed" in raised.value.cause
    assert "module avail python" in raised.value.remedy
    assert "curl -LO https://" in raised.value.remedy and "-b -p ~/miniforge3" in raised.value.remedy
