"""Where the agent keeps its files on the work node: in one folder of the user, mode 0700, on node-local storage.

    <root>/agent-<hash>/         the agent, one per version; Python stores its compiled modules there
    <root>/k/<id>/               one kernel: its sockets and connection file; removed by its keeper
    <root>/stories/<id>.jsonl    what happened to a kernel; kept for some days
    <root>/id                    a random number, by which the hub knows the folder over any connection
    <root>/jobs/slurm-<id>.out   what a job has printed; kept for some days
    <root>/jobs/<id>/            one job of a scheduler: the socket of its process, which removes it

The shell script that installs the agent makes <root> and checks who owns it (install.sh). A lock of a file is held by
one process as long as the descriptor is open; the system releases the lock at its end.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import stat
import sys
import threading
from pathlib import Path
from typing import Callable, List, Optional

from ..wire.files import create_file

_FOLDERS = ("k", "stories")
_JOBS = "jobs"
_DAY = 86400.0
_KERNEL_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]{0,63}")
_JOB_ID = re.compile(r"[1-9][0-9]{0,18}")


class FolderError(Exception):
    """The folder does not belong to the user alone, or is no folder."""


def agent_command(python: str) -> List[str]:
    """The command that runs this agent with `python`: from its folder, or from its package in a checkout."""
    folder = agent_folder()
    return [python, str(folder)] if folder else [python, "-m", __package__]


def agent_folder() -> Optional[Path]:
    """The folder that this agent runs from; None in a checkout."""
    program = Path(os.path.abspath(sys.argv[0]))
    return program if program.is_dir() else None


def touch_agent(now: float) -> None:
    """Set the times of the agent's files to now, once a day: compiled modules have the times of their sources, and are
    made anew after that."""
    folder = agent_folder()
    if folder is not None and now - _modified(folder) > _DAY:
        touch(folder)


def touch(*paths: Path) -> None:
    """Set the times of these files, and of all files in these folders, to now: programs that clean /tmp remove files
    that have not been used for some days."""
    for path in paths:
        with contextlib.suppress(FileNotFoundError):  # cleaned up already, or not yet there
            if path.is_dir():
                touch(*path.iterdir())
            os.utime(str(path))


def read_tail(path: Path, most: int) -> str:
    """The last `most` bytes of what processes have printed into this file, without control characters; "" if it cannot
    be read."""
    try:
        with open(str(path), "rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - most))
            text = file.read(most).decode("utf-8", "replace")
    except OSError:
        return ""
    return "".join(char for char in text if char.isprintable() or char in "\n\t").strip()


def check_private(folder: Path) -> Path:
    """Return `folder` if it is a folder of this user, and set its mode to 0700. Raises FolderError otherwise."""
    info = os.lstat(str(folder))
    if not stat.S_ISDIR(info.st_mode) or info.st_uid != os.getuid():
        raise FolderError(f"{folder} belongs to another user, or is not a folder")
    if info.st_mode & 0o077:
        os.chmod(str(folder), 0o700)
    return folder


def make_private(*folders: Path) -> None:
    """Make these folders of this user, mode 0700, as far as they do not exist. Raises OSError or FolderError."""
    for folder in folders:
        with contextlib.suppress(FileExistsError):
            folder.mkdir(mode=0o700)
        check_private(folder)


def check_parents(folder: Path) -> None:
    """Raise FolderError if other users can replace this folder, or one above it."""
    for parent in Path(os.path.realpath(str(folder))).parents:
        mode = os.stat(str(parent)).st_mode
        if mode & stat.S_IWOTH and not mode & stat.S_ISVTX:
            raise FolderError(f"others can write to {parent}, and so replace {folder}")


class Root:
    """The agent's folder. FolderError if it, or a folder in it, does not belong to the user alone."""

    def __init__(self, path: Path) -> None:
        self.path = check_private(path)
        check_parents(path)
        for name in (*_FOLDERS, _JOBS):
            if os.path.lexists(str(path / name)):
                check_private(path / name)

    def identity(self, new_id: Callable[[], str]) -> str:
        """Return what no other folder has, on any node; "" if the disk is full. `new_id` makes it the first time.

        Nobody else can read it, so no other node can claim to be this one.
        """
        path, new = self.path / "id", self.path / f".id-{os.getpid()}-{threading.get_ident()}"
        try:
            if not path.exists():
                create_file(new, new_id().encode())
                with contextlib.suppress(FileExistsError):  # another process was faster
                    os.link(str(new), str(path))
            return path.read_text()
        except OSError:
            return ""
        finally:
            with contextlib.suppress(OSError):  # it is not there, or the file system is read-only
                new.unlink()

    def kernel(self, kernel_id: str) -> Path:
        """The folder of one kernel (may not exist)."""
        return self.path / "k" / _checked(kernel_id)

    def story(self, kernel_id: str) -> Path:
        """The story of one kernel (may not exist)."""
        return self.path / "stories" / (_checked(kernel_id) + ".jsonl")

    def kernels_with_story(self, since: float) -> List[str]:
        """Return the ids of the kernels whose stories have changed after this moment, in seconds since the epoch."""
        folder = self.path / "stories"
        paths = list(folder.glob("*.jsonl")) if folder.is_dir() else []
        return [path.stem for path in paths if is_kernel_id(path.stem) and _modified(path) >= since]

    def kernels(self) -> List[str]:
        """Ids of the kernels that have a folder."""
        return _names(self.path / "k", is_kernel_id)

    def make_kernel(self, kernel_id: str) -> Path:
        """Make the folder of one kernel, mode 0700; return it."""
        folder = self.kernel(kernel_id)
        make_private(*(self.path / name for name in _FOLDERS), folder)
        return folder

    def job(self, job_id: str) -> Path:
        """The folder of one job (may not exist)."""
        if not is_job_id(job_id):
            raise FolderError(f"{job_id[:100]!r} is not the id of a job")
        return job_folder(self.path, job_id)

    def jobs(self) -> List[str]:
        """Ids of the jobs that have a folder."""
        return _names(self.path / _JOBS, is_job_id)

    def job_output(self, job_id: str) -> Path:
        """The file with the output of one job (may not exist)."""
        return self.path / _JOBS / f"slurm-{self.job(job_id).name}.out"

    def job_outputs(self) -> List[Path]:
        """The files with the output of jobs."""
        return list((self.path / _JOBS).glob("slurm-*.out"))

    def make_job(self, job_id: str) -> Path:
        """Make the folder of one job, mode 0700; return it."""
        folder = self.job(job_id)
        make_private(folder.parent, folder)
        return folder


def job_folder(root: Path, job_id: str) -> Path:
    """The folder of one job, in the agent's folder `root`."""
    return root / _JOBS / job_id


def _names(folder: Path, is_valid: Callable[[str], bool]) -> List[str]:
    """The valid names in this folder, which need not exist, in order."""
    return sorted(filter(is_valid, os.listdir(str(folder)))) if folder.is_dir() else []


def _modified(path: Path) -> float:
    """When the file was changed; 0 if it was removed just now."""
    with contextlib.suppress(FileNotFoundError):
        return path.stat().st_mtime
    return 0.0


def is_kernel_id(text: str) -> bool:
    """Whether this is a valid kernel id, and so the name of a folder: ids also come from other machines."""
    return _KERNEL_ID.fullmatch(text) is not None


def is_job_id(text: str) -> bool:
    """Whether this is a valid id of a job, and so the name of a folder."""
    return _JOB_ID.fullmatch(text) is not None


def _checked(kernel_id: str) -> str:
    if not is_kernel_id(kernel_id):
        raise FolderError(f"{kernel_id[:100]!r} is not the id of a kernel")
    return kernel_id


def take_lock(path: Path) -> Optional[int]:
    """Return a descriptor that holds the lock of this file, which is made if it is missing; None if it is held."""
    fd = os.open(str(path), os.O_RDWR | os.O_CLOEXEC | os.O_CREAT, 0o600)
    if lock_now(fd):
        return fd
    os.close(fd)
    return None


def lock_now(fd: int, how: int = fcntl.LOCK_EX) -> bool:
    """Lock the file with this descriptor, unless another process holds its lock. Return whether that was done."""
    try:
        fcntl.flock(fd, how | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def is_locked(path: Path) -> bool:
    """Whether a process holds the lock of this file. Several processes can ask at once."""
    try:
        fd = os.open(str(path), os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        return not lock_now(fd, fcntl.LOCK_SH)
    finally:
        os.close(fd)
