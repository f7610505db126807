"""Fixtures every test may use; each lives in a file of its own."""

from __future__ import annotations

import signal

# A shell that starts the tests in the background has SIGINT ignored, and so have all processes that they start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

pytest_plugins = ["environments", "sshd", "house", "remote"]
