"""A kernel's end, as the keeper has it: why it came, told in the story, and an end for what the kernel left."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Callable, List, Mapping

from ..loop import Loop
from ..story import Story
from .cleanup import Cleanup
from .facts import FactCollector, searched
from .reason import ExitReason, Facts, explain


class ExitReport:
    """`witness` is told what happens meanwhile; `remains` are what was left; `death` is the last one."""

    def __init__(self, loop: Loop, folder: Path, story: Story) -> None:
        self.collector = FactCollector(loop, folder / "stderr")
        self.cleanup = Cleanup(loop, folder)
        self.death = ExitReason("")
        self._loop = loop
        self._story = story

    def explain(
        self,
        returncode: int,
        asked: str,
        term: Mapping[str, Any],
        gpus: List[str],
        done: Callable[[str], None],
    ) -> None:
        """`done(the sentence for its cells)`, at once or, where a look at disks and GPUs is needed, in some seconds.

        `term`: the story's last SIGTERM; `gpus`: UUIDs.
        """
        left = self.cleanup.end()
        facts = self.collector.facts(returncode, asked, term)

        def tell(facts: Facts) -> None:
            self.death = explain(facts)
            text = f"the kernel ended: {self.death}"
            self._story.tell("end", text, returncode=returncode, asked=asked, **self.death._asdict())
            for process in left:
                self._story.tell("leftover", f"ending what it left: {process.command} (pid {process.pid})")
            done(text)

        if asked:
            tell(facts)
        else:
            self._loop.run_in_thread(lambda: searched(facts, gpus), tell)
