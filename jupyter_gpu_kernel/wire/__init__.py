"""The protocol between hub and work node: frames, messages, queues, endpoints. No I/O, stdlib only, Python 3.8.

The protocol number, not the build, decides compatibility: a hub serves keepers of older builds.
"""

from __future__ import annotations

PROTOCOL = 1
DEFAULT_GPUS = 1
"""How many GPUs a kernel gets if its settings do not say."""
MAX_PRIORITY = 99
"""A kernel's priority is a number from -MAX_PRIORITY to MAX_PRIORITY; 0 if its settings do not say."""
