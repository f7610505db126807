"""The demo's practice cluster: its SSH server as our own client and the ssh program see it; its GPUs."""

from __future__ import annotations

import hashlib
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import paramiko
import psutil
import pytest
from connecting import connect
from processes import has_ended
from waiting import DEADLINE, eventually

from jupyter_gpu_kernel.demo import gpus
from jupyter_gpu_kernel.demo.cluster import ROUTE, Cluster
from jupyter_gpu_kernel.errors import AuthError, ConnectError
from jupyter_gpu_kernel.hub.ssh.config.route import resolve
from jupyter_gpu_kernel.hub.ssh.route_connection import RouteConnection

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the practice cluster needs Linux")
BULK = os.urandom(1 << 20) * 20
BULK_SHA = hashlib.sha256(BULK).hexdigest()


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    folder = Path(tempfile.mkdtemp(prefix="demo-", dir="/tmp"))  # sockets need short paths
    cluster = Cluster(folder)
    try:
        yield cluster
    finally:
        cluster.stop()
        shutil.rmtree(folder)


def way(cluster: Cluster, *words: str) -> RouteConnection:
    hops = resolve(words or ROUTE, config=str(cluster.ssh_config))
    return connect(hops, ask=None, timeout=DEADLINE, trust_file=cluster.folder / "trusted")


@pytest.fixture
def work(cluster: Cluster) -> Iterator[RouteConnection]:
    connection = way(cluster)
    yield connection
    connection.close()


def test_a_command_has_its_streams_its_status_and_its_own_home(cluster, work):
    done = work.run('cat; echo "$HOSTNAME $HOME" >&2; exit 7', stdin=b"in")
    assert (done.returncode, done.stdout) == (7, b"in")
    assert done.stderr.decode().split() == ["gpu-demo", str(cluster.folder / "gpu-demo")]


def test_short_commands_in_a_row_all_have_their_status(work):
    assert [work.run("exit 3").returncode for _ in range(30)] == [3] * 30


def test_a_command_that_a_signal_ends_has_the_status_of_the_shell(work):
    assert work.run("kill -9 $$").returncode == 128 + 9


def test_bulk_is_intact_both_ways_at_once(work):
    assert int(work.run("wc -c", stdin=BULK, timeout=60).stdout) == len(BULK)
    stream = work.open("cat")  # `run` is for commands that say little
    writer = threading.Thread(target=stream.write, args=(BULK,), daemon=True)
    writer.start()
    digest, size = hashlib.sha256(), 0
    while size < len(BULK):
        data = stream.read()
        assert data
        digest.update(data)
        size += len(data)
    writer.join(DEADLINE)
    stream.close()
    assert digest.hexdigest() == BULK_SHA


def test_output_nobody_reads_stops_only_itself(work):
    flood = work.open("head -c 9000000 /dev/zero >&2; head -c 9000000 /dev/zero; sleep 60")
    try:
        assert work.run("echo still here").stdout == b"still here\n"
    finally:
        flood.close()


def test_input_that_a_command_does_not_read_does_no_harm(work):
    assert work.run("exec 0<&-; echo closed; sleep 0.1", stdin=BULK, timeout=60).stdout == b"closed\n"


def test_a_command_sees_the_end_of_its_connection_and_what_let_go_of_it_lives_on(cluster, work):
    seen, pid = cluster.folder / "seen", cluster.folder / "pid"
    command = f"(sleep 1000 >/dev/null 2>&1 </dev/null & echo $! >{pid}); echo up; cat; touch {seen}"
    stream = work.open(command)
    assert stream.read() == b"up\n"
    work.close()
    eventually(seen.exists, "the command did not see the end of its input")
    number = int(pid.read_text())
    # A process that executes another program in this moment shows no environment, by which the cluster finds it.
    eventually(lambda: psutil.Process(number).name() == "sleep", "the process runs its program")
    cluster.stop()
    eventually(lambda: has_ended(number), "left behind")


def test_a_cut_is_noticed_at_once_and_restored(cluster, work):
    stream = work.open("cat")
    reader = threading.Thread(target=stream.read)
    reader.start()
    cluster.cut()
    reader.join(DEADLINE)
    assert not reader.is_alive()
    eventually(lambda: not work.alive(), "the cut was not noticed")
    with pytest.raises(ConnectError, match="connection refused"):
        way(cluster)
    cluster.restore()
    again = way(cluster)
    assert again.run("echo back").stdout == b"back\n"
    again.close()


def test_the_login_node_leads_to_the_work_node_only(cluster):
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        with pytest.raises(ConnectError, match="does not permit TCP forwarding"):
            way(cluster, "demo-login", f"127.0.0.1:{listener.getsockname()[1]}")
    with pytest.raises(ConnectError):
        way(cluster, "gpu-demo", "demo-login")  # no way through the work node


def test_another_key_or_user_is_not_let_in(cluster):
    hops = resolve([f"nobody@{ROUTE[0]}"], config=str(cluster.ssh_config))
    with pytest.raises(AuthError):
        connect(hops, ask=None, timeout=DEADLINE, trust_file=cluster.folder / "trusted")
    paramiko.ECDSAKey.generate().write_private_key_file(str(cluster.folder / "id_ecdsa"))
    with pytest.raises(AuthError):
        way(cluster)


@pytest.mark.skipif(not shutil.which("ssh"), reason="no ssh program")
def test_the_ssh_program_goes_the_two_hops(cluster):
    command = ["ssh", "-F", str(cluster.ssh_config), "gpu-demo", "cat; echo $HOSTNAME >&2; exit 5"]
    done = subprocess.run(command, input=BULK, capture_output=True, timeout=60)
    assert (done.returncode, done.stderr) == (5, b"gpu-demo\n")
    assert hashlib.sha256(done.stdout).hexdigest() == BULK_SHA


def test_nothing_is_readable_for_others(cluster):
    assert cluster.folder.stat().st_mode & 0o077 == 0
    assert (cluster.folder / "id_ecdsa").stat().st_mode & 0o077 == 0


def test_what_make_runs_for_the_demo_shows_at_once_that_it_runs(tmp_path: Path) -> None:
    go, progress = tmp_path / "go", Path(__file__).parents[1] / ".ci" / "progress"
    script = f"while [ ! -e {go} ]; do sleep 0.1; done; echo the reason; exit 3"
    pipe = subprocess.PIPE
    with subprocess.Popen(
        [progress, "installing", "sh", "-c", script], stdout=pipe, stderr=pipe, text=True
    ) as process:
        assert process.stdout is not None and process.stderr is not None
        assert process.stdout.readline() == "installing: 0 s\n"  # while the command still runs
        go.touch()
        assert process.stderr.read() == "the reason\n"
    assert process.returncode == 3


# --- GPUs


def test_simulated_gpus_say_so_and_the_first_is_taken(work):
    listed = work.run("nvidia-smi -L").stdout.decode().splitlines()
    assert len(listed) == gpus.COUNT
    assert all("SIMULATED" in line for line in listed)
    apps = work.run("nvidia-smi --query-compute-apps=gpu_uuid,process_name --format=csv,noheader,nounits")
    uuid = listed[0].partition("UUID: ")[2].rstrip(")")
    assert apps.stdout.decode().split(", ")[0] == uuid


def test_the_agent_finds_all_but_the_first_of_them_free(cluster):
    from jupyter_gpu_kernel.agent.gpus.devices.nvidia_smi import NvidiaSmi
    from jupyter_gpu_kernel.agent.gpus.judge import judge
    from jupyter_gpu_kernel.agent.system.agent_runtime import AgentRuntime

    path = os.environ["PATH"]
    os.environ["PATH"] = f"{cluster.folder / 'bin'}:{path}"
    try:
        smi = NvidiaSmi(AgentRuntime())
        verdicts = judge([smi.read() for _ in range(3)])
    finally:
        os.environ["PATH"] = path
    assert [verdict.free for verdict in verdicts] == [False, True, True, True]
    assert "in use by an unknown user" in verdicts[0].reason
