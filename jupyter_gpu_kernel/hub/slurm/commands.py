"""Slurm's commands as scripts for the login node's /bin/sh, and the batch script of a kernel's job. Pure.

Nothing of ours stays on the login node: a script comes on stdin, runs Slurm's commands, and ends.

Slurm copies the batch script to the first node of the job. The script needs no file there and no shared file system, as
it brings the agent along. It contains no secret, as every administrator can read it: a kernel's variables come later,
over the socket of `agent job`, which the script becomes.
"""

from __future__ import annotations

import base64
import functools
import math
import re
import shlex
from typing import NamedTuple

from ...errors import SettingsError
from ...wire.durations import limit_seconds
from .. import sanitize
from ..kernel_settings import WARN_BEFORE, KernelSettings
from ..node.install import Package, script_head
from ..transport.connection import Output, source

_USER = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@\\-]{0,63}")
_FOLDER = re.compile(r"/[^\s:|\x00-\x1f]{1,400}")
# Times as seconds since the epoch, whatever the time zone there is; and no defaults of the user's own.
_ENVIRONMENT = (
    "LC_ALL=C SLURM_TIME_FORMAT=%s; export LC_ALL SLURM_TIME_FORMAT",
    "unset SQUEUE_FORMAT SQUEUE_FORMAT2 SQUEUE_STATES SQUEUE_USERS SQUEUE_PARTITION SQUEUE_NAMES SQUEUE_ARRAY",
    "unset SINFO_FORMAT SINFO_PARTITION SINFO_SORT SCANCEL_INTERACTIVE SACCT_FORMAT SLURM_BITSTR_LEN",
)
JOB_NAME = "jgk-"
"""The name of a kernel's job is this prefix and the kernel's id, so that every hub of the user finds the job."""
COLUMNS = ("%i", "%T", "%r", "%S", "%e", "%P", "%B", "%N", "%.80j")
"""What squeue prints of each of the user's jobs; the name comes last, as a name can contain anything."""
OTHERS = ("%i", "%P", "%Q")
"""What squeue prints of the jobs of all users that wait: what decides the order, and nothing that a user chooses."""
_MOST_WAITING = 10_000
"""Jobs of all users that wait and are counted."""
_OUR_VARIABLES = (
    *("OUTPUT", "ERROR", "INPUT", "JOB_NAME", "SIGNAL", "ARRAY_INX", "OPEN_MODE", "WAIT", "REQUEUE"),
    "NO_REQUEUE",
)
"""Variables that would override lines that each of our scripts has; their names begin with SBATCH_."""
_VARIABLES_OF_OPTIONS = {
    "account": "ACCOUNT",
    "gres": "GRES",
    "mem": "MEM_PER_NODE",
    "partition": "PARTITION",
    "qos": "QOS",
    "time": "TIMELIMIT",
}
"""Variables that would override the line with an option, if the script has such a line; their names begin with
SBATCH_."""
_OUTPUT = (
    # Slurm's own file would have to lie in a folder that is there already, such as /tmp; and as everybody can ask Slurm
    # for its name, another user of the node could make it first.
    'if out=$(umask 077; mktemp "/tmp/jupyter-gpu-kernel-$(id -un)-XXXXXXXX-$SLURM_JOB_ID.out"); then',
    '    exec >"$out" 2>&1',
    "fi",
    "unset out",
)
"""Opens the file for the job's output. `agent job` moves the file into our folder, which is not known yet."""


# --- the login node


class Commands(NamedTuple):
    """Where Slurm's commands are on one login node, and what `LOCATE` says about them."""

    folder: str = ""
    """The folder to put first in PATH; "" if they are in PATH."""
    conf: str = ""
    """SLURM_CONF, if only a login shell sets it."""
    version: str = ""
    user: str = ""
    """The user's name there, which may differ from the name on this computer."""
    private_jobs: bool = False
    """Whether other users' jobs are hidden (PrivateData)."""

    def script(self, *lines: str) -> bytes:
        """Return the script that runs these shell lines where Slurm's commands are found."""
        head = list(_ENVIRONMENT)
        if self.folder:
            head.append(f"PATH={shlex.quote(self.folder)}:$PATH; export PATH")
        if self.conf:
            head.append(f"SLURM_CONF={shlex.quote(self.conf)}; export SLURM_CONF")
        return "\n".join([*head, *lines, ""]).encode()


LOCATE = Commands().script(source("hub/slurm/locate.sh"))
"""Finds Slurm's commands."""


def located(output: Output) -> Commands | None:
    """Return what `LOCATE` found, None if this machine has no Slurm."""
    if output.status == 127:
        return None
    facts = dict(line.partition("|")[::2] for line in output.lines if "|" in line)
    user, folder, conf = (facts.get(key, "") for key in ("user", "folder", "conf"))
    private = next((line for line in output.lines if line.startswith("PrivateData")), "")
    return Commands(
        folder if _FOLDER.fullmatch(folder) else "",
        conf if _FOLDER.fullmatch(conf) else "",
        sanitize.line(facts.get("version", ""), 60),
        user if _USER.fullmatch(user) else "",
        "jobs" in private.partition("=")[2].lower(),
    )


# --- commands for jobs


def queue_command(everyone: bool) -> str:
    """List the user's jobs in rows that begin with "+"; with `everyone` also the jobs of all users that wait, of which
    the order is made, in rows that begin with "-"."""
    own = f'squeue -h -a -t all -u "$(id -un)" -o {shlex.quote("+" + "|".join(COLUMNS))} </dev/null'
    waiting = f"squeue -h -a -t PENDING -o {shlex.quote('-' + '|'.join(OTHERS))} </dev/null"
    return f"{own} && {waiting} | head -n {_MOST_WAITING}" if everyone else own


def named_command(name: str) -> str:
    """List the ids of the user's jobs of this name that have not ended."""
    return f'squeue -h -a -u "$(id -un)" -n {shlex.quote(name)} -o %i </dev/null'


def submit_command(script: bytes) -> str:
    """Submit a batch script, which is sent along, unless there is a job of its name, whose id is printed: an earlier
    attempt may have succeeded, although its answer was lost."""
    return "\n".join(
        (
            f"if ! known=$({named_command(job_name(script))}); then (exit 1)",  # it is not known whether there is one
            # A wrapper's notice, or the line that names the cluster, is no job.
            """elif known=$(printf '%s\\n' "$known" | grep -m 1 -x '[1-9][0-9]*'); then""",
            """printf '%s\\n' "$known"; else""",
            _sbatch(script, "--parsable"),
            "fi",
        )
    )


def test_command(script: bytes) -> str:
    """Ask Slurm whether it would take a batch script, which is sent along."""
    return _sbatch(script, "--test-only")


def _sbatch(script: bytes, option: str) -> str:
    """Give the script to sbatch, in an environment that does not override the script's lines."""
    text, mark = script.decode(), "JUPYTER_GPU_KERNEL_END"
    while f"\n{mark}\n" in text:
        mark += "_"
    variables = [f"SBATCH_{one}" for one in (*_OUR_VARIABLES, *_set_variables(text))]
    return f"""unset {" ".join(variables)}
unset SSH_CLIENT SSH_CONNECTION SSH_TTY SSH_AUTH_SOCK DISPLAY XDG_RUNTIME_DIR XDG_SESSION_ID TMPDIR
unset DBUS_SESSION_BUS_ADDRESS SLURM_TIME_FORMAT LC_ALL
sbatch {option} <<'{mark}'
{text.rstrip()}
{mark}"""


def job_name(script: bytes) -> str:
    """Return the name that a batch script gives to its job."""
    match = re.search(rb"^#SBATCH --job-name=(\S+)$", script, re.MULTILINE)
    return match[1].decode() if match else ""


def cancel_command(job_id: str, *, kill: bool = False) -> str:
    """Cancel a job of the user's; with `kill` without the time that Slurm leaves to SIGTERM.

    `scancel --signal=KILL` alone sends SIGTERM first, and waits for KillWait. With --batch it kills the batch script,
    and Slurm ends what remains of the job.
    """
    cancel = 'scancel -u "$(id -un)"'
    killed = f"{cancel} --batch --signal=KILL {job_id} </dev/null 2>/dev/null\n" if kill else ""
    return f"{killed}{cancel} {job_id} </dev/null"


def cancel_named_command(name: str) -> str:
    """Cancel the user's jobs of this name."""
    return f'scancel -u "$(id -un)" {shlex.join(["-n", name])} </dev/null'


def ended_command(job_id: str, name: str) -> str:
    """Show the user's job of this id and name, which may have ended: see `ended.sh`."""
    return f"job={job_id} name={shlex.quote(name)}\n{source('hub/slurm/ended.sh')}"


def _set_variables(script: str) -> list[str]:
    options = re.findall(r"^#SBATCH --([a-z-]+)", script.partition("\n\n")[0], re.MULTILINE)
    return [_VARIABLES_OF_OPTIONS[one] for one in options if one in _VARIABLES_OF_OPTIONS]


# --- the batch script


def batch_script(settings: KernelSettings, kernel_id: str, package: Package) -> bytes:
    """Return the script. It runs the settings' set-up lines: the kernel inherits what they set, and they are not run
    again for it."""
    python = settings.python
    if not python.startswith("/"):
        raise SettingsError(
            "the kernelspec names no Python",
            remedy="Run “jupyter gpu-kernel add … --slurm --replace”, or give --python.",
        )
    parts = [
        "#!/bin/bash -l",
        *(f"#SBATCH {option}" for option in directives(settings, kernel_id)),
        "",
        *_OUTPUT,
        *settings.setup,
        _agent(package),
    ]
    return "\n".join(parts).encode() + b"\n" + script_head(package, python, command="job") + package.install


def directives(settings: KernelSettings, kernel_id: str) -> list[str]:
    """Return sbatch's options for these settings."""
    if not sanitize.is_id(kernel_id):
        raise ValueError("a kernel's id was expected")
    warn = settings.warn_before
    whole = limit_seconds(settings.time) or math.inf
    seconds = int(min(WARN_BEFORE, whole / 3) if warn is None else warn)
    options = [f"--job-name={JOB_NAME}{kernel_id}", "--no-requeue", "--output=/dev/null"]
    if seconds:
        options.append(f"--signal=B:{settings.warn_signal}@{seconds}")
    if settings.gpus:
        options.append(f"--gres={gres(settings.gpus, settings.gpu_type)}")
    options.append(f"--nodes={settings.nodes}")
    if settings.nodes > 1:
        options.append("--ntasks-per-node=1")
    for option, value in (
        ("partition", settings.partition),
        ("time", settings.time),
        ("cpus-per-task", settings.cpus),
        ("mem", settings.mem),
        ("account", settings.account),
        ("qos", settings.qos),
    ):
        if value:
            options.append(f"--{option}={value}")
    return [*options, *settings.sbatch]  # of two equal options the last one counts


def gres(gpus: int, kind: str) -> str:
    """Return the GPUs of each node as a generic resource."""
    return f"gpu:{kind}:{gpus}" if kind else f"gpu:{gpus}"


@functools.lru_cache(maxsize=1)
def _agent(package: Package) -> str:
    """Return the lines that put the agent into the variable that install.sh reads. They are the same for all jobs."""
    return f"agent='\n{base64.encodebytes(package.packed('zlib')).decode()}'"
