"""What a spare interpreter and the kernels that are forked from it must have in common: everything that a started
program inherits, or reads before its first line, and that could not be changed after the fork."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any, Dict, List, Mapping, Optional, Sequence

from ..gpus.devices.gpu import AMD, NVIDIA
from ..system.procfs import read_text

_SELF = Path("/proc/self")
OWN = "JUPYTER_GPU_KERNEL_"
"""The beginning of the names of our own variables."""
_VARYING = {
    *(NVIDIA, AMD, "HIP_VISIBLE_DEVICES", "JPY_PARENT_PID"),
    *("SSH_CLIENT", "SSH_CONNECTION", "SSH_TTY", "SSH_AUTH_SOCK", "XDG_SESSION_ID"),
    *("PWD", "OLDPWD", "SHLVL", "_"),
}
"""Variables that differ from one kernel to the next, and that no library reads when it is imported."""
_STATUS = ("Uid", "Gid", "Groups", "Umask", "Cap", "NoNewPrivs", "Seccomp", "Cpus_allowed:", "Mems_allowed:")
_FILES = ("cgroup", "limits", "sessionid", "loginuid", "attr/current", "oom_score_adj", "personality")


def spare_environment(env: Mapping[str, str]) -> Dict[str, str]:
    """The environment of the spare interpreter for kernels with the environment `env`."""
    return {name: value for name, value in env.items() if name not in _VARYING and not name.startswith(OWN)}


def spare_key(command: Sequence[str], env: Mapping[str, str], cwd: str, setup: Sequence[str]) -> str:
    """The name of the spare interpreter from which this process can have its kernel forked.

    command: That of the agent, with the kernel's Python.
    setup: The set-up lines, which may do more than change the environment.
    """
    facts = [list(command), sorted(spare_environment(env).items()), cwd, list(setup), _inherited()]
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:24]


def changed_variables(before: Dict[str, str]) -> Dict[str, Optional[str]]:
    """The environment variables that imported modules have set, or deleted (None), which kernels must have, too."""
    names = {*before, *os.environ}
    others = [name for name in names if before.get(name) != os.environ.get(name)]
    return {name: os.environ.get(name) for name in others if not name.startswith(OWN)}


def is_in_job(env: Mapping[str, str]) -> bool:
    """Whether kernels with this environment run in a scheduler's job, which must not share processes with others."""
    return any(name in env for name in ("SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID", OWN + "JOB"))


def _inherited() -> List[Any]:
    """What a process inherits from its parent: users, limits, namespaces, cgroups, login session, CPUs."""
    status = read_text(_SELF / "status").splitlines()
    return [
        [line for line in status if line.startswith(_STATUS)],
        [read_text(_SELF / name) for name in _FILES],
        sorted(_links(_SELF / "ns")),
        os.getpriority(os.PRIO_PROCESS, 0),
    ]


def _links(folder: Path) -> List[str]:
    try:
        return [os.readlink(str(path)) for path in folder.iterdir()]
    except OSError:
        return []
