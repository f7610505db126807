"""The guard in real kernels, started from a zip as on a work node, and signalled by real processes.

As root, kernels run as another user, so that root and owner are two senders. Otherwise what needs root is
skipped and says so.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import stat
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import psutil
import pytest
from jupyter_client import BlockingKernelClient
from jupyter_client.connect import write_connection_file

import jupyter_gpu_kernel
from jupyter_gpu_kernel.agent.inside.guard import Use
from jupyter_gpu_kernel.agent.inside.signals import ENDED, SURVIVED, Sender, classify, decide, sentence

ROOT = os.getuid() == 0
USER = 61234 if ROOT else os.getuid()
WAIT = 60.0
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
        self.socket.settimeout(WAIT)
        if ROOT:
            for path in (folder, *folder.iterdir()):
                os.chown(path, uid, uid)
        self._start(archive)
        # What we started may be `unshare`, whose only child is the kernel then.
        self.pid = psutil.Process(self.process.pid).children()[0].pid if space else self.process.pid
        self.client = BlockingKernelClient(connection_file=self.file)
        self.client.load_connection_file()
        self.client.start_channels()
        self.client.wait_for_ready(timeout=WAIT)

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
        self.process.kill()
        self.process.wait(WAIT)
        self.client.stop_channels()
        self.socket.close()

    def start(self, code, **options):
        return self.client.execute(code, **options)

    def text(self, request):
        return self.texts.get(request, "")

    def pump(self, done):
        deadline = time.monotonic() + WAIT
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
            message = self.client.get_shell_msg(timeout=WAIT)
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
        return self.process.wait(WAIT)


def wait_until(condition):
    deadline = time.monotonic() + WAIT
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


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
        self.process.communicate(timeout=WAIT)


@pytest.fixture(scope="module")
def archive(tmp_path_factory):
    """The agent as a zip, with the smallest `__main__` that does what the agent's does."""
    path = tmp_path_factory.mktemp("agent") / "agent-0.pyz"
    package = Path(jupyter_gpu_kernel.__file__).parent
    with zipfile.ZipFile(str(path), "w") as file:
        for source in [package / "__init__.py", *package.glob("agent/**/*.py"), *package.glob("wire/*.py")]:
            file.write(str(source), str(source.relative_to(package.parent)))
        file.writestr(
            "__main__.py",
            "import sys\nfrom jupyter_gpu_kernel.agent.inside.ipykernel_main import main\nmain(sys.argv[2:])\n",
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
        shared.socket.settimeout(WAIT)
    yield shared
    os.kill(shared.process.pid, signal.SIGINT)  # a cell that a failed test left; ignored where none runs


# --- who sent it, and what follows


@pytest.mark.parametrize(
    ("pid", "uid", "command", "own", "kind"),
    [
        (0, 0, "", 1000, "container"),
        (7, 0, "containerd-shim", 1000, "container"),
        (7, 0, "slurmstepd", 1000, "scheduler"),
        (7, 1000, "sbatchd", 1000, "scheduler"),
        (7, 61999, "earlyoom", 1000, "memory"),
        (7, 0, "systemd-oomd", 1000, "memory"),
        (1, 0, "systemd", 1000, "system"),
        (7, 1000, "systemd", 1000, "system"),
        (7, 0, "kill", 1000, "root"),
        (7, 0, "kill", 0, "root"),
        (7, 0, "", 1000, "root"),
        (7, 1000, "kill", 1000, "owner"),
        (7, 1001, "kill", 1000, "other"),
    ],
)
def test_senders(pid, uid, command, own, kind):
    assert classify(pid, uid, command, own) == kind


@pytest.mark.parametrize(
    ("kind", "in_use", "since", "action"),
    [
        ("root", True, None, SURVIVED),
        ("root", True, 0.1, SURVIVED),
        ("scheduler", True, 0.1, SURVIVED),
        ("owner", True, None, SURVIVED),
        ("owner", True, 5.0, ENDED),
        ("owner", True, 5.1, SURVIVED),
        ("unknown", True, 0.1, SURVIVED),
        ("memory", True, None, SURVIVED),
        ("memory", True, 10.0, ENDED),
        ("root", False, None, ENDED),
        ("owner", False, None, ENDED),
    ],
)
def test_decisions(kind, in_use, since, action):
    assert decide(kind, in_use, since) == action


def test_sentences():
    kill = Sender("root", 42, 0, "root", "kill")
    assert sentence(kill, "12:03:04", SURVIVED) == (
        "SIGTERM from root (pid 42, kill) at 12:03:04: the kernel stays, the cell goes on."
    )
    assert sentence(kill, "12:03:04", ENDED).endswith("12:03:04: the kernel ends.")
    assert "from 1001 (pid 42) at" in sentence(Sender("other", 42, 1001), "1", SURVIVED)
    assert "SIGKILL usually follows" in sentence(Sender("scheduler", 1, 0, "root", "slurmd"), "1", SURVIVED)
    assert sentence(Sender("unknown"), "1", SURVIVED).startswith("SIGTERM from an unknown sender at 1: ")


def test_what_counts_as_use():
    use = Use(linger=2.0)
    assert use.now()  # a fresh kernel
    wait_until(lambda: not use.now())
    with use.cell("request", by_user=False):
        assert use.now() and use.cells() == ["request"]
    assert not use.now()
    with use.cell(None, by_user=False), use.hold():
        assert use.now() and use.cells() == []
    assert not use.now()
    with use.cell("request", by_user=True):
        pass
    assert use.now()


# --- in use: it stays


@needs_root
def test_a_cell_survives_root_and_says_so(kernel, tmp_path):
    stop = kernel.folder / "stop-1"
    request = kernel.start(WAIT_FOR_FILE.format(str(stop)))
    kernel.wait_for(request, "started")
    for number in (1, 2, 3):
        with Term(tmp_path, kernel) as pid:
            kernel.wait_for(request, "the cell goes on.", number)
            assert f"SIGTERM from root (pid {pid}, reaper) at " in kernel.text(request)
            event = kernel.event()
        assert (event["pid"], event["uid"], event["user"], event["command"]) == (pid, 0, "root", "reaper")
        assert (event["event"], event["in_use"], event["action"]) == ("sigterm", True, "survived")
    stop.touch()
    assert kernel.finish(request)["status"] == "ok"
    assert kernel.text(request).endswith("the end\n")


@needs_root
@pytest.mark.parametrize(
    ("how", "sender", "kind", "said"),
    [
        ({}, {"uid": 61235, "caps": "+dac_read_search,+kill"}, "other", "SIGTERM from 61235 (pid "),
        ({"space": True}, {}, "container", "SIGTERM from outside of this container at "),
        ({"uid": 0}, {}, "root", "SIGTERM from root (pid "),
    ],
)
def test_any_sender_any_number(start, tmp_path, how, sender, kind, said):
    """A third user, one outside of the kernel's process namespace, root where the kernel is root's, too."""
    kernel = start(**how)
    stop = kernel.folder / "stop"
    request = kernel.start(WAIT_FOR_FILE.format(str(stop)))
    kernel.wait_for(request, "started")
    for number in (1, 2, 3):
        with Term(tmp_path, kernel, **sender):
            kernel.wait_for(request, "the cell goes on.", number)
            event = kernel.event()
            assert (event["kind"], event["action"]) == (kind, "survived")
    assert kernel.text(request).count(said) == 3
    stop.touch()
    assert kernel.finish(request)["status"] == "ok"


@needs_root
def test_told_at_once_in_a_long_call(kernel, tmp_path):
    begun = kernel.folder / "begun"
    request = kernel.start(
        f"import time\nprint('before'); open({str(begun)!r}, 'w').close(); time.sleep(600)"
    )
    wait_until(begun.exists)
    with Term(tmp_path, kernel):
        text = kernel.wait_for(request, "the cell goes on.")
    assert text.index("before") < text.index("SIGTERM from")
    os.kill(kernel.process.pid, signal.SIGINT)
    assert kernel.finish(request)["status"] == "error"


@needs_root
def test_an_asynchronous_cell_is_told(kernel, tmp_path):
    stop = kernel.folder / "stop-async"
    code = WAIT_FOR_FILE.format(str(stop)).replace("time.sleep", "await asyncio.sleep")
    handler = "asyncio.get_running_loop().{}_signal_handler(15{})\n"
    begin = "import asyncio\n" + handler.format("add", ", print, 'from the loop'")
    request = kernel.start(begin + code + "\n" + handler.format("remove", "") + "print('the end')")
    kernel.wait_for(request, "started")
    with Term(tmp_path, kernel):
        kernel.wait_for(request, "the cell goes on.")
        kernel.wait_for(request, "from the loop")
    stop.touch()
    assert kernel.finish(request)["status"] == "ok" and kernel.text(request).endswith("the end\n")


def test_hooks_and_handlers_run_on_the_main_thread(kernel, tmp_path):
    kernel.run(
        "import gpu_kernel, signal, threading\n"
        "@gpu_kernel.on_sigterm\ndef save():\n    print('saved', threading.current_thread().name)\n"
        "@gpu_kernel.on_sigterm\ndef bad():\n    raise ValueError('no disk')\n"
        "def handler(number, frame):\n    print('mine', number); raise SystemExit(3)\n"
        "before = signal.signal(signal.SIGTERM, handler)"
    )
    stop = kernel.folder / "stop-2"
    request = kernel.start(WAIT_FOR_FILE.format(str(stop)))
    kernel.wait_for(request, "started")
    with Term(tmp_path, kernel, 0 if ROOT else USER):
        kernel.wait_for(request, "SystemExit: 3")
    stop.touch()
    assert kernel.finish(request)["status"] == "ok"
    text = kernel.text(request)
    assert "saved MainThread" in text and "ValueError: no disk" in text and "mine 15" in text
    assert text.endswith("the end\n")
    kernel.run("signal.signal(signal.SIGTERM, before); gpu_kernel._guard.hooks.clear()")


def test_a_librarys_handler_that_calls_the_one_before(kernel, tmp_path):
    """As Lightning's does, which looks for one, and keeps it: ours, here."""
    kernel.run(
        "import signal, types\nbefore = signal.getsignal(signal.SIGTERM)\n"
        "def handler(number, frame):\n"
        "    print('library', isinstance(frame, types.FrameType))\n"
        "    if callable(before): before(number, frame)\n"
        "signal.signal(signal.SIGTERM, handler)"
    )
    stop = kernel.folder / "stop-5"
    request = kernel.start(WAIT_FOR_FILE.format(str(stop)))
    kernel.wait_for(request, "started")
    with Term(tmp_path, kernel, 0 if ROOT else USER):
        kernel.wait_for(request, "library True")
    seen = kernel.event()
    stop.touch()
    kernel.finish(request)
    assert (seen["action"], kernel.text(request).count("library"), kernel.text(request).count("SIGTERM")) == (
        "survived",
        1,
        1,
    )
    kernel.run("signal.signal(signal.SIGTERM, before)")
    assert kernel.run("import gpu_kernel; print(gpu_kernel._guard.last)").count("unknown") == 0


CHILDREN = r"""
import asyncio, multiprocessing, os, pty, signal, subprocess, sys, threading, time, warnings
from joblib.externals.loky import get_reusable_executor
warnings.simplefilter("ignore")  # Python 3.12 and later: a fork beside threads, which every kernel has
SLEEP = [sys.executable, "-c", "import sys, time; print('up', flush=True); time.sleep(600)"]

def end(pid):
    os.kill(pid, signal.SIGTERM)
    return -os.WTERMSIG(os.waitpid(pid, 0)[1])

def program(**options):
    with subprocess.Popen(SLEEP, stdout=subprocess.PIPE, **options) as child:
        child.stdout.readline()
        child.terminate()
    return child.returncode

def forked(fork=os.fork):
    pid = fork()
    pid, fd = pid if isinstance(pid, tuple) else (pid, None)
    if pid == 0:
        time.sleep(600)
    try:
        return end(pid)
    finally:
        fd is None or os.close(fd)

def in_thread(function):
    results = []
    thread = threading.Thread(target=lambda: results.append(function()))
    thread.start(); thread.join()
    return results[0]

def process(method):
    child = multiprocessing.get_context(method).Process(target=time.sleep, args=(600,))
    child.start(); child.terminate(); child.join()
    return child.exitcode

async def coroutine():
    child = await asyncio.create_subprocess_exec(*SLEEP, stdout=subprocess.PIPE)
    await child.stdout.readline()
    child.terminate()
    return await child.wait()

def shell(command):
    get_ipython().system(command)
    return _exit_code

def loky():
    executor = get_reusable_executor(max_workers=1)
    pid = executor.submit(os.getpid).result()
    worker = executor._processes[pid]
    os.kill(pid, signal.SIGTERM)
    worker.join()
    return worker.exitcode

def popen():
    with os.popen("kill -TERM $$; echo not killed") as file:
        return file.read() or -15

results = {
    "Popen": program(), "Popen without close_fds": program(close_fds=False),
    "Popen with preexec_fn": program(preexec_fn=os.getpid), "Popen in thread": in_thread(program),
    "fork": forked(), "forkpty": forked(pty.fork), "fork in thread": in_thread(forked),
    "mp fork": process("fork"), "mp spawn": process("spawn"), "mp forkserver": process("forkserver"),
    "posix_spawn": end(os.posix_spawn("/bin/sleep", ["sleep", "600"], os.environ)),
    "system": -os.WTERMSIG(os.system("kill -TERM $$; echo not killed")), "popen": popen(),
    "loky": loky(),
    "!": shell("kill -TERM $$; echo not killed"), "asyncio": await coroutine(),
}
print({name: result for name, result in results.items() if result != -15}, len(results))
print(os.waitstatus_to_exitcode(os.system("exit 3")) if sys.version_info >= (3, 9) else 3)
"""


def test_children_die_of_sigterm_as_ever(kernel):
    assert kernel.run(CHILDREN) == "{} 16\n3\n"


@needs_root
def test_the_resource_tracker_leaves_the_sender_known(kernel, tmp_path):
    stop = kernel.folder / "stop-3"
    request = kernel.start(
        "import multiprocessing.resource_tracker as t, os, signal\n"
        "tracker = t.ResourceTracker(); tracker.ensure_running(); print(tracker._pid is not None)\n"
        + WAIT_FOR_FILE.format(str(stop))
    )
    assert "True" in kernel.wait_for(request, "started")
    with Term(tmp_path, kernel):
        assert "SIGTERM from root" in kernel.wait_for(request, "the cell goes on")
    stop.touch()
    assert kernel.finish(request)["status"] == "ok"


def test_a_thread_without_the_block_ends_nothing(kernel, tmp_path):
    stop = kernel.folder / "stop-4"
    unblock = "signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM])"
    request = kernel.start(
        f"import signal, threading, os\n{unblock}\n"
        f"def other():\n    {unblock}\n    ready.set(); leave.wait()\n"
        "ready, leave = threading.Event(), threading.Event()\n"
        "threading.Thread(target=other).start(); ready.wait()\n"
        + WAIT_FOR_FILE.format(str(stop))
        + "\nleave.set()"
    )
    kernel.wait_for(request, "started")
    for number in range(1, 4 if ROOT else 2):  # two of the owner's would end it
        with Term(tmp_path, kernel, 0 if ROOT else USER):
            kernel.wait_for(request, "the cell goes on", number)
    stop.touch()
    assert kernel.finish(request)["status"] == "ok"


def test_what_a_thread_without_the_block_gets_is_handed_to_the_guard(kernel):
    """A signal to that very thread: one for the process may as well go to the guard's, and has a sender then."""
    stop = kernel.folder / "stop-stray"
    request = kernel.start(
        "import signal\nsignal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM])\n"
        "signal.raise_signal(signal.SIGTERM)\n" + WAIT_FOR_FILE.format(str(stop))
    )
    assert "SIGTERM from an unknown sender" in kernel.wait_for(request, "the cell goes on")
    stop.touch()
    assert kernel.finish(request)["status"] == "ok"


def test_a_subshell_is_a_cell_too(start, tmp_path):
    kernel = start(LINGER=0)
    info = kernel.client.kernel_info(reply=True, timeout=WAIT)["content"]
    if "kernel subshells" not in info.get("supported_features", []):
        pytest.skip("this ipykernel has no subshells")
    session = kernel.client.session
    kernel.client.control_channel.send(session.msg("create_subshell_request"))
    subshell = kernel.client.get_control_msg(timeout=WAIT)["content"]["subshell_id"]
    stop = kernel.folder / "stop"
    content = {"code": WAIT_FOR_FILE.format(str(stop)), "silent": False, "store_history": True}
    message = session.msg("execute_request", content)
    message["header"]["subshell_id"] = subshell
    kernel.client.shell_channel.send(message)
    request = message["header"]["msg_id"]
    kernel.wait_for(request, "started")
    with Term(tmp_path, kernel, 0 if ROOT else USER):
        kernel.wait_for(request, "the cell goes on")
    stop.touch()
    kernel.pump(lambda: request in kernel.idle)
    assert kernel.text(request).endswith("the end\n")


# --- the ways to end


def test_the_owner_ends_it_by_two(start, tmp_path):
    kernel = start()
    assert "guard off" in kernel.run("%gpu guard off") and kernel.run("%gpu guard on") == "guard on\n"
    request = kernel.start("import time\nprint('begun', flush=True)\ntime.sleep(600)")
    kernel.wait_for(request, "begun")
    with Term(tmp_path, kernel, USER, "first"):
        kernel.wait_for(request, "A second one within 5 s ends it." if USER else "the kernel stays")
    if USER == 0:
        pytest.skip("run as root without another user: root never counts as owner")
    with Term(tmp_path, kernel, USER, "second"):
        assert kernel.ended() == -signal.SIGTERM
    kernel.wait_for(request, "the kernel ends.")
    assert [kernel.event()["action"], kernel.event()["action"]] == ["survived", "ended"]


def test_not_in_use_it_ends_after_its_hooks(start, tmp_path):
    kernel = start(LINGER=0)
    saved = kernel.folder / "saved"
    kernel.run(
        "import gpu_kernel, pathlib\n"
        f"@gpu_kernel.on_sigterm\ndef save():\n    print('saving'); pathlib.Path({str(saved)!r}).touch()\n"
        "hold = gpu_kernel.hold(); hold.__enter__()"
    )
    with Term(tmp_path, kernel, 0 if ROOT else USER):  # held, with no cell to tell: the story alone has it
        event = kernel.event()
        assert (event["event"], event["in_use"], event["action"]) == ("sigterm", True, "survived")
        assert (kernel.event()["event"], kernel.story[-1]["text"]) == ("hook", "saving\n")
    kernel.run("hold.__exit__(None, None, None)")
    assert "saving" not in "".join(kernel.texts.values()) and "SIGTERM" not in "".join(kernel.texts.values())
    saved.unlink()
    with Term(tmp_path, kernel, 0 if ROOT else USER):
        assert kernel.ended() == -signal.SIGTERM
    assert saved.exists()
    assert (kernel.event()["in_use"], kernel.story[-1]["action"]) == (False, "ended")


def test_a_hook_that_does_not_end_is_not_waited_for_for_ever(start, tmp_path):
    """Takes the 10 s that hooks have."""
    kernel = start(LINGER=0)
    begun = kernel.folder / "begun"
    kernel.run(
        "import gpu_kernel, pathlib, time\n@gpu_kernel.on_sigterm\n"
        f"def endless():\n    pathlib.Path({str(begun)!r}).touch()\n    time.sleep(600)"
    )
    with Term(tmp_path, kernel, 0 if ROOT else USER):
        wait_until(begun.exists)
        assert kernel.process.poll() is None
        assert kernel.ended() == -signal.SIGTERM


def test_a_working_process_tree_is_in_use(start, tmp_path):
    kernel = start(LINGER=0)
    kernel.run(
        "import subprocess, sys\n"
        "child = subprocess.Popen([sys.executable, '-c', 'print(1, flush=True)\\nwhile True: pass'],"
        " stdout=subprocess.PIPE)\nchild.stdout.readline()"
    )
    with Term(tmp_path, kernel, 0 if ROOT else USER):
        assert (kernel.event()["in_use"], kernel.story[-1]["action"]) == (True, "survived")
    kernel.run("child.terminate(); print(child.wait())")
    with Term(tmp_path, kernel, 0 if ROOT else USER):
        assert kernel.ended() == -signal.SIGTERM


def test_a_scheduler_s_sigterm_is_counted_down_to_its_sigkill(start, tmp_path):
    scontrol = tmp_path / "scontrol"
    scontrol.write_text("#!/bin/sh\n[ \"$*\" = 'show config' ] && echo 'KillWait                = 7 sec'\n")
    scontrol.chmod(0o755)
    kernel = start()
    kernel.run(f"import os; os.environ.update(SLURM_JOB_ID='1', PATH='{tmp_path}:' + os.environ['PATH'])")
    request = kernel.start("import time\nprint('begun', flush=True)\nwhile True: time.sleep(0.1)")
    kernel.wait_for(request, "begun")
    with Term(tmp_path, kernel, 0 if ROOT else USER, "slurmstepd"):
        said = kernel.wait_for(request, "SIGKILL in about 2 s")
    assert said.index("SIGKILL usually follows") < said.index("about 5 s") < said.index("about 2 s")
    os.kill(kernel.process.pid, signal.SIGINT)
    assert kernel.finish(request)["ename"] == "KeyboardInterrupt"


def test_memory_pressure_interrupts_first(start, tmp_path):
    kernel = start()
    (kernel.folder / "story").unlink()  # a keeper that is gone changes nothing
    request = kernel.start("import time\nx = 1\nprint('begun', flush=True)\ntime.sleep(600)")
    kernel.wait_for(request, "begun")
    with Term(tmp_path, kernel, USER, "earlyoom"):
        reply = kernel.finish(request)
    assert reply["ename"] == "KeyboardInterrupt" and "memory is short" in kernel.text(request)
    assert kernel.run("print(x)") == "1\n"
    with Term(tmp_path, kernel, USER, "earlyoom"):
        assert kernel.ended() == -signal.SIGTERM


def test_memory_pressure_frees_what_torch_holds(start, tmp_path):
    """torch itself is too large for this: a module of its name that says what it is asked for."""
    kernel = start()
    kernel.run(
        "import sys, types\ntorch = sys.modules['torch'] = types.ModuleType('torch')\nasked = []\n"
        "torch.cuda = types.SimpleNamespace(is_initialized=lambda: True, empty_cache=lambda: asked.append('freed'))"
    )
    request = kernel.start("import time\nprint('begun', flush=True)\ntime.sleep(600)")
    kernel.wait_for(request, "begun")
    with Term(tmp_path, kernel, USER, "earlyoom"):
        assert kernel.finish(request)["ename"] == "KeyboardInterrupt"
    assert kernel.run("print(asked)") == "['freed']\n"


def test_without_the_guard_sigterm_is_as_ever(start, tmp_path):
    kernel = start(SIGTERM="default")
    assert "without the guard" in kernel.run("%gpu guard on")
    assert "no effect" in kernel.run("import gpu_kernel; gpu_kernel.on_sigterm(print);")
    request = kernel.start("import time\nprint(gpu_kernel.status()['guard'], flush=True)\ntime.sleep(600)")
    kernel.wait_for(request, "off")
    os.kill(kernel.process.pid, signal.SIGTERM)
    assert kernel.ended() == -signal.SIGTERM


def test_switched_off_sigterm_is_as_ever(start):
    kernel = start()
    kernel.run("%gpu guard off")
    os.kill(kernel.process.pid, signal.SIGTERM)
    assert kernel.ended() == -signal.SIGTERM


def test_shutdown_passes_by_the_guard(start):
    kernel = start()
    kernel.client.shutdown()
    assert kernel.ended() == 0


# --- the rest of what a kernel finds


def test_it_looks_as_ipykernel_launcher_left_it(kernel):
    seen = json.loads(
        kernel.run(
            "import json, os, sys\n"
            "print(json.dumps([sys.argv, sys.path, [n for n in sys.modules if n.startswith('jupyter_gpu')],"
            " sorted(n for n in os.environ if n.startswith('JUPYTER_GPU_KERNEL'))]))"
        )
    )
    argv, path, modules, variables = seen
    assert Path(argv[0]).name == "ipykernel_launcher.py" and argv[1] == "-f"
    assert "" in path and not any(entry.endswith(".pyz") for entry in path)
    assert (modules, variables) == ([], ["JUPYTER_GPU_KERNEL_ID"])


def test_status_and_magic(kernel):
    status = eval(kernel.run("import gpu_kernel; print(gpu_kernel.status())"))
    assert (status["id"], status["pid"], status["guard"]) == ("k1", kernel.process.pid, "on")
    assert status["in_use"] is True and isinstance(status["sigterms"], int)
    assert "guard         on" in kernel.run("%gpu")
    assert kernel.run("%gpu nonsense").startswith("usage:")


def test_only_the_users_own_cells_are_activity(kernel):
    def active():
        last = {"last": "__import__('gpu_kernel')._guard.use._active"}
        return kernel.finish(kernel.start("", silent=True, user_expressions=last))["user_expressions"]

    before = active()
    kernel.run("print()", store_history=False)
    assert active() == before
    kernel.run("print()")
    assert active() != before


def test_the_keeper_gives_gpus(kernel):
    code = "__import__('gpu_kernel').take_gpus(['GPU-1', 'GPU-2'])"
    request = kernel.start("", silent=True, user_expressions={"early": code})
    reply = kernel.finish(request)
    assert reply["user_expressions"]["early"]["data"]["text/plain"] == "False"
    assert kernel.run("!echo $CUDA_VISIBLE_DEVICES $CUDA_DEVICE_ORDER").strip() == "GPU-1,GPU-2 PCI_BUS_ID"


def test_forked_output_arrives_without_a_port(kernel):
    text = kernel.run(
        "import multiprocessing, os, sys\n"
        "child = multiprocessing.get_context('fork').Process(target=print, args=('from a process',))\n"
        "child.start(); child.join()\n"
        "pid = os.fork()\n"
        "if pid == 0:\n    print('from a fork'); sys.stdout.flush(); os._exit(0)\n"
        "os.waitpid(pid, 0)\nprint('done')"
    )
    request = next(reversed(list(kernel.texts)))
    assert "done" in text
    kernel.wait_for(request, "from a process")
    kernel.wait_for(request, "from a fork")
    assert listening(kernel.process.pid) == []


def listening(pid):
    """The local addresses of a process's listening TCP sockets, from /proc."""
    links = [os.readlink(str(link)) for link in Path(f"/proc/{pid}/fd").iterdir()]
    inodes = {link[len("socket:[") : -1] for link in links if link.startswith("socket:[")}
    rows = [
        row.split()
        for name in ("tcp", "tcp6")
        for row in Path(f"/proc/{pid}/net/{name}").read_text().splitlines()
    ]
    return [row[1] for row in rows if row[3] == "0A" and row[9] in inodes]
