"""The kernel's side of the pipe to its keeper: its end is noticed, whatever the user's code has forked."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

PROGRAM = """
import os, select, sys, threading, time
from jupyter_gpu_kernel.agent.in_kernel.keeper_watch import KeeperWatch
from jupyter_gpu_kernel.agent.in_kernel.guard import Guard
from jupyter_gpu_kernel.agent.in_kernel.output_window import OutputWindow
from jupyter_gpu_kernel.agent.in_kernel.usage import Usage
from jupyter_gpu_kernel.agent.story import Story

begun, go = sys.argv[1:]
successor = f'''  # what it has to know is one line
import os, socket
from jupyter_gpu_kernel.agent.system.unix_sockets import send_descriptors
pipe, held = os.pipe()
send_descriptors(socket.socket(fileno=os.dup(0)), b"-", [pipe])
open({begun!r}, 'w').close(); open({go!r}).read(); input()
'''
orphan = KeeperWatch(Guard(Usage()), Story(begun + '.story', time.time), os.dup(0), OutputWindow(), 0.0)
command = [sys.executable, "-c", successor]
orphan._successor = {"command": command, "cwd": "/", "environ": dict(os.environ), "settings": {}}
started = []
thread = threading.Thread(target=lambda: started.append(orphan._start()))
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


def test_a_process_that_a_cell_forks_does_not_hold_a_dead_keepers_pipe_open(tmp_path: Path) -> None:
    fifos = [str(tmp_path / name) for name in ("begun", "go")]
    for fifo in fifos:
        os.mkfifo(fifo)
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", PROGRAM, *fifos]
    done = subprocess.run(command, stderr=subprocess.PIPE, timeout=60)
    assert done.returncode == 0, done.stderr.decode()
