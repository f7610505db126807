"""A real Slurm for this test session: the fixture `slurm`. Debian's munge, slurmctld and slurmd (`make test` installs
them) run with a configuration, a key and sockets of their own in a temporary folder, on loopback; this machine's own
Slurm, if it has one, is not touched. Two nodes with GPUs that exist in name only, a login node, and sshd on all three.

Needs root, since slurmd does. In a practice cluster with Slurm (`TESTBED_SSH_CONFIG` is set) that one is used instead.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from processes import kill
from sshd import Sshd, free_port, make_key
from waiting import DEADLINE, eventually

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "srun")
SYSTEM_FOLDERS = ":/usr/sbin:/usr/local/sbin:/sbin"
KILL_WAIT = 5  # seconds between SIGTERM and SIGKILL
GRACE = 5  # seconds that a preempted job gets

CONFIGURATION = """ClusterName=tests
SlurmctldHost=localhost(127.0.0.1)
SlurmctldPort={port}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CredType=cred/munge
StateSaveLocation={folder}/state
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmdSpoolDir={folder}/spool-%n
CommunicationParameters=NoInAddrAny,NoCtldInAddrAny
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
JobCompType=jobcomp/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
SchedulerType=sched/backfill
SchedulerParameters=batch_sched_delay=0,bf_interval=1,sched_interval=1,sched_min_interval=100000
SlurmdParameters=config_overrides
PreemptType=preempt/partition_prio
PreemptMode=CANCEL
KillWait={kill_wait}
ReturnToService=2
MinJobAge=120
GresTypes=gpu
DefMemPerCPU=100
"""
NODE = "CPUs=16 Boards=1 SocketsPerBoard=1 CoresPerSocket=16 ThreadsPerCore=1 RealMemory=16000"
PARTITION = "Nodes=node1,node2 MaxTime=1-00:00:00 DefaultTime=01:00:00 State=UP"


class Slurm:
    """A cluster. `settings` of a kernelspec lead to its login node."""

    nodes: tuple[str, str]
    settings: dict[str, Any]

    def run(self, *words: str, stdin: str = "", admin: bool = False, bob: bool = False) -> str:
        """What a command says on the login node, as the user whose jobs these are, as root, or as another user."""
        done = subprocess.run(
            self._bobs_command(words) if bob else self._command(words, admin=admin),
            input=stdin,
            env=self._environment(),
            capture_output=True,
            text=True,
            timeout=DEADLINE,
        )
        assert not done.returncode, f"{shlex.join(words)}: {done.stderr}"
        return done.stdout

    def _command(self, words: tuple[str, ...], *, admin: bool) -> list[str]:
        raise NotImplementedError

    def _bobs_command(self, words: tuple[str, ...]) -> list[str]:
        raise NotImplementedError

    def _environment(self) -> dict[str, str]:
        return {**os.environ}

    def submit(self, script: str, *options: str) -> str:
        """The id of a new job that runs the lines of `script`."""
        return self.run("sbatch", "--parsable", *options, stdin=f"#!/bin/bash -l\n{script}\n").strip()

    def job(self, job_id: str) -> dict[str, str]:
        """The fields of `scontrol show job`; none if Slurm has forgotten the job."""
        shown = self.run("scontrol", "--oneliner", "show", "job", job_id)
        return dict(word.split("=", 1) for word in shown.split() if "=" in word)

    def wait_for(self, job_id: str, *states: str) -> dict[str, str]:
        """Return the job once it is in one of these states."""
        eventually(lambda: self.job(job_id)["JobState"] in states, f"job {job_id} is {states}", every=0.1)
        return self.job(job_id)

    def jobs(self) -> list[str]:
        """The jobs of the user that have not ended, "ID|name|state"."""
        return self.run("squeue", "--me", "-h", "-o", "%i|%j|%T").split()

    def end_in(self, job_id: str, seconds: int) -> None:
        """The job's time limit comes in so many seconds: a limit that is set in advance counts minutes. Slurm looks
        every 30 s which jobs have reached theirs."""
        self.run("scontrol", "update", f"job={job_id}", f"EndTime=now+{seconds}", admin=True)

    def lose(self, node: str) -> None:
        """The controller takes the node for lost, and with it the jobs there; soon it finds it again."""
        self.run("scontrol", "update", f"nodename={node}", "state=down", "reason=test", admin=True)

    def processes(self, job_id: str) -> list[str]:
        """The commands of a job's processes, on all nodes, without Slurm's own."""
        raise NotImplementedError

    def no_jobs(self) -> None:
        """All jobs of the user are cancelled, and gone."""
        for line in self.jobs():
            with contextlib.suppress(AssertionError):  # it has just ended
                self.run("scancel", line.split("|")[0])
        eventually(lambda: not self.jobs(), "all jobs have ended", every=0.1)


class LoopbackSlurm(Slurm):
    """One that the tests start: `start` returns when both nodes take jobs."""

    nodes = ("node1", "node2")

    def __init__(self, folder: Path, environment: dict[str, str]) -> None:
        self.folder = folder
        folder.chmod(0o755)  # munged insists that all users can reach its socket
        self.configuration = folder / "slurm.conf"
        path = os.environ.get("PATH", os.defpath) + SYSTEM_FOLDERS
        self.variables = {"PATH": path, "SLURM_CONF": str(self.configuration), **environment}
        key = make_key(folder / "id_ed25519")
        self.login, *self.machines = (Sshd(name, folder / name, key) for name in ("login", *self.nodes))
        for server in (self.login, *self.machines):
            server.environment.update(self.variables)
            server.environment["HOME"] = str(self.login.home)  # shared, as on clusters
        self.ssh_config = folder / "ssh_config"
        self.settings = {"route": ["login"], "config": str(self.ssh_config), "python": sys.executable}
        self._daemons: list[subprocess.Popen[bytes]] = []

    def start(self) -> None:
        self._write_ssh_config()
        self._write_slurm_config()
        socket = self.folder / "munge.socket"
        self._start_daemon("munged", "-F", f"--socket={socket}", *self._munge_files())
        for server in (self.login, *self.machines):
            server.start()
        eventually(socket.exists, "munged listens")
        self._start_daemon("slurmctld", "-D", "-i")
        for node in self.nodes:
            self._start_daemon("slurmd", "-D", "-N", node)
        eventually(self._ready, "both nodes are idle", every=0.1)

    def _ready(self) -> bool:
        with contextlib.suppress(AssertionError):  # slurmctld does not listen yet
            return self.run("sinfo", "-h", "-N", "-p", "gpu", "-o", "%T").split() == ["idle", "idle"]
        return False

    def _write_ssh_config(self) -> None:
        known_hosts = self.folder / "known_hosts"
        servers = (self.login, *self.machines)
        known_hosts.write_text("".join(server.known_hosts_line() for server in servers))
        hosts = [f"Host {server.name}\n  Port {server.port}\n" for server in servers]
        hosts.append(f"Host {' '.join(self.nodes)}\n  ProxyJump login\n")
        self.ssh_config.write_text(
            "".join(hosts)
            + f"Host *\n  HostName 127.0.0.1\n  User root\n  IdentityFile {self.folder}/id_ed25519\n"
            f"  IdentityAgent none\n  UserKnownHostsFile {known_hosts}\n  GlobalKnownHostsFile none\n"
        )

    def _write_slurm_config(self) -> None:
        lines = [CONFIGURATION.format(folder=self.folder, port=free_port(), kill_wait=KILL_WAIT)]
        gres = ["AutoDetect=off\n"]
        for node, model, gpus in zip(self.nodes, ("a100", "rtx3090"), (2, 4), strict=True):
            address = f"NodeHostName=localhost NodeAddr=127.0.0.1 Port={free_port()}"
            lines.append(f"NodeName={node} {address} {NODE} Gres=gpu:{model}:{gpus} State=UNKNOWN\n")
            files = self._device_files(node, gpus)
            gres.append(f"NodeName={node} Name=gpu Type={model} File={files}\n")
            (self.folder / f"spool-{node}").mkdir()
        lines.append(f"PartitionName=gpu Default=YES {PARTITION} PriorityTier=10 PreemptMode=off\n")
        lines.append(
            f"PartitionName=preempt {PARTITION} PriorityTier=1 PreemptMode=CANCEL GraceTime={GRACE}\n"
        )
        self.configuration.write_text("".join(lines))
        (self.folder / "gres.conf").write_text("".join(gres))
        (self.folder / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\nCgroupAutomount=no\n")
        (self.folder / "state").mkdir()

    def _device_files(self, node: str, count: int) -> str:
        """Slurm sets CUDA_VISIBLE_DEVICES only for device files: these are /dev/null under other names."""
        folder = self.folder / f"dev-{node}"
        folder.mkdir()
        for index in range(count):
            os.mknod(folder / f"nvidia{index}", stat.S_IFCHR | 0o666, os.makedev(1, 3))
        return f"{folder}/nvidia[0-{count - 1}]"

    def _munge_files(self) -> list[str]:
        key = self.folder / "munged.key"
        key.touch(0o600)
        key.write_bytes(os.urandom(128))
        return [f"--{name}-file={self.folder}/munged.{name}" for name in ("key", "pid", "log", "seed")]

    def _start_daemon(self, *command: str) -> None:
        program = shutil.which(command[0], path=self.variables["PATH"])
        assert program
        with (self.folder / f"{command[0]}-{len(self._daemons)}.out").open("wb") as output:
            self._daemons.append(
                subprocess.Popen(
                    [program, *command[1:]],
                    env=self._environment(),
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                )
            )

    def _environment(self) -> dict[str, str]:
        return {**os.environ, **self.variables, "HOME": str(self.login.home)}

    def _command(self, words: tuple[str, ...], *, admin: bool) -> list[str]:
        return list(words)

    def _bobs_command(self, words: tuple[str, ...]) -> list[str]:
        return ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", *words]

    def processes(self, job_id: str) -> list[str]:
        commands = []
        for process in self._processes(SLURM_JOB_ID=job_id):
            with contextlib.suppress(psutil.NoSuchProcess):
                commands.append(shlex.join(process.cmdline()))
        return commands

    def _processes(self, **marks: str) -> list[psutil.Process]:
        """Those that belong to this Slurm, and have these variables."""
        marks["SLURM_CONF"] = str(self.configuration)
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                has = process.environ()
                if process.pid != os.getpid() and all(has.get(key) == value for key, value in marks.items()):
                    found.append(process)
        return found

    def stop(self) -> None:
        """Nothing that belongs to it runs on; what a job has left is an error."""
        try:
            if self._daemons:
                self.no_jobs()
        finally:
            for daemon in reversed(self._daemons):  # slurmd has something to say to slurmctld
                daemon.terminate()
                daemon.wait(DEADLINE)
            for server in (self.login, *self.machines):
                server.stop()
            # What an sshd has started ends a moment after it.
            left = kill(psutil.wait_procs(self._processes(), DEADLINE)[1])
        assert not left


class PracticeSlurm(Slurm):
    """The practice cluster's, which somebody has started: `up --slurm`."""

    nodes = ("gpu1", "gpu2")

    def __init__(self) -> None:
        self.config = os.environ["TESTBED_SSH_CONFIG"]
        python = os.environ["TESTBED_REMOTE_PYTHON"]
        self.settings = {"route": ["login"], "config": self.config, "python": python}

    def _command(self, words: tuple[str, ...], *, admin: bool) -> list[str]:
        if admin:
            return ["testbed", "exec", "login", "--", *words]
        return ["ssh", "-F", self.config, "login", shlex.join(words)]

    def _bobs_command(self, words: tuple[str, ...]) -> list[str]:
        return ["testbed", "exec", "login", "--user", "bob", "--", *words]

    def processes(self, job_id: str) -> list[str]:
        look = f"cd /proc; grep -lsz '^SLURM_JOB_ID={job_id}$' [0-9]*/environ | cut -d/ -f1 | xargs -r ps -o args= -p"
        commands = [["testbed", "exec", node, "--", "sh", "-c", look] for node in self.nodes]
        done = [subprocess.run(one, capture_output=True, text=True, timeout=DEADLINE) for one in commands]
        return [line for one in done for line in one.stdout.splitlines() if not line.startswith("slurmstepd")]


@pytest.fixture(scope="session")
def slurm_session() -> Iterator[Slurm]:
    """The one of this test session."""
    if "TESTBED_SSH_CONFIG" in os.environ:
        yield PracticeSlurm()
        return
    path = os.environ.get("PATH", os.defpath) + SYSTEM_FOLDERS
    if missing := [program for program in PROGRAMS if not shutil.which(program, path=path)]:
        pytest.skip(f"no {', '.join(missing)} on this machine (Debian: slurm-wlm, munge)")
    if os.geteuid():
        pytest.skip("Slurm's slurmd needs root")
    with tempfile.TemporaryDirectory(prefix="jgk-slurm-", dir="/tmp") as folder:
        started = LoopbackSlurm(Path(folder), {"JUPYTER_GPU_KERNEL_BASE": f"{folder}/base"})
        (started.folder / "base").mkdir()
        try:
            started.start()
            yield started
        finally:
            started.stop()


@pytest.fixture(scope="module")
def slurm(slurm_session: Slurm) -> Iterator[Slurm]:
    """A module's use of it: no job is left behind."""
    yield slurm_session
    slurm_session.no_jobs()
