"""Real kernels with the guard, started from a zip as on a work node, and programs that signal them.

As root, kernels run as another user, so that root and owner are two senders.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import stat
import subprocess
import sys
import time

import psutil
import pytest
from installed import unpack
from jupyter_client import BlockingKernelClient
from jupyter_client.connect import write_connection_file
from spares import MAIN, ForkedChild
from waiting import DEADLINE

from jupyter_gpu_kernel.hub.node import install

ROOT = os.getuid() == 0
USER = 61234 if ROOT else os.getuid()
needs_root = pytest.mark.skipif(not ROOT, reason="only root can signal as root")
WAIT_FOR_FILE = (
    "import os, time\nprint('started')\nwhile not os.path.exists({!r}): time.sleep(0.02)\nprint('the end')"
)


class Kernel:
    """A kernel process, a client of it, and the story it tells."""

    def __init__(self, archive, folder, uid=USER, space=False, **settings):
        """`space`: in a process namespace of its own."""
        self.folder, self.uid = folder, uid
        self.unshare = ["unshare", "--pid", "--fork", "--kill-child"] if space else []
        self.settings = {f"JUPYTER_GPU_KERNEL_{name}": str(value) for name, value in settings.items()}
        self.texts, self.idle, self.replies, self.story = {}, set(), {}, []
        folder.mkdir(mode=0o700)
        self.file = str(folder / "c.json")
        write_connection_file(
            self.file,
            transport="ipc",
            ip=str(folder / "k"),
            **{f"{c}_port": n for n, c in enumerate(("shell", "iopub", "stdin", "control", "hb"), 1)},
        )
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(str(folder / "story"))
        self.socket.settimeout(DEADLINE)
        if ROOT:
            for path in (folder, *folder.iterdir()):
                os.chown(path, uid, uid)
        self._start(archive)
        # What we started may be `unshare`, whose only child is the kernel then.
        self.pid = psutil.Process(self.process.pid).children()[0].pid if space else self.process.pid
        self.client = BlockingKernelClient(connection_file=self.file)
        self.client.load_connection_file()
        self.client.start_channels(hb=False)  # whose end would take half a second
        self.client.wait_for_ready(timeout=DEADLINE)

    def _start(self, archive):
        ready, write_end = os.pipe()
        env = dict(os.environ, IPYTHONDIR=str(self.folder), JPY_PARENT_PID=str(os.getpid()), **self.settings)
        if self.unshare:
            env.pop("JPY_PARENT_PID")  # which is nobody's there
        env.pop("PYTEST_CURRENT_TEST", None)  # ipykernel would not capture file descriptors
        env.update(JUPYTER_GPU_KERNEL_ID="k1", JUPYTER_GPU_KERNEL_READY_FD=str(write_end))
        env["JUPYTER_GPU_KERNEL_STORY"] = str(self.folder / "story")
        history = "--HistoryManager.hist_file=:memory:"
        command = [sys.executable, str(archive), "ipykernel", "-f", self.file, history]
        # The interpreter may lie where only root can read.
        caps = ["--inh-caps", "+dac_read_search", "--ambient-caps", "+dac_read_search"] if ROOT else []
        env = {name: value for name, value in env.items() if not name.startswith("JUPYTER_GPU_KERNEL_SPARE")}
        if os.environ.get("JUPYTER_GPU_KERNEL_SPARE") == "wait" and not self.unshare:
            self.process = ForkedChild(as_user(self.uid, *caps), command, env, self.folder, write_end)
            os.close(write_end)
            with os.fdopen(ready, "rb") as file:
                assert file.read(1) == b"1", (self.folder / "log").read_text()
            return
        with (self.folder / "log").open("wb") as log:
            self.process = subprocess.Popen(
                self.unshare + as_user(self.uid, *caps) + command,
                env=env,
                cwd=str(self.folder),
                pass_fds=[write_end],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        os.close(write_end)
        with os.fdopen(ready, "rb") as file:
            assert file.read(1) == b"1", (self.folder / "log").read_text()

    def stop(self):
        with contextlib.suppress(ProcessLookupError):  # what a failed test started would go on for ever
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(DEADLINE)
        if self.unshare and psutil.pid_exists(self.pid):  # setpriv undoes `--kill-child`
            os.kill(self.pid, signal.SIGKILL)
        self.client.stop_channels()
        self.client.context.destroy(linger=0)  # which garbage collection may complain about
        self.socket.close()

    def start(self, code, **options):
        return self.client.execute(code, **options)

    def text(self, request):
        return self.texts.get(request, "")

    def pump(self, done):
        deadline = time.monotonic() + DEADLINE
        while not done():
            left = deadline - time.monotonic()
            assert left > 0, (self.texts, (self.folder / "log").read_text())
            message = self.client.get_iopub_msg(timeout=left)
            request, content = message["parent_header"].get("msg_id"), message["content"]
            if message["msg_type"] == "stream":
                self.texts[request] = self.text(request) + content["text"]
            elif content.get("execution_state") == "idle":
                self.idle.add(request)

    def wait_for(self, request, text, times=1):
        self.pump(lambda: self.text(request).count(text) >= times)
        return self.text(request)

    def finish(self, request):
        """The content of its reply, after all its output."""
        self.pump(lambda: request in self.idle)
        while request not in self.replies:
            message = self.client.get_shell_msg(timeout=DEADLINE)
            self.replies[message["parent_header"]["msg_id"]] = message["content"]
        return self.replies[request]

    def run(self, code, **options):
        request = self.start(code, **options)
        assert self.finish(request)["status"] == "ok", self.replies[request]
        return self.text(request)

    def event(self):
        self.story.append(json.loads(self.socket.recv(65536)))
        return self.story[-1]

    def ended(self):
        return self.process.wait(DEADLINE)


def as_user(uid, *options):
    if not ROOT or uid == 0:
        return []
    setpriv = shutil.which("setpriv")
    assert setpriv, "as root these tests need util-linux's setpriv"
    return [setpriv, f"--reuid={uid}", f"--regid={uid}", "--clear-groups", *options]


class Term:
    """SIGTERM from a program of this name, which stays until the block is left: its name can be read."""

    def __init__(self, folder, kernel, uid=0, name="reaper", caps="+dac_read_search"):
        self.program = folder / name
        self.program.write_text("#!/bin/sh\nkill -TERM $1\nread _\n")
        self.program.chmod(stat.S_IRWXU | stat.S_IRWXG | stat.S_IRWXO)
        self.command = as_user(uid, f"--inh-caps={caps}", f"--ambient-caps={caps}") if uid else []
        self.command += [str(self.program), str(kernel.pid)]

    def __enter__(self):
        self.process = subprocess.Popen(self.command, stdin=subprocess.PIPE)
        return self.process.pid

    def __exit__(self, *exc):
        self.process.communicate(timeout=DEADLINE)


@pytest.fixture(scope="module")
def archive(tmp_path_factory):
    """The agent's folder, with the smallest `__main__` that does what the agent's does; HOOK_TIMEOUT is a setting."""
    path = tmp_path_factory.mktemp("agent") / "agent-0"
    unpack(install.pack(), path)
    (path / "__main__.py").write_text(
        "import os, sys\n"
        "from jupyter_gpu_kernel.agent.in_kernel import guard\n"
        "from jupyter_gpu_kernel.agent.in_kernel.main import main\n"
        + MAIN
        + "guard.HOOK_TIMEOUT = float(os.environ.get('JUPYTER_GPU_KERNEL_HOOK_TIMEOUT', guard.HOOK_TIMEOUT))\n"
        "main(sys.argv[2:])\n",
    )
    return path


@pytest.fixture(scope="module")
def start(archive, tmp_path_factory):
    kernels = []

    def start_one(**settings):
        kernels.append(Kernel(archive, tmp_path_factory.mktemp("k") / "k", **settings))
        return kernels[-1]

    yield start_one
    for kernel in kernels:
        kernel.stop()


@pytest.fixture(scope="module")
def shared(start):
    """A kernel that no test ends."""
    return start()


@pytest.fixture()
def kernel(shared, tmp_path):
    shared.socket.setblocking(False)
    try:
        while True:
            shared.socket.recv(65536)
    except BlockingIOError:
        shared.socket.settimeout(DEADLINE)
    yield shared
    os.kill(shared.process.pid, signal.SIGINT)  # a cell that a failed test left; ignored where none runs
