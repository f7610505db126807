"""What a job has printed: Slurm's file is moved into our folder, and read from there, or from where Slurm opened it."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from jupyter_gpu_kernel.agent.job.output import adopt_output
from jupyter_gpu_kernel.agent.paths import Root
from jupyter_gpu_kernel.hub.jobs.job_nodes import MAX_LINES, output_rows, output_script
from jupyter_gpu_kernel.hub.transport.connection import Output

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="jobs run on Linux")
USER = (
    subprocess.run(["id", "-un"], capture_output=True, text=True).stdout.strip() if os.name == "posix" else ""
)
ADOPT = """
import os, sys
from pathlib import Path
from jupyter_gpu_kernel.agent.job.output import adopt_output, own_output
from jupyter_gpu_kernel.agent.paths import Root
print("set up", flush=True)
adopt_output(Root(Path(sys.argv[1])), sys.argv[2], 0.0)
print("goes on", flush=True)
sys.stderr.write(repr(own_output()))
"""


def read(base: Path, job_id: str) -> Output:
    environ = {**os.environ, "JUPYTER_GPU_KERNEL_BASE": str(base), "HOME": str(base)}
    return Output.of(
        subprocess.run(["/bin/sh"], input=output_script(job_id), capture_output=True, env=environ)
    )


@pytest.fixture
def root() -> Iterator[Path]:
    """The agent's folder, in which a job's folder was made."""
    with tempfile.TemporaryDirectory(prefix="jgk-", dir="/tmp") as folder:  # a socket's path must be short
        path = Path(folder) / f"jupyter-gpu-kernel-{os.getuid()}"
        path.mkdir(mode=0o700)
        Root(path).make_job("99999917")
        yield path


@pytest.fixture
def opened() -> Iterator[Path]:
    """The file that Slurm opens."""
    path = Path(f"/tmp/jupyter-gpu-kernel-{USER}-0f3e-99999917.out")
    yield path
    path.unlink(missing_ok=True)


def test_a_jobs_output_moves_into_our_folder_and_goes_on(root: Path, opened: Path) -> None:
    with opened.open("wb") as stdout:
        command = [sys.executable, "-c", ADOPT, root, "99999917"]
        done = subprocess.run(command, stdout=stdout, stderr=subprocess.PIPE, text=True, check=True)
        stdout.seek(0, os.SEEK_END)
        stdout.write(b"CANCELLED DUE TO TIME LIMIT\n")  # Slurm's word comes into the same file
    moved = root / "jobs" / "slurm-99999917.out"
    assert str(moved) in done.stderr and "set up\\ngoes on" in done.stderr
    assert not opened.exists() and moved.read_text() == "set up\ngoes on\nCANCELLED DUE TO TIME LIMIT\n"
    assert read(root.parent, "99999917").lines[:3] == ("set up", "goes on", "CANCELLED DUE TO TIME LIMIT")
    assert moved.exists()


def test_only_the_file_of_the_job_moves(root: Path, tmp_path: Path) -> None:
    other = tmp_path / "nohup.out"
    with other.open("wb") as stdout:
        subprocess.run([sys.executable, "-c", ADOPT, root, "99999917"], stdout=stdout, stderr=subprocess.PIPE)
    assert "goes on" in other.read_text() and not Root(root).job_outputs()


def test_the_folder_of_a_killed_job_is_removed_but_none_of_a_job_that_runs(root: Path) -> None:
    folder = Root(root).job("99999917")
    with socket.socket(socket.AF_UNIX) as process:
        process.bind(str(folder / "job.new"))
        (folder / "job.new").rename(folder / "job")
        process.listen()
        read(root.parent, "99999917")
        assert (folder / "job").exists()
    read(root.parent, "99999918")
    assert folder.exists()
    read(root.parent, "99999917")
    assert not folder.exists()


def test_output_of_old_jobs_is_removed(root: Path) -> None:
    old, new = (Root(root).job_output(job_id) for job_id in ("99999911", "99999912"))
    for path, time in ((old, 1000), (new, 1_000_000)):
        path.touch()
        os.utime(path, (time, time))
    adopt_output(Root(root), "99999917", 1_000_001.0)
    assert Root(root).job_outputs() == [new]


def test_what_a_job_printed_whose_process_never_started_is_read_and_removed(
    tmp_path: Path, opened: Path
) -> None:
    opened.write_text("module: command not found\n")
    assert "module: command not found" in read(tmp_path, "99999917").lines
    assert not opened.exists()
    assert read(tmp_path, "99999917").lines in ((), ("",))


def test_a_link_or_another_jobs_file_is_not_read(tmp_path: Path, opened: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("secret")
    opened.symlink_to(secret)
    assert (
        "secret" not in "".join(read(tmp_path, "99999917").lines) and secret.exists() and opened.is_symlink()
    )


def test_lines_are_bounded_and_harmless() -> None:
    found = output_rows("\n".join(f"{number}\x1b[2J" for number in range(100)), hop="gpu1")
    assert len(found) == MAX_LINES and found[-1]["text"].startswith("99?") and found[-1]["hop"] == "gpu1"
    assert output_rows(None, "gpu1") == []
