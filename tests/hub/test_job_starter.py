"""A kernel that waits for its job while Slurm or the login node cannot be asked: programs in place of Slurm's."""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from login_nodes import LoginNode
from runtimes import RUNTIME
from waiting import DEADLINE

from jupyter_gpu_kernel.errors import AuthError, SettingsError
from jupyter_gpu_kernel.hub.background import DiskThread
from jupyter_gpu_kernel.hub.jobs import job_starter
from jupyter_gpu_kernel.hub.jobs.job_files import JobFile, JobFiles
from jupyter_gpu_kernel.hub.jobs.job_nodes import JobNodes
from jupyter_gpu_kernel.hub.jobs.job_starter import JobStarter
from jupyter_gpu_kernel.hub.jobs.job_table import JobTable
from jupyter_gpu_kernel.hub.kernel.core.events import Event, StartFailed, WaitExplained
from jupyter_gpu_kernel.hub.kernel.core.life import Phase
from jupyter_gpu_kernel.hub.kernel.kernel_state import KernelState, Origin
from jupyter_gpu_kernel.hub.kernel_settings import KernelSettings
from jupyter_gpu_kernel.hub.node.node_link import NoLink
from jupyter_gpu_kernel.hub.node.nodes import Nodes
from jupyter_gpu_kernel.hub.slurm.scheduler import Schedulers

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="the scripts run on the login node's sh")
SETTINGS = KernelSettings(("login",), slurm=True, python="/usr/bin/python3")
AWAY = "Unable to contact slurm controller (connect failure)"


class Pending(KernelState):
    """A kernel that was not started. `shown`: what its cell shows; `failures`: why the kernel cannot be started."""

    def __init__(self, kernel_id: str = "k1", settings: KernelSettings = SETTINGS) -> None:
        super().__init__(kernel_id, settings, NoLink("login"), Origin("adopt"))
        self.shown: list[str] = []
        self.failures: list[Exception] = []
        self.not_started, self.start_wanted = True, False
        self.must_be_found = False
        self.attach_timing = SimpleNamespace(begun=asyncio.Event())
        self.attach_timing.begun.set()

    def report(self, event: Event) -> None:
        if isinstance(event, WaitExplained):
            self.shown.append(event.text)
        elif isinstance(event, StartFailed):
            self.failures.append(event.error)
            self.start_wanted = False
        self.wake()

    def undo_start(self, *_: Any) -> None:
        """Nothing was started."""


class Used(Pending):
    """A kernel that a hub has used which was killed. `problems`: why it cannot be looked for."""

    def __init__(self) -> None:
        super().__init__()
        self.not_started, self.must_be_found = False, True
        self.core = SimpleNamespace(ownership=SimpleNamespace(revives=True))
        self.problems: list[Exception] = []

    def detached(self, _: str) -> None:
        assert self.link.problem is not None
        self.problems.append(self.link.problem)

    def end(self, error: Exception) -> None:
        self.failures.append(error)
        self.must_be_found = False
        self.life.set_phase(Phase.CLOSED)
        self.wake()


Steps = Callable[[JobStarter, Any], Coroutine[Any, Any, None]]


@pytest.fixture
def login(tmp_path: Path) -> LoginNode:
    return LoginNode(tmp_path)


@pytest.fixture
def with_starter(login: LoginNode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Pending]:
    """Run a coroutine function with a kernel and its starter, which tries again at once; return the kernel."""
    monkeypatch.setattr(job_starter, "_RETRY", 0.01)

    async def run(test: Steps, kernel: Pending) -> Pending:
        log = logging.getLogger("test")
        nodes = Nodes(RUNTIME, login, log)  # type: ignore[arg-type]
        schedulers = Schedulers(RUNTIME, nodes, log)
        job_nodes = JobNodes(nodes, schedulers, log)
        table = JobTable(RUNTIME, schedulers, JobFiles(tmp_path / "jobs", DiskThread()), job_nodes, log)
        try:
            starter = JobStarter(RUNTIME, nodes, table, schedulers.of(SETTINGS), job_nodes, log)
            await asyncio.wait_for(test(starter, kernel), DEADLINE)
        finally:
            if not kernel.closed:
                kernel.life.set_phase(Phase.CLOSED)
            kernel.wake()
            schedulers.close()
            await nodes.hang_up(unused_only=False)
        return kernel

    return lambda test, kernel=None: asyncio.run(run(test, kernel or Pending()))


def test_a_job_is_looked_for_when_the_user_has_signed_in(login: LoginNode, with_starter: Any) -> None:
    """After a killed hub nobody is signed in to the login node: the kernel's job is not given up, and until then a
    sign-in is attempted for each cell only."""
    login.refusal = AuthError("a code is needed", hop="login", login=True)
    login.slurm("", "")

    async def test(starter: JobStarter, kernel: Any) -> None:
        starter.begin(kernel, adopted=True)
        await kernel.until(lambda: len(kernel.failures) == 1)
        kernel.start_wanted = True
        kernel.wake()
        await kernel.until(lambda: len(kernel.failures) == 2)
        login.refusal = None
        await starter._job_nodes.login(SETTINGS).connected(None)
        while starter._search:
            await asyncio.sleep(0.01)

    kernel = with_starter(test)
    assert [error.cause for error in kernel.failures] == ["a code is needed"] * 2 and kernel.shown == []


def test_a_kernel_whose_job_has_ended_while_its_hub_was_killed_ends(
    login: LoginNode, with_starter: Any
) -> None:
    """No other job is submitted for it: what it was running must not run again."""
    login.slurm("echo 18", "")
    login.program("scontrol", "echo slurm_load_jobs error: Invalid job id specified >&2; exit 1")

    async def test(starter: JobStarter, kernel: Any) -> None:
        await starter._table.files.loaded()
        starter._table.files.save(JobFile("k1", job="17", login="login"))
        kernel.start_wanted = True
        starter.begin(kernel, adopted=True)
        await kernel.until(lambda: False)

    kernel = with_starter(test, Used())
    (error,) = kernel.failures
    assert "job 17" in error.cause
    assert login.calls("sbatch") in ([], ["--version"])


def test_a_kernel_of_a_killed_hub_of_which_no_job_is_known_ends(login: LoginNode, with_starter: Any) -> None:
    login.slurm("echo 18", "")

    async def test(starter: JobStarter, kernel: Any) -> None:
        starter.begin(kernel, adopted=True)
        await kernel.until(lambda: False)

    (error,) = with_starter(test, Used()).failures
    assert error.cause == "Slurm lists no job of this kernel any more"


def test_a_kernel_of_a_killed_hub_is_away_until_the_user_has_signed_in(
    login: LoginNode, with_starter: Any
) -> None:
    login.refusal = AuthError("a code is needed", hop="login", login=True)
    login.slurm("", "")

    async def test(starter: JobStarter, kernel: Any) -> None:
        starter.begin(kernel, adopted=True)
        while not kernel.problems:
            await asyncio.sleep(0.01)
        assert not kernel.failures
        login.refusal = None
        await starter._job_nodes.login(SETTINGS).connected(None)
        await kernel.until(lambda: False)

    kernel = with_starter(test, Used())
    assert [error.cause for error in kernel.problems] == ["a code is needed"] and len(kernel.failures) == 1


def test_an_interrupt_while_the_job_is_looked_for_does_not_give_up_a_job_that_runs(with_starter: Any) -> None:
    """A kernel that the notebook has left may run there."""

    async def test(starter: JobStarter, kernel: Any) -> None:
        starter.interrupted()
        assert not starter._wanted(kernel)
        starter._ours_to_cancel = False
        assert starter._wanted(kernel)

    with_starter(test)


def test_a_submission_waits_for_the_controller_and_says_so(login: LoginNode, with_starter: Any) -> None:
    login.slurm(
        f'echo >>tries; [ $(cat tries | sed -n "$=") -ge 3 ] && echo 17 || {{ echo "{AWAY}" >&2; exit 1; }}',
        "",
    )

    async def test(starter: JobStarter, kernel: Any) -> None:
        job = await starter._submit(kernel, "login")
        assert job is not None and job.id == "17"

    told = [text for text in with_starter(test).shown if "Slurm's controller does not answer" in text]
    assert len(told) == 2
    assert all("waiting for it\nInterrupt the cell to give up" in text for text in told)


def test_nothing_is_submitted_for_nobody_when_the_controller_is_back(
    login: LoginNode, with_starter: Any
) -> None:
    """The first attempt may have submitted the job, whose name is then cancelled."""
    login.slurm(f'echo "{AWAY}" >&2; exit 1', "")
    login.program("scancel", "")

    async def test(starter: JobStarter, kernel: Any) -> None:
        submitting = asyncio.ensure_future(starter._submit(kernel, "login"))
        await kernel.until(lambda: len(kernel.shown) > 1)
        starter.interrupted()
        assert await submitting is None
        while not login.calls("scancel"):
            await asyncio.sleep(0.01)

    with_starter(test)
    assert login.calls("scancel")[0].endswith("-n jgk-k1")


def test_a_job_that_slurm_refuses_is_not_submitted_again(login: LoginNode, with_starter: Any) -> None:
    login.slurm('echo "sbatch: error: invalid partition specified: x" >&2; exit 1', "")

    async def test(starter: JobStarter, kernel: Any) -> None:
        with pytest.raises(SettingsError, match="invalid partition"):
            await starter._submit(kernel, "login")

    with_starter(test)
    assert len([one for one in login.calls("sbatch") if one != "--version"]) == 1


@pytest.mark.parametrize("share", [True, False])
def test_kernels_that_share_a_job_submit_one(login: LoginNode, with_starter: Any, share: bool) -> None:
    login.slurm('echo >>tries; sed -n "$=" tries', "")
    kernels = [Pending(one, SETTINGS.replace(share_job=share)) for one in ("k1", "k2")]

    async def test(starter: JobStarter, _: Any) -> None:
        jobs = await asyncio.gather(*(starter._submit(one, "login") for one in kernels))  # type: ignore[arg-type]
        assert (jobs[0] is jobs[1]) == share

    with_starter(test)
    assert len([one for one in login.calls("sbatch") if one != "--version"]) == (1 if share else 2)
