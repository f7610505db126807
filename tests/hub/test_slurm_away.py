"""A login node whose Slurm is away for a while, or not there: programs in place of Slurm's, run by a real sh."""

from __future__ import annotations

import asyncio
import logging
import shutil
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
from login_nodes import LoginNode
from runtimes import RUNTIME

from jupyter_gpu_kernel.errors import BY_LOGIN, AgentError, AuthError, ConnectError
from jupyter_gpu_kernel.hub.kernel_settings import KernelSettings
from jupyter_gpu_kernel.hub.node.node import Node
from jupyter_gpu_kernel.hub.node.shared_connection import RouteSettings
from jupyter_gpu_kernel.hub.slurm.operations import login_warnings
from jupyter_gpu_kernel.hub.slurm.scheduler import Scheduler

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="the scripts run on the login node's sh")
AWAY = "Unable to contact slurm controller (connect failure)"
KNOWN = "cat job 2>/dev/null || true"
SCRIPT = b"#!/bin/bash\n#SBATCH --job-name=jgk-0f3e\nsleep 60\n"


class Call:
    asks = abandoned = is_watch = False
    within = None
    arguments: dict[str, Any] = {}  # noqa: RUF012

    def __init__(self) -> None:
        self.steps: list[str] = []

    def progress(self, hop: str, step: str) -> None:
        self.steps.append(f"{hop}: {step}")


Steps = Callable[[Scheduler, Any], Coroutine[Any, Any, None]]


@pytest.fixture
def login(tmp_path: Path) -> LoginNode:
    return LoginNode(tmp_path)


@pytest.fixture
def with_scheduler(login: LoginNode) -> Callable[[Steps], Call]:
    """Run a coroutine function with a scheduler and a call, which is returned."""

    async def run(test: Steps) -> Call:
        node = Node(RUNTIME, RouteSettings(("login",), (), None), login, logging.getLogger("test"))  # type: ignore[arg-type]
        node.add_name("a100")
        scheduler, call = Scheduler(RUNTIME, lambda: node, logging.getLogger("test")), Call()
        try:
            await test(scheduler, call)
        finally:
            scheduler.close()
            await node.close()
        return call

    return lambda test: asyncio.run(run(test))


async def submitted(scheduler: Scheduler) -> str:
    """Submit until Slurm answers, as a kernel's starter does."""
    while True:
        try:
            return await scheduler.submit(SCRIPT)
        except ConnectError as error:
            assert error.is_transient


def test_a_controller_that_is_away_takes_no_job(login: LoginNode, with_scheduler: Any) -> None:
    login.slurm(f'echo "{AWAY}" >&2; exit 1', "")

    async def test(scheduler: Scheduler, call: Any) -> None:
        with pytest.raises(ConnectError, match="Slurm's controller does not answer") as caught:
            await scheduler.submit(SCRIPT, call)
        assert caught.value.is_transient

    with_scheduler(test)
    assert len([one for one in login.calls("sbatch") if one != "--version"]) == 1


def test_a_job_whose_submission_was_not_confirmed_is_found(login: LoginNode, with_scheduler: Any) -> None:
    """The controller took the job, and its answer was lost."""
    login.slurm('echo 18 >job; echo "Socket timed out on send/recv operation" >&2; exit 1', KNOWN)

    async def test(scheduler: Scheduler, call: Any) -> None:
        assert await submitted(scheduler) == "18"

    with_scheduler(test)
    assert len([one for one in login.calls("sbatch") if one != "--version"]) == 1
    assert "-n jgk-0f3e" in login.calls("squeue")[0]


def test_a_job_is_found_when_the_connection_broke_after_its_submission(
    login: LoginNode, with_scheduler: Any
) -> None:
    login.slurm("echo 19 | tee job 2>/dev/null || echo 19 >job", KNOWN)
    login.drop = True

    async def test(scheduler: Scheduler, call: Any) -> None:
        assert await submitted(scheduler) == "19"

    with_scheduler(test)
    assert len([one for one in login.calls("sbatch") if one != "--version"]) == 1


def test_nothing_is_submitted_again_while_it_is_unknown_whether_there_is_a_job(
    login: LoginNode, with_scheduler: Any
) -> None:
    """After a lost answer squeue fails twice; sbatch, which would work, is not asked before it answers."""
    login.slurm(
        'echo >job; echo "Socket timed out on send/recv operation" >&2; exit 1',
        f'echo >>looks; case $(sed -n "$=" looks) in 1) ;; 4) echo 20 ;; *) echo "{AWAY}" >&2; exit 1 ;; esac',
    )

    async def test(scheduler: Scheduler, call: Any) -> None:
        assert await submitted(scheduler) == "20"

    with_scheduler(test)
    assert len([one for one in login.calls("sbatch") if one != "--version"]) == 1
    assert len(login.calls("squeue")) == 4


def test_the_hub_goes_on_while_a_long_queue_is_read(login: LoginNode, with_scheduler: Any) -> None:
    """The event loop has its turns after squeue has ended, and before its output is read: a thread reads it."""
    rows = "".join(f"+{job}|RUNNING|None|1|1|gpu|n1|n[1-9999]|jgk-{job}\n" for job in range(1, 2001))
    (login.folder / "queue").write_text(rows)
    login.slurm("", "cat queue")

    async def test(scheduler: Scheduler, call: Any) -> None:
        await scheduler.commands()
        turns, printed, loop = 0, asyncio.Event(), asyncio.get_running_loop()
        login.after = lambda: loop.call_soon_threadsafe(printed.set)

        async def count() -> None:
            nonlocal turns
            await printed.wait()
            while True:
                turns += 1
                await asyncio.sleep(0)

        counting = asyncio.ensure_future(count())
        assert len(await scheduler.jobs()) == 2000
        counting.cancel()
        assert turns > 20

    with_scheduler(test)


def test_a_failure_of_scontrol_is_not_the_end_of_a_job(login: LoginNode, with_scheduler: Any) -> None:
    login.slurm("", "")
    login.program("scontrol", 'echo "slurm_load_jobs error: Protocol authentication error" >&2; exit 1')
    login.program("sacct", "exit 1")

    async def test(scheduler: Scheduler, call: Any) -> None:
        with pytest.raises(AgentError, match="Protocol authentication error"):
            await scheduler.ended("17", "jgk-1")

    with_scheduler(test)


def test_accounting_is_asked_who_cancelled_a_job(login: LoginNode, with_scheduler: Any) -> None:
    """Recorded outputs of scontrol and sacct."""
    login.slurm("", "")
    login.program(
        "scontrol",
        'echo "JobId=17 JobName=jgk-1 UserId=ada($(id -u)) JobState=CANCELLED BatchHost=gpu1 StdOut=/x"',
    )
    login.program("sacct", "echo 'CANCELLED by 1|0:0|None|gpu1|04:00:00|1000Mc'")

    async def test(scheduler: Scheduler, call: Any) -> None:
        end = await scheduler.ended("17", "jgk-1")
        assert end is not None and end.node == "gpu1" and "cancelled by daemon" in end.cause

    with_scheduler(test)
    assert "--name=jgk-1" in login.calls("sacct")[0]


def test_accounting_that_lags_does_not_revive_a_cancelled_job(login: LoginNode, with_scheduler: Any) -> None:
    login.slurm("", "")
    login.program("scontrol", 'echo "JobId=17 JobName=jgk-1 UserId=ada($(id -u)) JobState=CANCELLED"')
    login.program("sacct", "echo 'RUNNING|0:0|None|gpu1|04:00:00|1000Mc'")

    async def test(scheduler: Scheduler, call: Any) -> None:
        end = await scheduler.ended("17", "jgk-1")
        assert end is not None and end.state == "CANCELLED"

    with_scheduler(test)


def test_an_id_that_slurm_gave_to_another_users_job_tells_no_end(
    login: LoginNode, with_scheduler: Any
) -> None:
    """Its name pretends to be the state of ours, which Slurm has forgotten."""
    login.slurm("", "")
    name = "jgk-1 JobState=TIMEOUT"
    login.program(
        "scontrol", f"echo 'JobId=17 JobName={name} UserId=bob(7) JobState=COMPLETED BatchHost=gpu9'"
    )
    login.program("sacct", "exit 1")

    async def test(scheduler: Scheduler, call: Any) -> None:
        end = await scheduler.ended("17", "jgk-1")
        assert end is not None and (end.state, end.node) == ("GONE", "")

    with_scheduler(test)


def test_where_only_the_user_can_sign_in_the_command_is_named(login: LoginNode, with_scheduler: Any) -> None:
    remedy = f"Sign in {BY_LOGIN}."
    login.refusal = AuthError("a code is needed", hop="login", remedy=remedy, login=True)

    async def test(scheduler: Scheduler, call: Any) -> None:
        with pytest.raises(AuthError) as caught:
            await scheduler.jobs()
        assert caught.value.remedy == "Sign in with “jupyter gpu-kernel login a100” in a terminal."

    with_scheduler(test)


def test_a_machine_without_slurm_is_no_login_node(login: LoginNode, with_scheduler: Any) -> None:
    async def test(scheduler: Scheduler, call: Any) -> None:
        with pytest.raises(AgentError, match="no Slurm on this machine") as caught:
            await scheduler.cluster(call)
        assert "login node" in caught.value.remedy

    with_scheduler(test)


def test_slurm_is_found_where_a_login_shell_has_it(login: LoginNode, with_scheduler: Any) -> None:
    """As modules set it: the folder, and SLURM_CONF."""
    place = login.folder / "opt"
    place.mkdir()
    login.slurm("echo 21", "")
    shutil.move(login.folder / "sbatch", place / "sbatch")
    (login.folder / "bash").symlink_to(shutil.which("bash") or "bash")
    (login.folder / ".bash_profile").write_text(
        f"echo welcome\nPATH={place}\nexport SLURM_CONF=/etc/s.conf\n"
    )

    async def test(scheduler: Scheduler, call: Any) -> None:
        found = await scheduler.commands(call)
        assert (found.folder, found.conf, found.version) == (str(place), "/etc/s.conf", "slurm 23.11.4")
        assert await scheduler.submit(SCRIPT, call) == "21"

    with_scheduler(test)


@pytest.mark.parametrize(
    ("settings", "setup_problem", "warnings"),
    [
        ({}, "", []),
        ({"cwd": "~/it's here"}, "", []),
        ({"cwd": "~"}, "", []),
        ({"cwd": "/nonexist"}, "", ["the folder /nonexist (--cwd) cannot be entered"]),
        ({"cwd": "~/it's here", "code": "main"}, "", []),
        ({"code": "nope"}, "", ["no revision nope (--code) in the home folder"]),
        ({"cwd": "~/no", "code": "main"}, "they failed", ["(--setup) fail: they failed", "folder ~/no"]),
    ],
)
def test_what_fails_on_the_login_node_is_a_warning(
    login: LoginNode, with_scheduler: Any, settings: Any, setup_problem: str, warnings: list[str]
) -> None:
    login.slurm("", "")
    login.program("git", '[ "$3" = "main^{commit}" ]')
    (login.folder / "it's here").mkdir()

    async def test(scheduler: Scheduler, call: Any) -> None:
        found = await login_warnings(scheduler, KernelSettings(("login",), **settings), setup_problem, call)
        assert len(found) == len(warnings)
        for text, part in zip(found, warnings, strict=True):
            assert part in text and "(checked on login; the job's nodes may differ)" in text

    with_scheduler(test)
