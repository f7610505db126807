"""What most parts of a keeper use."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import NamedTuple

from .kernel_settings import CurrentSettings
from .paths import Root
from .story import Story
from .system.loop import Loop


class KernelContext(NamedTuple):
    """The event loop, the agent's folder, and the settings, folder and story of one kernel.

    `lease_queue`: see `gpus.sharing.lease_transfer.LeaseTransfer`.
    """

    loop: Loop
    settings: CurrentSettings
    root: Root
    folder: Path
    story: Story
    lease_queue: socket.socket
