"""Checks of the node for possible reasons of a kernel's end: disks, GPUs, daemons, the login manager, the job.

Whatever could hang with the node (a dead file server, a driver) runs in a process that is left behind after a timeout.
"""

from __future__ import annotations

import os
import pwd
import re
import subprocess
import sys
from pathlib import Path
from typing import List, Mapping, Optional, Sequence

from ..gpus.nvidia_smi import NvidiaSmi
from ..gpus.nvidia_smi_csv import SmiError
from ..in_kernel.signal_rules import MEMORY_DAEMONS
from ..procfs import command_name, pids

TIMEOUT = 3.0
"""Seconds that the check of the disks, or of the GPUs, may take."""
_LOGIND = ("/usr/lib/systemd", "/run/systemd", "/etc/systemd")
_JOBS = {
    "SLURM_JOB_ID": "Slurm job",
    "PBS_JOBID": "PBS job",
    "LSB_JOBID": "LSF job",
    "JOB_ID": "Grid Engine job",
}
_WRITE_PROBE = """
import errno, os, sys, tempfile
bad = (errno.ENOSPC, errno.EDQUOT, errno.ESTALE, errno.EIO)
for folder in sys.argv[1:]:
    print(folder, end="", flush=True)
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(bytes(1 << 20))
            file.flush()
            os.fsync(file.fileno())
        print("\\0", flush=True)
    except OSError as error:
        print("\\0" + (os.strerror(error.errno) if error.errno in bad else ""), flush=True)
"""


def unwritable_folders(folders: List[str]) -> List[str]:
    """Return those folders that cannot be written to, each with the reason."""
    process = subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", _WRITE_PROBE, *folders],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        output = process.communicate(timeout=TIMEOUT)[0]
    except subprocess.TimeoutExpired as error:
        process.kill()  # may have no effect; nothing waits for it
        output = error.stdout or b""
    found = []
    for line in output.decode("utf-8", "replace").splitlines():
        folder, finished, problem = line.partition("\0")
        if problem or not finished:
            found.append(f"{folder}: {problem or 'its file system does not answer'}")
    return found


def gpu_problem(uuids: List[str]) -> str:
    """Return what is wrong with one of these GPUs; "" if nothing, or if there are none."""
    if not uuids:
        return ""
    try:
        known = {gpu.uuid: gpu for gpu in NvidiaSmi().read(TIMEOUT)}
    except SmiError as error:
        return error.cause if error.code in ("driver", "hang", "none") else ""
    missing = [uuid for uuid in uuids if uuid not in known]
    if missing:
        return f"{missing[0]} has fallen off the bus: nvidia-smi does not list it any more"
    problems = [f"GPU {known[uuid].index}: {known[uuid].problem}" for uuid in uuids if known[uuid].problem]
    return problems[0] if problems else ""


def memory_daemon() -> str:
    """Return the name of a daemon that kills processes when memory is short; "" if none runs here."""
    return next((name for name in map(command_name, pids()) if name in MEMORY_DAEMONS), "")


def own_cgroup() -> str:
    """Return this process's cgroup, which names its login session or job."""
    try:
        return Path("/proc/self/cgroup").read_text(errors="replace").strip().rpartition(":")[2]
    except OSError:
        return ""


def scheduler_job(environ: Mapping[str, str]) -> str:
    """Return the scheduler's job that this environment belongs to, "Slurm job 17"; "" if none."""
    return next((f"{name} {environ[key]}" for key, name in _JOBS.items() if environ.get(key)), "")


def kills_sessions(folders: Sequence[object] = _LOGIND) -> Optional[bool]:
    """Return KillUserProcesses of logind's configuration; None if it is not set there."""
    value = None
    for folder in map(str, folders):
        for file in [Path(folder, "logind.conf"), *sorted(Path(folder, "logind.conf.d").glob("*.conf"))]:
            try:
                text = file.read_text(errors="replace")
            except OSError:
                continue
            found = re.findall(r"^\s*KillUserProcesses\s*=\s*(\w+)", text, re.MULTILINE)
            value = found[-1].lower() in ("yes", "true", "1", "on") if found else value
    return value


def user_lingers() -> bool:
    """Return whether logind keeps the user's processes after logout (`loginctl enable-linger`)."""
    try:
        name = pwd.getpwuid(os.getuid()).pw_name
    except KeyError:  # a uid without a name
        name = str(os.getuid())
    return Path("/var/lib/systemd/linger", name).exists()
