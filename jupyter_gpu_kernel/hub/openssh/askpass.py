"""What ssh runs as SSH_ASKPASS: passes its question to the hub, and prints the answer.

It runs as a program of its own, which pip makes for `run`, and imports the standard library only, as long as the
`__init__`s of `hub` and `hub/openssh` import nothing. The environment tells where the hub listens.
"""

from __future__ import annotations

import json
import os
import sys
from multiprocessing.connection import Client

ADDRESS, TOKEN = "JUPYTER_GPU_KERNEL_ASKPASS", "JUPYTER_GPU_KERNEL_ASKPASS_TOKEN"


def run() -> int:
    """Ask for the prompt that is this program's argument, and print the answer. Return the exit status: 0 if there is
    an answer."""
    prompt = sys.argv[1] if len(sys.argv) > 1 else ""
    kind = os.environ.get("SSH_ASKPASS_PROMPT", "")
    with Client(os.environ[ADDRESS]) as connection:
        connection.send_bytes(json.dumps([os.environ.get(TOKEN, ""), kind, prompt]).encode())
        try:
            answer = connection.recv_bytes()
        except (EOFError, OSError):  # refused
            return 1
    sys.stdout.buffer.write(answer + b"\n")
    return 0
