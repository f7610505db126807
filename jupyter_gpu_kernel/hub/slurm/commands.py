"""Slurm's commands for jobs, as lines of sh for the login node. Pure."""

from __future__ import annotations

import re
import shlex

JOB_NAME = "jgk-"
"""Our jobs are called by this and the kernel's id, so that every hub of the user finds them."""
COLUMNS = ("%i", "%T", "%r", "%S", "%e", "%P", "%Q", "%B", "%N", "%.80j")
"""What squeue prints of each of the user's jobs; the name comes last, as it can contain anything."""
OTHERS = ("%i", "%P", "%Q")
"""What it prints of the jobs of all users that wait: what decides the order, and nothing that a user chooses."""
_MOST_WAITING = 10_000  # pending jobs of all users that are counted
# A name may contain newlines: only lines that begin with a mark, which no job can know, are rows.
_FILTER = f"""index($0, mark) == 1 {{
    row = substr($0, length(mark) + 1)
    if (row !~ /^-/ || n++ < {_MOST_WAITING}) print row
}}"""


def queue_command(everyone: bool) -> str:
    """List the user's jobs; with `everyone` also the jobs of all users that wait, of which the order is made."""
    own = f'squeue -h -a -t all -u "$(id -un)" -o "$mark"{shlex.quote("+" + "|".join(COLUMNS))} </dev/null'
    waiting = f'squeue -h -a -t PENDING -o "$mark"{shlex.quote("-" + "|".join(OTHERS))} </dev/null'
    both = f"{own} && {waiting}" if everyone else own
    return "\n".join(
        (
            "mark=$(od -A n -t x1 -N 12 /dev/urandom | tr -d ' \\n')",
            f'{{ {both}; echo "$mark=== status $?"; }} | awk -v mark="$mark" {shlex.quote(_FILTER)}',
        )
    )


def named_command(name: str) -> str:
    """List the ids of the user's jobs of this name that have not ended."""
    return f'squeue -h -a -u "$(id -un)" -n {shlex.quote(name)} -o %i </dev/null'


def submit_command(script: bytes, *, test_only: bool = False, check_name: bool = False) -> str:
    """Submit a batch script, which is sent along. `check_name`: unless there is a job of its name, whose id is printed:
    an earlier attempt may have succeeded, although its answer was lost."""
    text = script.decode()
    mark = "JUPYTER_GPU_KERNEL_END"
    while f"\n{mark}\n" in text:
        mark += "_"
    verb = "--test-only" if test_only else "--parsable"
    variables = [f"SBATCH_{one}" for one in (*_OURS, *_set_variables(text))]
    lines = [
        f"unset {' '.join(variables)}",
        "unset SSH_CLIENT SSH_CONNECTION SSH_TTY SSH_AUTH_SOCK DISPLAY XDG_RUNTIME_DIR XDG_SESSION_ID TMPDIR",
        "unset DBUS_SESSION_BUS_ADDRESS SLURM_TIME_FORMAT LC_ALL",
        f"sbatch {verb} <<'{mark}'\n{text.rstrip()}\n{mark}",
    ]
    if check_name and (name := job_name(script)):
        known = f"known=$({named_command(name)})"  # if this fails, it is not known whether there is a job
        found = """elif [ -n "$known" ]; then printf '%s\\n' "$known" | head -n 1; else"""
        lines = [f"if ! {known}; then (exit 1)", found, *lines, "fi"]
    return "\n".join(lines)


def job_name(script: bytes) -> str:
    """Return the name that a batch script gives to its job."""
    match = re.search(rb"^#SBATCH --job-name=(\S+)$", script, re.MULTILINE)
    return match[1].decode() if match else ""


def cancel_command(job_id: str, signal: str = "") -> str:
    """Cancel a job of the user's; with `signal` "KILL" at once, else send that signal to all of its processes.

    `scancel --signal=KILL` alone sends SIGTERM first, and waits for KillWait. With --batch it kills the batch script,
    and Slurm ends what remains of the job.
    """
    cancel = 'scancel -u "$(id -un)"'
    if signal == "KILL":
        return f"{cancel} --batch --signal=KILL {job_id} </dev/null 2>/dev/null\n{cancel} {job_id} </dev/null"
    options = ["--full", f"--signal={signal}"] if signal else []
    return f"{cancel} {shlex.join([*options, job_id])} </dev/null"


def cancel_named_command(name: str) -> str:
    """Cancel the user's jobs of this name."""
    return f'scancel -u "$(id -un)" {shlex.join(["-n", name])} </dev/null'


def show_command(job_id: str) -> str:
    """Show the user's id, and in the next line one job, which may have ended some minutes ago."""
    return f"id -u\nscontrol -o show job {job_id} </dev/null"


def accounting_command(job_id: str, name: str) -> str:
    """Show the user's job of this id and name from the accounting, where there is one; with the name of who cancelled
    it."""
    columns = "JobIDRaw,State,ExitCode,Reason,NodeList,Partition,Timelimit,ReqMem"
    return "\n".join(
        (
            f'found=$(sacct -X -n -P -u "$(id -un)" -j {job_id} --name={shlex.quote(name)} -o {columns} </dev/null)',
            'status=$?; printf "%s\\n" "$found"',
            "uid=$(printf '%s\\n' \"$found\" | sed -n 's/.*|CANCELLED by \\([0-9]*\\)|.*/\\1/p' | head -n 1)",
            'if [ -n "$uid" ]; then printf "user|%s\\n" "$(id -un "$uid" 2>/dev/null)"; fi',
            "printf 'own|%s\\n' \"$(id -u)\"",
            '(exit "$status")',
        )
    )


# Variables that would override the script's own lines.
_OURS = (
    "OUTPUT",
    "ERROR",
    "INPUT",
    "JOB_NAME",
    "SIGNAL",
    "ARRAY_INX",
    "OPEN_MODE",
    "WAIT",
    "REQUEUE",
    "NO_REQUEUE",
)
_BY_OPTION = {
    "account": "ACCOUNT",
    "gres": "GRES",
    "mem": "MEM_PER_NODE",
    "partition": "PARTITION",
    "qos": "QOS",
    "time": "TIMELIMIT",
}


def _set_variables(script: str) -> list[str]:
    options = re.findall(r"^#SBATCH --([a-z-]+)", script, re.MULTILINE)
    return [_BY_OPTION[one] for one in options if one in _BY_OPTION]
