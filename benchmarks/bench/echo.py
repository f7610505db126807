"""Measures how long a kernel takes to answer on its control channel, in a process of its own.

    python echo.py CONNECTION_FILE

Asks again 10 ms after each answer. Each line on stdin begins a new phase; at the end of stdin it prints a JSON array
with each phase's sorted times in seconds.
"""

from __future__ import annotations

import json
import sys
import threading
import time

from jupyter_client import BlockingKernelClient

_PAUSE = 0.01
_TIMEOUT = 60.0


def main(connection_file: str) -> None:
    client = BlockingKernelClient(connection_file=connection_file)
    client.load_connection_file()
    socket, session = client.control_channel.socket, client.session
    phases: list[list[float]] = [[]]
    ended = threading.Event()

    def follow() -> None:
        for _ in sys.stdin:
            phases.append([])
        ended.set()

    threading.Thread(target=follow, daemon=True).start()
    while not ended.is_set():
        phase = phases[-1]
        began = time.perf_counter()
        session.send(socket, session.msg("kernel_info_request"))
        if not socket.poll(_TIMEOUT * 1000):
            raise SystemExit(f"no answer on the control channel in {_TIMEOUT:g} s")
        session.recv(socket)
        phase.append(time.perf_counter() - began)
        time.sleep(_PAUSE)
    print(json.dumps([sorted(phase) for phase in phases]))


if __name__ == "__main__":
    main(sys.argv[1])
