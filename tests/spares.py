"""Kernels with the guard that are forked from a spare interpreter, as the user whose kernels they are."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

MAIN = """
if sys.argv[1] == "spare":
    from pathlib import Path
    from jupyter_gpu_kernel.wire.runtime import Runtime
    from jupyter_gpu_kernel.agent.spare import server
    run_kernel = server.kernel_main.run
    def run(argv):
        guard.HOOK_TIMEOUT = float(os.environ.get("JUPYTER_GPU_KERNEL_HOOK_TIMEOUT", guard.HOOK_TIMEOUT))
        run_kernel(argv)
    server.kernel_main.run = run
    sys.exit(server.run(Runtime(), Path(os.environ["SPARE_ROOT"]), sys.argv[2]))
"""
"""What the archive's `__main__` does for a spare interpreter. `sys`, `os` and `guard` are imported."""
PARENT = """
import json, os, sys, time
from pathlib import Path
archive, root, key, ready = sys.argv[1:5]
sys.path.insert(0, archive)
from jupyter_gpu_kernel.agent.spare.places import MAX_FDS, SOCKET_TYPE, is_own, receive_packet, send_packet
from jupyter_gpu_kernel.agent.spare.places import KernelStart
from jupyter_gpu_kernel.agent.spare.places import SparePlace
command, cwd, env = json.loads(sys.stdin.readline())
place = SparePlace(Path(root), key)
while not place.listens():
    time.sleep(0.01)
sock = None
while sock is None:
    sock = place.connect(60)
fds = {"JUPYTER_GPU_KERNEL_READY_FD": int(ready)}
start = KernelStart(command, command.index("ipykernel") + 1, cwd, env, 2, fds)
send_packet(sock, start.request(), [start.output, *fds.values()])
pid = receive_packet(sock)[0]["pid"]
send_packet(sock, {"go": True})
os.close(int(ready))
print(pid, flush=True)
sock.settimeout(None)
print(receive_packet(sock)[0]["status"], flush=True)
"""
"""A keeper's side, as the user whose kernel it is."""


class ForkedChild:
    """Used as a subprocess.Popen of the kernel. `as_user`: the words before a command that is to run as the user."""

    def __init__(
        self, as_user: list[str], command: list[str], env: dict[str, str], folder: Path, ready: int
    ) -> None:
        python, archive = command[:2]
        log = (folder / "log").open("wb")
        spare_env = {**env, "SPARE_ROOT": str(folder), "JUPYTER_GPU_KERNEL_RESERVED": "-" * 2048}
        for name in [name for name in spare_env if name.startswith("JUPYTER_GPU_KERNEL_")]:
            if name not in ("JUPYTER_GPU_KERNEL_RESERVED", "JUPYTER_GPU_KERNEL_SPARE_IDLE"):
                del spare_env[name]
        common = {"cwd": str(folder), "stderr": log}
        self._spare = subprocess.Popen(
            [*as_user, python, archive, "spare", "key", "-" * 200],
            env=spare_env, stdin=subprocess.DEVNULL, stdout=log, start_new_session=True, **common,
        )  # fmt: skip
        parent = [*as_user, python, "-c", PARENT, archive, str(folder), "key", str(ready)]
        self._parent = subprocess.Popen(
            parent, stdin=subprocess.PIPE, stdout=subprocess.PIPE, pass_fds=[ready], text=True, **common
        )
        log.close()
        assert self._parent.stdin and self._parent.stdout
        self._parent.stdin.write(json.dumps([command, str(folder), env]) + "\n")
        self._parent.stdin.flush()
        line = self._parent.stdout.readline()
        assert line, (folder / "log").read_text()
        self.pid = int(line)

    def wait(self, timeout: float) -> int:
        """The kernel's return code, as its parent knows it."""
        self._parent.wait(timeout)
        if not hasattr(self, "returncode"):
            self.returncode = int(self._parent.stdout.readline())
            self._parent.stdin.close()
            self._parent.stdout.close()
            self._spare.kill()
            self._spare.wait(timeout)
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Send a signal to the kernel."""
        os.kill(self.pid, number)

    def poll(self) -> int | None:
        return None if self._parent.poll() is None else self.wait(60)
