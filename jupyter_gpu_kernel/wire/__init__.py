"""The protocol between hub and work node. No I/O except in `files.py` and `sock_diag.py`; standard library, Python 3.8.

- From bytes to messages: `frames.py` (the stream), `queues.py` and `window.py` (chunks), `endpoint.py` (one end of an
  attachment), `compression.py`, `messages.py`.
- Messages in the kernel's place: `compose.py` makes them, `answers.py` answers requests, `streams.py` reads and splits
  stream output.
- What both ends read and write: `fields.py` (JSON of others), `kernel_settings.py`, `revisions.py`, `slurm.py`,
  `durations.py`, `texts.py`, `remedies.py`, `files.py`, `sock_diag.py`, and `runtime.py` (clocks and randomness).

The protocol number, not the build, decides compatibility: a hub serves keepers of older builds.
"""

from __future__ import annotations

PROTOCOL = 1
DEFAULT_GPUS = 1
"""How many GPUs a kernel gets if its settings do not say."""
MAX_PRIORITY = 99
"""A kernel's priority is a number from -MAX_PRIORITY to MAX_PRIORITY; 0 if its settings do not say."""
