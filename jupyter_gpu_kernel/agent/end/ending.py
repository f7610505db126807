"""A kernel's end, as the keeper has it: why it came, told in the story, and an end for what the kernel left."""

from __future__ import annotations

from pathlib import Path
from typing import Any, List, Mapping

from ..loop import Loop
from ..story import Story
from .deaths import Death
from .remains import Remains
from .witness import Witness


class Ending:
    """`witness` is told what happens meanwhile; `remains` are what was left; `death` is the last one."""

    def __init__(self, loop: Loop, folder: Path, story: Story) -> None:
        self.witness = Witness(loop, folder / "stderr")
        self.remains = Remains(loop, folder.name)
        self.death = Death("")
        self._story = story

    def explain(self, returncode: int, asked: str, term: Mapping[str, Any], gpus: List[str]) -> str:
        """The sentence for its cells. `term`: the story's last SIGTERM; `gpus`: UUIDs. Blocks for a moment."""
        left = self.remains.end()
        self.death = self.witness.explain(returncode, asked, term, gpus)
        text = f"the kernel ended: {self.death}"
        self._story.tell("end", text, returncode=returncode, asked=asked, **self.death._asdict())
        for process in left:
            self._story.tell("leftover", f"ending what it left: {process.command} (pid {process.pid})")
        return text
