"""What ssh runs as SSH_ASKPASS: passes its question to the hub, and prints the answer.

It runs as a program of its own (`python -I -S askpass.py PROMPT`), so it imports the standard library only. The
environment tells where the hub listens.
"""

from __future__ import annotations

import json
import os
import socket
import sys

SOCKET, TOKEN = "JUPYTER_GPU_KERNEL_ASKPASS", "JUPYTER_GPU_KERNEL_ASKPASS_TOKEN"
ASKER = "JUPYTER_GPU_KERNEL_ASKPASS_FOR"
"""The id of the ssh process of the hop. Another one that it has started, as its ProxyCommand, has this variable too."""


def main(prompt: str) -> int:
    """Return the exit status: 0 if there is an answer."""
    kind = os.environ.get("SSH_ASKPASS_PROMPT", "")
    own = os.environ.get(ASKER) == str(os.getppid())
    question = json.dumps([os.environ.get(TOKEN, ""), kind, prompt, own]).encode()
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.connect(os.environ[SOCKET])
        connection.sendall(question)
        connection.shutdown(socket.SHUT_WR)
        answer = b"".join(iter(lambda: connection.recv(65536), b""))
    if answer[:1] != b"+":
        return 1
    sys.stdout.buffer.write(answer[1:] + b"\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1] if len(sys.argv) > 1 else ""))
