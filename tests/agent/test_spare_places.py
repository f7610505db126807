"""Which kernels share a spare interpreter, that a place has one, and what a spare interpreter notices."""

from __future__ import annotations

import ctypes
import os
import resource
import sys
import types
from pathlib import Path
from typing import Callable

import pytest

from jupyter_gpu_kernel.agent.spare.files import EnvironmentFiles
from jupyter_gpu_kernel.agent.spare.identity import changed_variables, is_in_job, spare_key
from jupyter_gpu_kernel.agent.spare.places import SparePlace, spares_running

pytestmark = pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="the agent needs Linux")
_CLONE_NEWUTS = 0x04000000
_SKIPPED = 77


def test_only_equal_kernels_share_one() -> None:
    command, env = ["python", "agent.pyz"], {"PATH": "/bin", "OMP_NUM_THREADS": "4"}
    key = spare_key(command, env, "/home", [])
    same = dict(env, CUDA_VISIBLE_DEVICES="GPU-1", JUPYTER_GPU_KERNEL_ID="k2", SSH_CONNECTION="x")
    assert spare_key(command, same, "/home", []) == key
    others = [
        spare_key(["python3", "agent.pyz"], env, "/home", []),
        spare_key(command, dict(env, OMP_NUM_THREADS="1"), "/home", []),
        spare_key(command, dict(env, LD_PRELOAD="a.so"), "/home", []),
        spare_key(command, env, "/tmp", []),
        spare_key(command, env, "/home", ["module load cuda"]),
    ]
    assert len({key, *others}) == 6
    before = os.umask(0o027)
    try:
        assert spare_key(command, env, "/home", []) != key
    finally:
        os.umask(before)


def lower_priority() -> None:
    os.nice(1)


def lower_limit() -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (100, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))


def enter_namespace() -> None:
    if ctypes.CDLL(None).unshare(_CLONE_NEWUTS):
        os._exit(_SKIPPED)


@pytest.mark.parametrize("change", [lower_priority, lower_limit, enter_namespace])
def test_processes_that_pass_something_else_on_share_none(change: Callable[[], None]) -> None:
    key = spare_key(["python"], {}, "/", [])
    child = os.fork()
    if not child:
        change()
        os._exit(0 if spare_key(["python"], {}, "/", []) != key else 1)
    status = os.waitpid(child, 0)[1]
    if status == _SKIPPED << 8:
        pytest.skip("this user may make no namespace")
    assert status == 0


def test_a_job_has_none() -> None:
    assert (
        is_in_job({"SLURM_JOB_ID": "1"}) and is_in_job({"JUPYTER_GPU_KERNEL_JOB": "1"}) and not is_in_job({})
    )


def test_a_place_belongs_to_one_process(tmp_path: Path) -> None:
    place = SparePlace(tmp_path, "key")
    assert not place.is_taken() and place.connect(1) is None
    lock = place.lock()
    assert lock is not None and place.is_taken() and place.lock() is None
    assert spares_running(tmp_path) == 1
    os.close(lock)
    assert not place.is_taken()


def test_an_edited_module_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An editor that writes in place does not change the time of the folder."""
    module = types.ModuleType("edited")
    module.__file__ = str(tmp_path / "edited.py")
    Path(module.__file__).write_text("x = 1")
    files = EnvironmentFiles()
    monkeypatch.setitem(sys.modules, "edited", module)
    files.add_imported()
    assert not files.changed()
    Path(module.__file__).write_text("x = 10")
    assert files.changed()


def test_an_edited_path_file_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By it Python adds folders when it starts, as for a package that is edited where it is."""
    file = tmp_path / "more.pth"
    file.write_text("/a")
    monkeypatch.syspath_prepend(str(tmp_path))
    files = EnvironmentFiles()
    assert not files.changed()
    file.write_text("/ab")
    assert files.changed()


def test_variables_that_imports_have_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    before = {**os.environ, "JGK_OLD": "1"}
    monkeypatch.setenv("JGK_NEW", "2")
    monkeypatch.setenv("JUPYTER_GPU_KERNEL_OWN", "3")
    assert changed_variables(before) == {"JGK_OLD": None, "JGK_NEW": "2"}
