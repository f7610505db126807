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
    watch = KeeperWatch(Guard(Usage()), story, KeptLeases(os.dup(0)), OutputWindow(), 0.0)
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
FORKS_TWICE = """
leases = socket.socket().detach()
kept = KeptLeases(leases)
child = os.fork()
if not child:
    assert kept.fd == -1 and not os.path.exists(f"/proc/self/fd/{leases}")
    os.dup2(0, leases)  # another file may have the number
    grandchild = os.fork()
    if not grandchild:
        os._exit(0 if os.path.exists(f"/proc/self/fd/{leases}") else 1)
    os._exit(os.waitpid(grandchild, 0)[1] >> 8)
assert os.waitpid(child, 0)[1] == 0 and os.path.exists(f"/proc/self/fd/{leases}")
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


def test_a_process_that_a_cell_forks_does_not_keep_the_leases(tmp_path: Path) -> None:
    run(FORKS_TWICE, str(tmp_path / "unused"))
