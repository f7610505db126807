"""The protocol between hub and work node. No I/O except in `files.py` and `sock_diag.py`; standard library, Python 3.8.

- `stream/`: from the bytes of a stream to messages. `messages.py`: what is in a message.
- `kernel_messages/`: messages in the kernel's place.
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
