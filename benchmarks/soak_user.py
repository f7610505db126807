"""One user of `soak_cluster.py`: random cells, interrupts, restarts, and the ends of keepers, in one kernel.

    python benchmarks/soak_user.py KERNELSPEC WAY SEED

WAY is `provisioner` or `argv`. Each line of stdin is a JSON object: {"do": "hub killed"}, {"do": "kernels end"} (a
fault that ends kernels, from now on), {"do": "calm"} (the last cells, then the user leaves the kernel). `soak_front.py`
says what is printed.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
import threading
from collections.abc import Callable

from soak_cells import ASK, DISPLAY, KILL, PRINT, Request
from soak_front import PROGRAM, FrontEnd, say


class User:
    """Does this and that until all is calm."""

    def __init__(self, spec: str, way: str, seed: str) -> None:
        self.rng, self.calm = random.Random(seed), False
        self.front = FrontEnd(spec, way)
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        for line in sys.stdin:
            self.calm = self.front.learn(json.loads(line)["do"]) or self.calm
        self.calm = True

    def live(self) -> None:
        """Random actions, then the last ones."""
        actions: list[tuple[int, Callable[[], object]]] = [
            (16, self.lines), (6, self.long), (6, self.storm), (8, self.silent), (6, self.asks), (6, self.fails),
            (4, self.displays), (6, self.burst), (8, self.completes), (8, self.interrupted), (5, self.restarted),
            (5, self.keeper_killed), (5, self.front.audit),
        ]  # fmt: skip
        weights, functions = zip(*actions, strict=True)
        self.front.meet()
        say(met=self.front.kernel_id)
        while not self.calm:
            (action,) = self.rng.choices(functions, weights)
            action()
            self.front.finish()
            self.front.pause(self.rng.expovariate(1 / 3))
        for action in (self.lines, self.storm, self.completes, self.front.audit):
            action()
            self.front.finish()
        say(left=self.front.spec, repeated=self.front.repeated)

    def lines(self) -> None:
        self.print(self.rng.randint(1, 40), self.rng.choice([0, 0.01, 0.1]))

    def long(self) -> None:
        self.print(self.rng.randint(50, 400), 0.1)

    def storm(self) -> None:
        self.print(self.rng.randint(2_000, 20_000), 0)

    def burst(self) -> None:
        for _ in range(self.rng.randint(2, 5)):
            self.print(self.rng.randint(1, 20), 0.05)

    def print(self, n: int, pause: float) -> None:
        """A cell with so many lines, and so many seconds after each."""
        number = self.front.number
        code = PRINT.format(n=n, number=number, pause=pause, slow=pause > 0)
        text = "".join(f"{number} {i}\n" for i in range(n))
        self.front.run("lines" if n < 2_000 else "storm", code, text=text)

    def silent(self) -> None:
        silent = self.rng.random() < 0.3
        code = f"import time; time.sleep({self.rng.choice([0, 0, 1, 10, 30])})"
        self.front.run("silent=True" if silent else "silent", code, silent=silent)

    def asks(self) -> None:
        n, number = self.rng.randint(1, 3), self.front.number
        text = "".join(f"{number} {number} {i}?!\n" for i in range(n))
        self.front.run("input", ASK.format(n=n, number=number), text=text)

    def fails(self) -> None:
        text = f"{self.front.number} before\n"
        self.front.run("error", f"print({text.strip()!r})\n1 / 0", text=text, error="ZeroDivisionError")

    def displays(self) -> None:
        n = self.rng.randint(100_000, 1_500_000)
        self.front.run("display", DISPLAY.format(n=n, number=self.front.number), displays=n)

    def completes(self) -> None:
        if self.rng.random() < 0.5:
            self.print(20, 0.1)
        for _ in range(self.rng.randint(1, 4)):
            kind = self.rng.choice(["complete_request", "inspect_request", "is_complete_request"])
            content = {} if kind == "is_complete_request" else {"cursor_pos": 3, "detail_level": 0}
            self.front.ask("shell", Request(kind, 0), code="pri", **content)
            self.front.pause(self.rng.uniform(0, 1))

    def interrupted(self) -> None:
        self._something_long()
        self.front.interrupt()

    def restarted(self) -> None:
        if self.rng.random() < 0.7:
            self._something_long()
        self.front.restart(now=self.rng.random() < 0.3)

    def keeper_killed(self) -> None:
        """A cell kills it, later. The node's story has its pid."""
        words = [*PROGRAM, "logs", self.front.kernel_id, "--json"]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        keepers = [row["keeper"] for row in json.loads(done.stdout or "[]") if "keeper" in row]
        if keepers and done.returncode == 0:
            after = self.rng.choice([0.01, 1, 5, 20])
            self.front.run("kill", KILL.format(pid=keepers[-1], kernel=self.front.kernel_id, after=after))
            say(fault="keeper killed", pid=keepers[-1], after=after, spec=self.front.spec)

    def _something_long(self) -> None:
        if self.rng.random() < 0.3:
            self.print(self.rng.randint(5_000, 20_000), 0)
        for _ in range(self.rng.choice([1, 1, 3])):
            self.print(300, 0.1)
        self.front.pause(self.rng.choice([0, 0.2, 3, 10]))


if __name__ == "__main__":
    User(*sys.argv[1:4]).live()
