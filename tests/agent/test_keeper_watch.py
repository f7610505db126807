"""The kernel's side of the pipe to its keeper: its end is noticed, whatever the user's code has forked."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

WATCH = """
import os, select, signal, socket, sys, threading, time
from jupyter_gpu_kernel.agent.in_kernel.keeper_watch import KeeperWatch, KeptLeases
from jupyter_gpu_kernel.agent.in_kernel.guard import Guard
from jupyter_gpu_kernel.agent.in_kernel.output_window import OutputWindow
from jupyter_gpu_kernel.agent.in_kernel.usage import Usage
from jupyter_gpu_kernel.agent.story import Story

def keeper_watch(successor):
    command = [sys.executable, "-c", successor]
    story = Story(sys.argv[1] + '.story', time.time)
    watch = KeeperWatch(Guard(Usage()), story, KeptLeases(os.dup(0), list), OutputWindow(), 0.0)
    watch._successor = {"command": command, "cwd": "/", "environ": {**os.environ}, "settings": {}, "ended": []}
    return watch
"""
FORKS_LATER = """
begun, go = sys.argv[1:]
successor = f'''  # what it has to know is one line
import os, socket
from jupyter_gpu_kernel.agent.system.agent_runtime import send_descriptors
pipe, held = os.pipe()
send_descriptors(socket.socket(fileno=os.dup(0)), b"-", [pipe])
open({begun!r}, 'w').close(); open({go!r}).read(); input()
'''
watch, started = keeper_watch(successor), []
thread = threading.Thread(target=lambda: started.append(watch._start()))
thread.start()
open(begun).close()  # the successor runs, and has made the new pipe
child = os.fork()
if not child:
    select.select([], [], [])
open(go, "w").close()  # it is ready; and as it has ended then, the pipe must end
thread.join()
pipe, problem = started[0]
ended = select.select([pipe], [], [], 20.0)[0] and os.read(pipe, 1) == b""
os.kill(child, 9)
os.waitpid(child, 0)
sys.exit(0 if ended and not problem else problem or "the pipe did not end")
"""
FORKS_MEANWHILE = """
watch, children = keeper_watch("import sys; sys.exit('it does not start')"), []

def fork():
    children.append(os.fork())
    if not children[-1]:
        signal.alarm(60)
        signal.pause()

def hook(event, args):
    if event == "subprocess.Popen":  # its pipes are open
        forking.start()
        forking.join(0.5)  # the child would hold them open

forking = threading.Thread(target=fork)
sys.addaudithook(hook)
pipe, problem = watch._start()
forking.join()
os.kill(*children, 9)
os.waitpid(*children, 0)
sys.exit(0 if problem == "it does not start" else problem or "it started")
"""
FORKS_WHILE_A_START_HANGS = """
from jupyter_gpu_kernel.agent.in_kernel import keeper_watch as module

def hook(event, args):
    if event == "subprocess.Popen":
        hangs.set()
        forked.wait()

module._FORK_WAIT = 0.1
watch, hangs, forked = keeper_watch("import sys; sys.exit('it does not start')"), threading.Event(), threading.Event()
sys.addaudithook(hook)
starting = threading.Thread(target=watch._start)
starting.start()
hangs.wait()
child = os.fork()
if not child:
    signal.alarm(20)
    grandchild = os.fork()  # which would wait for a thread that is not in this process
    os._exit(0 if not grandchild else os.waitpid(grandchild, 0)[1])
forked.set()
starting.join()
sys.exit(os.waitpid(child, 0)[1])
"""
CLOSES_LEASES = """
def is_open_in_child():
    child = os.fork()
    if not child:
        os._exit(0 if os.path.exists(f"/proc/self/fd/{leases}") else 1)
    return os.waitpid(child, 0)[1] == 0

leases = socket.socket().detach()
kept = KeptLeases(leases, list)
assert kept.fd == leases and not is_open_in_child()
os.close(leases)
assert kept.fd == -1 and not is_open_in_child()
os.dup2(socket.socket().detach(), leases)
assert kept.fd == -1 and is_open_in_child(), "the number is that of another file"
"""


def run(program: str, *argv: str) -> None:
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", WATCH + program, *argv]
    done = subprocess.run(command, stderr=subprocess.PIPE, timeout=50)
    assert done.returncode == 0, done.stderr.decode()


def test_a_process_that_a_cell_forks_does_not_hold_a_dead_keepers_pipe_open(tmp_path: Path) -> None:
    fifos = [str(tmp_path / name) for name in ("begun", "go")]
    for fifo in fifos:
        os.mkfifo(fifo)
    run(FORKS_LATER, *fifos)


def test_a_cell_that_forks_while_a_successor_is_started_does_not_hold_up_its_start(tmp_path: Path) -> None:
    run(FORKS_MEANWHILE, str(tmp_path / "unused"))


def test_a_start_of_a_successor_that_hangs_does_not_hold_up_a_cell_that_forks(tmp_path: Path) -> None:
    run(FORKS_WHILE_A_START_HANGS, str(tmp_path / "unused"))


def test_a_descriptor_that_a_cell_has_closed_is_not_that_of_the_leases_any_more(tmp_path: Path) -> None:
    run(CLOSES_LEASES, str(tmp_path / "unused"))
