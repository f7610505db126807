"""Starts a kernel over plain ssh with five forwarded ports, as is done by hand, and waits for its end.

    python ssh_kernel.py SSH_CONFIG HOST PYTHON CONNECTION_FILE

One connection runs ipykernel, which reads its connection file from stdin; a second one forwards the ports. (A single
one would outlive the kernel: ssh does not exit as long as a client of a forwarded port tries to connect.)
"""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

from ports import choose


def main(config: str, host: str, python: str, connection_file: str) -> int:
    """Return the exit status of the connection that ended first."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    connection = json.loads(Path(connection_file).read_text())
    forwards = []
    for channel, port in zip(("shell", "iopub", "stdin", "control", "hb"), choose(5), strict=True):
        key = f"{channel}_port"
        forwards += ["-L", f"{connection['ip']}:{connection[key]}:127.0.0.1:{port}"]
        connection[key] = port
    connection["ip"] = "127.0.0.1"
    script = 'umask 077; f=$(mktemp); cat > "$f"; exec "$0" -m ipykernel_launcher -f "$f"'
    ssh = ["ssh", "-F", config, "-T", "-o", "ExitOnForwardFailure=yes", "-o", "LogLevel=ERROR"]
    with tempfile.TemporaryFile() as file:
        file.write(json.dumps(connection).encode())
        file.seek(0)
        kernel = subprocess.Popen([*ssh, host, shlex.join(["sh", "-c", script, python])], stdin=file)
    tunnel = subprocess.Popen([*ssh, "-N", *forwards, host], stdin=subprocess.DEVNULL)
    try:
        _, status = os.wait()
        return os.waitstatus_to_exitcode(status)
    finally:
        for process in (kernel, tunnel):
            process.kill()
            process.wait()


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
