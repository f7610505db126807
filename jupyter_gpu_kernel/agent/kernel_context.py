"""What most parts of a keeper use."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from .kernel_settings import CurrentSettings
from .loop import Loop
from .process_control import ProcessControl
from .story import Story


class KernelContext(NamedTuple):
    """The event loop, the system's processes, and the settings, folder and story of the keeper's kernel."""

    loop: Loop
    processes: ProcessControl
    settings: CurrentSettings
    folder: Path
    story: Story
