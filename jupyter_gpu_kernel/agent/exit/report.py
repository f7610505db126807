"""Reports a kernel's end for its keeper: finds the reason, writes it into the story, ends leftover processes."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Callable, List, Mapping

from ..loop import Loop
from ..story import Story
from .facts import FactCollector, check_node
from .processes import Cleanup
from .reason import ExitReason, Facts, explain


class ExitReport:
    """The parts that deal with a kernel's end. `reason` is that of the last end."""

    def __init__(self, loop: Loop, folder: Path, story: Story) -> None:
        """`folder`: the kernel's."""
        self.collector = FactCollector(loop, folder / "stderr")
        self.cleanup = Cleanup(loop.later, folder)
        self.reason = ExitReason("")
        self._loop = loop
        self._story = story

    def explain(
        self,
        returncode: int,
        requested: str,
        sigterm: Mapping[str, Any],
        gpus: List[str],
        done: Callable[[str], None],
    ) -> None:
        """Find the reason and call `done` with the sentence for the kernel's cells.

        It is called at once if the end was requested; otherwise after checks of the node, which may take seconds.

        requested: "restart" or "shutdown"; "" if the kernel ended by itself.
        sigterm: The story's last entry about a SIGTERM.
        gpus: The UUIDs of the kernel's GPUs.
        """
        leftovers = self.cleanup.terminate()
        facts = self.collector.facts(returncode, requested, sigterm)

        def tell(facts: Facts) -> None:
            self.reason = explain(facts)
            text = f"the kernel ended: {self.reason}"
            self._story.tell("end", text, returncode=returncode, asked=requested, **self.reason._asdict())
            for process in leftovers:
                self._story.tell(
                    "leftover", f"ending a leftover process: {process.command} (pid {process.pid})"
                )
            done(text)

        if requested:
            tell(facts)
        else:
            self._loop.run_in_thread(lambda: check_node(facts, gpus), tell)
