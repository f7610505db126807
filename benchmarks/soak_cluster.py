"""Soaks kernels on a cluster: random cells, faults at random moments; prints what was lost, doubled, left, or hung.

    python benchmarks/soak_cluster.py --kernel HOME:KERNELSPEC[:argv]… [--fault NAME=COMMAND]… [--fatal NAME=COMMAND]…
        [--left COMMAND]… [--minutes N] [--seed N] [--json] [@FILE]

It runs against any cluster that `jupyter gpu-kernel add` has made kernelspecs for. HOME is the folder of one user of
this computer, with the folders `data` (JUPYTER_DATA_DIR, in which the kernelspecs are) and `run` (XDG_RUNTIME_DIR);
several users are several folders. Each `--kernel` gets a front end (`soak_user.py`), by the provisioner or by argv
alone. The front ends interrupt and restart their kernels, and kill their keepers; this program kills the hubs.

What else can break a cluster is given by commands for a shell, for example `--fault "cut=sudo ifdown eth1; sleep
{seconds}; sudo ifup eth1"`: {seconds} is between 2 and 90. `--fatal` are those that end kernels, as a node's crash. A
command ends when its fault has ended. An option that is given twice is drawn twice as often. `--left` is run at the
end, until it prints nothing: what it prints is left. An @FILE has one word a line. `--seed` repeats the decisions.

At the end all faults end; each kernel must answer, and `stop --all` must leave nothing: no kernel, no lease, and here
no process and no socket. Exit 1 if a promise was broken. Events are written to `--events`, one JSON object a line.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, TextIO

import psutil

PROGRAM = [sys.executable, "-m", "jupyter_gpu_kernel.cli"]
HUB = "from jupyter_gpu_kernel.client import HubClient; print(HubClient(start=False).call('hello')['pid'])"
USER = Path(__file__).with_name("soak_user.py")
ENDS = 900.0
"""Seconds that the front ends have for their last cells."""
NOTHING = 180.0
"""Seconds within which nothing is left on the cluster."""
HUB_ENDS = 420.0
"""Seconds after its last use within which a hub has ended: 5 minutes, and some."""


class Home:
    """One user of this computer."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder.absolute()
        places = {"JUPYTER_DATA_DIR": str(self.folder / "data"), "XDG_RUNTIME_DIR": str(self.folder / "run")}
        self.environment = {**os.environ, **places}

    def ask(self, *words: str) -> Any:
        """What a command prints as JSON."""
        done = self._run([*PROGRAM, *words, "--json"])
        return json.loads(done.stdout) if done.stdout.strip() else {"error": done.stderr.strip()}

    def hub(self) -> int | None:
        """The pid of the hub, if there is one."""
        done = self._run([sys.executable, "-c", HUB])
        return int(done.stdout) if done.returncode == 0 else None

    def sockets(self) -> list[str]:
        """Files of hubs that somebody could connect to."""
        return [str(path) for path in (self.folder / "run").rglob("*") if path.is_socket()]

    def _run(self, words: list[str]) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            words, env=self.environment, capture_output=True, text=True, timeout=300, check=False
        )


class Soak:
    """All front ends, and all faults."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.rng = random.Random(options.seed)
        self.options = options
        self.began = time.time()
        self.lock = threading.Lock()
        self.events: TextIO = options.events.open("a", encoding="utf-8")
        self.counts: Counter[str] = Counter()
        self.wrong: list[dict[str, Any]] = []
        self.running: dict[str, threading.Thread] = {}
        folders = {word.split(":")[0]: Home(Path(word.split(":")[0])) for word in options.kernel}
        self.homes = list(folders.values())
        self.fronts = []
        for number, word in enumerate(options.kernel):
            folder, spec, *way = word.split(":")
            words = [sys.executable, str(USER), spec, *(way or ["provisioner"]), f"{options.seed}-{number}"]
            self.fronts.append((folders[folder], self._front(words, folders[folder], spec)))

    def _front(self, words: list[str], home: Home, spec: str) -> subprocess.Popen[str]:
        errors = open(f"{self.options.events}.{spec}.err", "a")  # noqa: SIM115 - the process's own
        pipe = subprocess.PIPE
        front = subprocess.Popen(
            words, env=home.environment, stdin=pipe, stdout=pipe, stderr=errors, text=True
        )
        threading.Thread(target=self._read, args=(front, spec), daemon=True).start()
        return front

    def _read(self, front: subprocess.Popen[str], spec: str) -> None:
        assert front.stdout is not None
        for line in front.stdout:
            self.note(json.loads(line))
        if front.wait() != 0:
            self.note({"wrong": f"the front end has ended with {front.returncode}", "spec": spec})

    def note(self, event: dict[str, Any]) -> None:
        """Something has happened."""
        event.setdefault("time", time.time())
        with self.lock:
            self.events.write(json.dumps(event) + "\n")
            self.events.flush()
            for kind in ("met", "cell", "fault", "wrong", "excused", "ended"):
                if kind in event:
                    self.counts[f"{kind} {event[kind]}" if kind in ("cell", "fault") else kind] += 1
            if "wrong" in event:
                self.wrong.append(event)
                print("WRONG", event, file=sys.stderr, flush=True)

    def soak(self) -> None:
        """Faults until the time is over."""
        faults = [("hub killed", "", False)] * self.options.hub_kills
        faults += [(*_named(word), False) for word in self.options.fault]
        faults += [(*_named(word), True) for word in self.options.fatal]
        while self.counts["met"] < len(self.fronts):
            time.sleep(1)
        end, told = self.began + self.options.minutes * 60, self.began
        while time.time() < end:
            time.sleep(self.rng.expovariate(1 / self.options.every))
            name, command, fatal = self.rng.choice(faults)
            seconds = 2 * 45 ** self.rng.random()
            if not command:
                self._kill_hub(self.rng.choice(self.homes))
            elif name not in self.running or not self.running[name].is_alive():
                words = (name, command.replace("{seconds}", f"{seconds:.1f}"), fatal)
                self.running[name] = threading.Thread(target=self._fault, args=words)
                self.running[name].start()
            if time.time() > told + 60:
                told = time.time()
                self.report()

    def _kill_hub(self, home: Home) -> None:
        hub = home.hub()
        if hub is None:
            return
        self._tell("hub killed", home)
        os.kill(hub, signal.SIGKILL)
        self.note({"fault": "hub killed", "home": home.folder.name, "pid": hub})

    def _fault(self, name: str, command: str, fatal: bool) -> None:
        self.note({"fault": name, "command": command})
        if fatal:
            self._tell("kernels end")
        done = subprocess.run(command, shell=True, capture_output=True, text=True, check=False)
        self.note(
            {"over": name, "returncode": done.returncode, "printed": (done.stdout + done.stderr)[-500:]}
        )

    def _tell(self, what: str, home: Home | None = None) -> None:
        for of, front in self.fronts:
            if (home is None or of is home) and front.poll() is None:
                assert front.stdin is not None
                front.stdin.write(json.dumps({"do": what}) + "\n")
                front.stdin.flush()

    def end(self) -> None:
        """Without faults: all answer, and nothing is left."""
        for thread in self.running.values():
            thread.join()
        self._tell("calm")
        for _, front in self.fronts:
            try:
                front.wait(ENDS)
            except subprocess.TimeoutExpired:
                self.note({"wrong": f"a front end has not ended: {front.args}"})
                front.kill()
        for home in self.homes:
            self.note({"stopped": home.ask("stop", "--all")})
        for home in self.homes:
            self._nothing(lambda home=home: home.ask("ps"), NOTHING)
            self._nothing(
                lambda home=home: [row for row in home.ask("gpus") if not row.get("free") and "uuid" in row],
                NOTHING,
            )
        hubs = [hub for home in self.homes if (hub := home.hub()) is not None]
        self._nothing(lambda: [hub for hub in hubs if psutil.pid_exists(hub)], HUB_ENDS)
        for home in self.homes:
            self._nothing(home.sockets, 10)
            self._nothing(lambda home=home: _processes(home), 10)
        for command in self.options.left:  # hubs had connections
            self._nothing(lambda command=command: _output(command), NOTHING)

    def _nothing(self, look: Callable[[], Any], within: float) -> None:
        end = time.time() + within
        while left := look():
            if time.time() > end:
                return self.note({"wrong": f"left: {left}"})
            time.sleep(5)

    def report(self) -> None:
        """Every minute."""
        cells = sum(count for kind, count in self.counts.items() if kind.startswith("cell"))
        faults = {kind[6:]: count for kind, count in self.counts.items() if kind.startswith("fault")}
        excused, ended, wrong = (self.counts[kind] for kind in ("excused", "ended", "wrong"))
        minutes = (time.time() - self.began) / 60
        text = f"{minutes:.0f} min: {cells} cells, {wrong} wrong, {excused} excused, {ended} ended with their kernel"
        print(f"{text}; {faults}", file=sys.stderr, flush=True)


def _named(word: str) -> tuple[str, str]:
    name, _, command = word.partition("=")
    return name, command


def _output(command: str) -> str:
    done = subprocess.run(command, shell=True, capture_output=True, text=True, check=False)
    return (done.stdout + done.stderr).strip()


def _processes(home: Home) -> list[str]:
    """This user's, but for this program's."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get("XDG_RUNTIME_DIR") == home.environment["XDG_RUNTIME_DIR"]:
                found.append(f"{process.pid} {process.cmdline()}")
        except psutil.Error:
            continue
    return found


def main() -> int:
    """Soaks, prints; 1 if a promise was broken."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0], fromfile_prefix_chars="@")
    parser.add_argument("--kernel", action="append", required=True, metavar="HOME:KERNELSPEC[:argv]")
    parser.add_argument(
        "--fault", action="append", default=[], metavar="NAME=COMMAND", help="kernels survive"
    )
    parser.add_argument(
        "--fatal", action="append", default=[], metavar="NAME=COMMAND", help="some kernels end"
    )
    parser.add_argument("--left", action="append", default=[], metavar="COMMAND", help="prints what is left")
    parser.add_argument("--minutes", type=float, default=180, help="how long (default 180)")
    parser.add_argument("--every", type=float, default=15, help="seconds between faults (default 15)")
    parser.add_argument("--hub-kills", type=int, default=2, help="how often hubs are killed, as of a --fault")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--events", type=Path, default=Path("soak_cluster.jsonl"), help="the file of all events"
    )
    parser.add_argument("--json", action="store_true", help="one JSON object")
    options = parser.parse_args()
    soak = Soak(options)
    soak.soak()
    soak.end()
    soak.report()
    if options.json:
        summary = {"minutes": (time.time() - soak.began) / 60, "counts": soak.counts, "wrong": soak.wrong}
        print(json.dumps(summary))
    return int(bool(soak.wrong))


if __name__ == "__main__":
    sys.exit(main())
