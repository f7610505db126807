"""What the episodes of a run have in common, as JSON and as a table."""

from __future__ import annotations

import hashlib
import time
from collections import Counter
from typing import Any

from .runner import Result


class Summary:
    """`add` the result of each episode. The summary takes no more memory with more episodes, but for those that have
    failed."""

    def __init__(self) -> None:
        self.episodes = self.steps = 0
        self.failed: dict[int, str] = {}
        """The kinds of the failures, by seed."""
        self._faults: Counter[str] = Counter()
        self._states: set[bytes] = set()
        self._hash = hashlib.blake2b(digest_size=16)
        self._began = time.monotonic()

    def add(self, result: Result) -> None:
        """Add one episode."""
        self.episodes += 1
        self.steps += result.steps
        self._faults.update(result.faults)
        self._states |= result.states
        self._hash.update(result.digest.encode())
        if result.failure:
            self.failed[result.seed] = result.kind

    def json(self) -> dict[str, Any]:
        """Return {episodes, steps, faults {kind: n}, states, failed [seed], hash, seconds}."""
        return {
            "episodes": self.episodes,
            "steps": self.steps,
            "faults": dict(sorted(self._faults.items())),
            "states": len(self._states),
            "failed": list(self.failed),
            "hash": self._hash.hexdigest(),
            "seconds": round(time.monotonic() - self._began, 1),
        }

    def table(self) -> str:
        """Return the lines of a table in Markdown."""
        rows = {
            "episodes": f"{self.episodes:,}",
            "steps": f"{self.steps:,}",
            "different states of hubs, keepers and links": f"{len(self._states):,}",
            **{f"fault: {kind}": f"{count:,}" for kind, count in sorted(self._faults.items())},
            "failed": ", ".join(f"{seed} ({kind})" for seed, kind in self.failed.items()) or "none",
        }
        return "\n".join(["| | |", "|---|---|", *(f"| {name} | {value} |" for name, value in rows.items())])
