"""Scripts for the login node's /bin/sh, and what they print between two marks. Pure.

Nothing of ours stays there: a script comes on stdin, runs Slurm's commands, and ends. Shell start-up files may print
before it, so the output of the commands lies between marks, on stdout and on stderr.
"""

from __future__ import annotations

import re
import shlex
from typing import NamedTuple

from ...wire.texts import whole_number
from .. import sanitize
from ..node.check.python_probe import Completed

_BEGIN = "=== jupyter-gpu-kernel slurm begin"
_END = "=== jupyter-gpu-kernel slurm end"
MAX_LINES = 20_000
"""Lines of one output that are read."""
_USUAL_FOLDERS = (
    *("/usr/local/bin", "/opt/slurm/bin", "/opt/slurm/current/bin", "/usr/local/slurm/bin", "/usr/slurm/bin"),
    "/cm/shared/apps/slurm/current/bin",
)
_FOLDER = re.compile(r"/[^\s:|\x00-\x1f]{1,400}")
# Times as seconds since the epoch, whatever the time zone there is; and no defaults of the user's own.
_ENVIRONMENT = (
    "LC_ALL=C SLURM_TIME_FORMAT=%s; export LC_ALL SLURM_TIME_FORMAT",
    "unset SQUEUE_FORMAT SQUEUE_FORMAT2 SQUEUE_STATES SQUEUE_USERS SQUEUE_PARTITION SQUEUE_NAMES SQUEUE_ARRAY",
    "unset SINFO_FORMAT SINFO_PARTITION SINFO_SORT SCANCEL_INTERACTIVE SACCT_FORMAT SLURM_BITSTR_LEN",
)


class Commands(NamedTuple):
    """Where Slurm's commands are on one login node, and what `locate` says about it."""

    folder: str = ""
    """The folder to put first in PATH; "" if they are in PATH."""
    conf: str = ""
    """SLURM_CONF, if only a login shell sets it."""
    version: str = ""
    private_jobs: bool = False
    """Whether other users' jobs are hidden (PrivateData)."""

    def script(self, *lines: str) -> bytes:
        """Return the script that runs these shell lines where Slurm's commands are found."""
        head = list(_ENVIRONMENT)
        if self.folder:
            head.append(f"PATH={shlex.quote(self.folder)}:$PATH; export PATH")
        if self.conf:
            head.append(f"SLURM_CONF={shlex.quote(self.conf)}; export SLURM_CONF")
        begin = f"printf '\\n%s\\n' {shlex.quote(_BEGIN)}"
        end = f"printf '\\n%s %s\\n' {shlex.quote(_END)} \"$?\""
        return "\n".join([*head, begin, f"{begin} >&2", *lines, end, ""]).encode()


class Output(NamedTuple):
    """What the commands of one script printed. `status`: the exit status of the last one; -1 if it did not end."""

    status: int
    lines: tuple[str, ...]
    errors: str

    @classmethod
    def of(cls, completed: Completed) -> Output:
        """Read the output of a script that has ended."""
        text = completed.stdout.decode(errors="replace").replace("\r\n", "\n")
        _, begun, rest = text.partition(f"\n{_BEGIN}\n")
        body, ended, status = rest.rpartition(f"\n{_END} ")
        stderr = completed.stderr.decode(errors="replace").replace("\r\n", "\n")
        errors = stderr.rpartition(f"\n{_BEGIN}\n")[2] if begun else stderr or text
        number = whole_number(status.split("\n")[0]) if ended else None
        printed = (body if ended else rest).removesuffix("\n")
        lines = printed.split("\n")[:MAX_LINES]  # names may contain other ends of line of `splitlines`
        return cls(-1 if number is None else number, tuple(lines), sanitize.lines(errors, 20))


LOCATE = Commands().script(
    "found() { command -v sbatch >/dev/null 2>&1; }",
    "folder= conf=",
    f"found || for one in {' '.join(_USUAL_FOLDERS)}; do",
    '    if [ -x "$one/sbatch" ]; then folder=$one; PATH=$one:$PATH; break; fi',
    "done",
    "if ! found; then",  # a module that only login shells load
    '    where=\'printf "\\n%s|%s|%s\\n" "$(command -v sbatch)" "${SLURM_CONF:-}" end\'',
    '    line=$(bash -lc "$where" </dev/null 2>/dev/null | tail -n 1)',
    "    folder=${line%%/sbatch|*}; line=${line#*|}; conf=${line%%|*}",
    "    case $folder in /*) PATH=$folder:$PATH ;; *) folder= ;; esac",
    '    if [ -n "$conf" ]; then SLURM_CONF=$conf; export SLURM_CONF; fi',
    "fi",
    "if ! found; then (exit 127); else",
    'printf \'folder|%s\\nconf|%s\\nversion|\' "$folder" "$conf"; sbatch --version </dev/null',
    "scontrol show config 2>/dev/null </dev/null | grep '^PrivateData' | head -n 1",
    "true; fi",
)
"""Finds Slurm's commands: in PATH, in the usual folders, or where a login shell has them. Exits with 127 if there are
none."""


def located(output: Output) -> Commands | None:
    """Return what `LOCATE` found, None if this machine has no Slurm."""
    if output.status == 127:
        return None
    facts = dict(line.partition("|")[::2] for line in output.lines if "|" in line)
    folder, conf = facts.get("folder", ""), facts.get("conf", "")
    private = next((line for line in output.lines if line.startswith("PrivateData")), "")
    return Commands(
        folder if _FOLDER.fullmatch(folder) else "",
        conf if _FOLDER.fullmatch(conf) else "",
        sanitize.line(facts.get("version", ""), 60),
        "jobs" in private.partition("=")[2].lower(),
    )
