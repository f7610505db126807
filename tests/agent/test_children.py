"""Children of a guarded kernel, of every kind: SIGTERM ends them as it would without the guard."""

from __future__ import annotations

from guarded import WAIT_FOR_FILE, Term, needs_root

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
    working = executor.submit(time.sleep, 600)
    os.kill(pid, signal.SIGTERM)
    error = type(working.exception(60)).__name__  # its own thread reaps the worker
    return -15 if error == "TerminatedWorkerError" else error

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
