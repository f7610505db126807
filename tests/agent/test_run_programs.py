"""Programs that run within a limit: what they print is read, however much, and none of them is left."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from processes import has_ended
from runtimes import RUNTIME
from waiting import DEADLINE, eventually

from jupyter_gpu_kernel.agent.system.agent_runtime import Limit, run_programs

FORKS = "print(os.fork(), flush=True); signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"


def limit(seconds: float = DEADLINE, most: int = 1 << 20) -> Limit:
    return Limit(RUNTIME.monotonic() + seconds, most=most)


def python(code: str, *arguments: str) -> list[str]:
    return [sys.executable, "-I", "-S", "-c", f"import os, signal, sys, time; {code}", *arguments]


def test_several_run_at_once_and_are_returned_in_order(tmp_path: Path) -> None:
    """Each waits until the other has made its file."""
    code = "open(sys.argv[1], 'w').close()\nwhile not os.path.exists(sys.argv[2]): time.sleep(0.01)\nprint(sys.argv[3])"
    files = [str(tmp_path / "a"), str(tmp_path / "b")]
    commands = [python(code, *files, "first"), python(code, *reversed(files), "second")]
    ended = run_programs(RUNTIME, commands, limit())
    assert [(one.status, one.output) for one in ended] == [(0, b"first\n"), (0, b"second\n")]


def test_more_than_a_pipe_holds_and_more_than_is_wanted() -> None:
    code = "sys.stdout.write('x' * 3_000_000); sys.stderr.write('y' * 300_000); sys.exit(7)"
    (ended,) = run_programs(RUNTIME, [python(code)], limit(most=2_000_000))
    assert (ended.status, len(ended.output), ended.errors) == (7, 2_000_000, b"y" * 300_000)


def test_what_does_not_end_in_time_is_killed_with_what_it_has_started() -> None:
    (ended,) = run_programs(RUNTIME, [python(FORKS)], limit(1.0))
    assert ended.status is None and has_ended(ended.process.pid)
    for pid in filter(None, map(int, ended.output.split())):  # none on a very slow machine
        eventually(lambda pid=pid: has_ended(pid), f"the end of {pid}")  # type: ignore[misc]


def test_what_is_cancelled_is_killed(tmp_path: Path) -> None:
    begun = tmp_path / "begun"
    program = python("open(sys.argv[1], 'w').close(); time.sleep(600)", str(begun))
    cancelled = Limit(RUNTIME.monotonic() + DEADLINE, begun.exists)
    (ended,) = run_programs(RUNTIME, [program], cancelled)
    assert begun.exists() and ended.status is None and has_ended(ended.process.pid)


@pytest.mark.skipif(os.getuid() != 0 or not shutil.which("unshare"), reason="needs the right to mount")
def test_output_is_read_also_if_the_disk_is_full(tmp_path: Path) -> None:
    code = (
        "import sys\n"
        "from jupyter_gpu_kernel.agent.system.agent_runtime import Limit, run_programs\n"
        "from jupyter_gpu_kernel.agent.system.agent_runtime import AgentRuntime\n"
        "limit = Limit(AgentRuntime().monotonic() + 60)\n"
        "print(run_programs(AgentRuntime(), [['echo', 'printed']], limit)[0].output)\n"
    )
    script = 'mount -t tmpfs -o size=16k none "$1"; cat /dev/zero 2>/dev/null > "$1/0"; TMPDIR="$1" exec "$2" -c "$3"'
    command = ["unshare", "-m", "sh", "-c", script, "sh", str(tmp_path), sys.executable, code]
    printed = subprocess.run(command, stdout=subprocess.PIPE, check=True, timeout=DEADLINE).stdout
    assert printed.strip() == b"b'printed\\n'"
