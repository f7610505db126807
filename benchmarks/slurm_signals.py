"""Measures which processes of a Slurm job get which signals, from whom and when; prints a table in Markdown.

    python benchmarks/slurm_signals.py --login "ssh login" --node gpu1 [--python PATH] [--ssh-node "ssh gpu1"]
        [--preempted PARTITION --preempting PARTITION] [--root "ssh root@login"]

Runs anywhere: `--login` leads to a machine with Slurm's commands, whose home folder the node shares; without it the
commands run here. In the jobs small programs wait for signals (sigwaitinfo). Takes about four minutes.
"""

from __future__ import annotations

import argparse
import json
import shlex
import subprocess
import sys
import time
from typing import Any

# Blocks all signals that can be, and notes each with its sender; `alive` is the last moment before SIGKILL.
WITNESS = r"""
import json, os, signal, subprocess, sys, time
role, folder, *children = sys.argv[1:]
names = ("HUP", "INT", "TERM", "CONT", "USR1", "USR2")
signals = {getattr(signal, "SIG" + name) for name in names}
signal.pthread_sigmask(signal.SIG_BLOCK, signals)
for child in children:
    subprocess.Popen([sys.executable, __file__, child, folder], stdin=subprocess.DEVNULL)
os.umask(0o077)
end = time.time() + 300
with open(folder + "/" + role + ".signals", "a") as log, open(folder + "/" + role + ".alive", "w") as alive:
    while time.time() < end and os.path.exists(folder):
        alive.seek(0)
        alive.write(repr(time.time()).ljust(20))
        alive.flush()
        got = signal.sigtimedwait(signals, 0.05)
        if got is None:
            continue
        try:
            with open("/proc/%d/comm" % got.si_pid) as file:
                name = file.read().strip()
        except OSError:
            name = "?"
        what = {"signal": signal.Signals(got.si_signo).name[3:], "pid": got.si_pid, "uid": got.si_uid,
                "name": name, "time": time.time()}
        log.write(json.dumps(what) + "\n")
        log.flush()
"""

# What a shell sees of signals: not who sent them.
TRAPS = r"""for s in HUP INT TERM CONT USR1 USR2; do
    trap "echo '{\"signal\": \"$s\", \"time\": '\$EPOCHREALTIME'}' >> $folder/shell.signals" $s
done
"""

SCRIPTS = {
    # the script becomes the program; beside it a step
    "exec": 'srun --overlap -n1 "$python" "$folder/witness.py" step "$folder" &\n'
    'exec "$python" "$folder/witness.py" exec "$folder" exec-child\n',
    # the shell stays, and traps signals
    "shell": TRAPS + '"$python" "$folder/witness.py" shell-child "$folder" &\n'
    'while true; do echo $EPOCHREALTIME > "$folder/shell.alive"; sleep 0.1 & wait $!; done\n',
    # the usual script: the shell waits for a program
    "plain": '"$python" "$folder/witness.py" plain-child "$folder"\n: never reached\n',
}

ROLES = {
    "exec": "process that the batch script `exec`ed",
    "exec-child": "its child",
    "shell": "shell of a batch script, with traps",
    "shell-child": "its child",
    "plain-child": "child of a shell without traps, which dies of a SIGTERM",
    "step": "task of a step (`srun`)",
    "ssh": "process of a plain ssh session",
}


class Cluster:
    """The commands of a cluster, and the folder of the measurements there."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.folder = self.login(["sh", "-c", 'mktemp -d "$HOME/slurm-signals-XXXXXX"']).strip()
        self.login(["sh", "-c", f"cat > {shlex.quote(self.folder)}/witness.py"], stdin=WITNESS)

    def login(self, words: list[str], *, stdin: str = "", root: bool = False, check: bool = True) -> str:
        prefix = shlex.split(self.options.root if root else self.options.login)
        command = [*prefix, shlex.join(words)] if prefix[:1] == ["ssh"] else [*prefix, *words]
        done = subprocess.run(
            command, input=stdin, text=True, stdout=subprocess.PIPE, check=check, timeout=60
        )
        return done.stdout

    def submit(self, event: str, script: str, *flags: str) -> str:
        """A job whose records are in a folder of its own."""
        folder = f"{self.folder}/{event}"
        self.login(["mkdir", "-p", folder])
        self.login(["cp", f"{self.folder}/witness.py", folder])
        variables = f"folder={shlex.quote(folder)}\npython={shlex.quote(self.options.python)}\n"
        words = ["sbatch", "--parsable", "--no-requeue", f"--output={folder}/%j.out", *flags]
        words += [f"--nodelist={self.options.node}", "--ntasks=1"]
        return self.login(words, stdin=f"#!/bin/bash -l\n{variables}{SCRIPTS[script]}").strip()

    def field(self, job: str, name: str) -> str:
        shown = self.login(["scontrol", "--oneliner", "show", "job", job])
        return next(word.split("=", 1)[1] for word in shown.split() if word.startswith(f"{name}="))

    def wait(self, jobs: list[str], *states: str) -> None:
        """Until all have one of these states; at most four minutes."""
        deadline = time.monotonic() + 240
        while any(self.field(job, "JobState") not in states for job in jobs):
            if time.monotonic() > deadline:
                raise SystemExit(f"jobs {', '.join(jobs)} are not {' or '.join(states)}")
            time.sleep(0.5)

    def records(self, event: str) -> dict[str, dict[str, Any]]:
        """For each role of this event: the signals, and when the process was last alive."""
        program = (
            "import glob, json, os, sys\n"
            "read = lambda name: open(name).read()\n"
            "names = sorted(glob.glob(sys.argv[1] + '/*.alive'))\n"
            "print(json.dumps({os.path.basename(n)[:-6]: [float(read(n) or 0), read(n[:-5] + 'signals') "
            "if os.path.exists(n[:-5] + 'signals') else ''] for n in names}))\n"
        )
        shown = self.login([self.options.python, "-c", program, f"{self.folder}/{event}"])
        return {
            role: {"alive": alive, "signals": [json.loads(line) for line in lines.splitlines()]}
            for role, (alive, lines) in json.loads(shown).items()
        }

    def setting(self, name: str) -> str:
        for line in self.login(["scontrol", "show", "config"]).splitlines():
            key, _, value = line.partition("=")
            if key.strip() == name:
                return value.strip()
        return "?"

    def start_ssh(self, event: str) -> None:
        """Let a plain ssh session start a program on the node; it ends when its folder is removed."""
        if self.options.ssh_node:
            words = [self.options.python, f"{self.folder}/witness.py", "ssh", f"{self.folder}/{event}"]
            subprocess.Popen(
                [*shlex.split(self.options.ssh_node), shlex.join(words)], stdin=subprocess.DEVNULL
            )


class Measurement:
    """One event: jobs that run, what is done to them at `zero`, and what their processes saw."""

    def __init__(self, cluster: Cluster, title: str, *flags: str) -> None:
        self.cluster, self.title = cluster, title
        self.event = "".join(char if char.isalnum() else "-" for char in title)
        self.jobs = [cluster.submit(self.event, script, *flags) for script in SCRIPTS]
        self.zero = 0.0
        self.state = ""
        cluster.start_ssh(self.event)

    def started(self) -> None:
        self.cluster.wait(self.jobs, "RUNNING")
        expected = set(ROLES) if self.cluster.options.ssh_node else set(ROLES) - {"ssh"}
        while not expected <= set(self.cluster.records(self.event)):
            time.sleep(0.3)

    def now(self) -> None:
        self.zero = float(self.cluster.login(["date", "+%s.%N"]))

    def at_time_limit(self) -> None:
        """Count from the end that the time limit sets."""
        end = self.cluster.field(self.jobs[0], "EndTime")
        self.zero = float(self.cluster.login(["date", "--date", end, "+%s"]))

    def ended(self) -> None:
        """Wait for the end of these jobs, and note what Slurm calls it."""
        states = ("CANCELLED", "TIMEOUT", "PREEMPTED", "NODE_FAIL", "COMPLETED", "FAILED")
        self.cluster.wait(self.jobs, *states)
        self.state = " ".join(dict.fromkeys(self.cluster.field(job, "JobState") for job in self.jobs))
        time.sleep(8)  # more than KillWait: who is alive then outlives the job

    def row(self, role: str) -> str:
        record = self.cluster.records(self.event).get(role)
        if record is None:
            return "not measured"
        seen = []
        for signal in record["signals"]:
            sender = f" from {signal['name']} (uid {signal['uid']})" if "uid" in signal else ""
            seen.append(f"{signal['signal']}{sender} {signal['time'] - self.zero:+.1f} s")
        outlives = float(self.cluster.login(["date", "+%s.%N"])) - record["alive"] < 5
        seen.append("lives on" if outlives else f"ends {record['alive'] - self.zero:+.1f} s")
        return "; ".join(seen)


def signals_by_hand(cluster: Cluster) -> list[Measurement]:
    """`scancel`, with and without a signal."""
    done = []
    for words in (
        ["scancel"],
        ["scancel", "-s", "USR1"],
        ["scancel", "-b", "-s", "USR1"],
        ["scancel", "-f", "-s", "USR1"],
    ):
        one = Measurement(cluster, " ".join(words), "--time=5")
        one.started()
        one.now()
        cluster.login([*words, *one.jobs])
        if len(words) > 1:
            time.sleep(3)
            cluster.login(["scancel", *one.jobs], check=False)  # some have ended
        one.ended()
        done.append(one)
    return done


def time_limits(cluster: Cluster) -> list[Measurement]:
    """The limit of one minute, which Slurm enforces within half a minute, with both kinds of warnings."""
    flags = {"B:USR1@30": "--signal=B:USR1@30", "USR1@30": "--signal=USR1@30"}
    done = [Measurement(cluster, f"limit, --signal={name}", "--time=1", flag) for name, flag in flags.items()]
    for one in done:
        one.started()
        one.at_time_limit()
    for one in done:
        one.ended()
    return done


def preemption(cluster: Cluster) -> list[Measurement]:
    """A job of another partition takes the node."""
    options = cluster.options
    done = []
    for title, *flags in (["preemption"], ["preemption, --signal=B:USR1@300", "--signal=B:USR1@300"]):
        one = Measurement(cluster, title, "--time=30", f"--partition={options.preempted}", *flags)
        one.started()
        one.now()
        words = ["sbatch", "--parsable", f"--partition={options.preempting}", f"--nodelist={options.node}"]
        words += ["--exclusive", "--output=/dev/null", "--time=5", "--wrap", "sleep 300"]
        taker = cluster.login(words).strip()
        one.ended()
        cluster.login(["scancel", taker])
        cluster.wait([taker], "CANCELLED", "COMPLETED")
        done.append(one)
    return done


def node_down(cluster: Cluster) -> list[Measurement]:
    """The controller gives the node up; its slurmd still runs."""
    one = Measurement(cluster, "node set to DOWN", "--time=5")
    one.started()
    one.now()
    node = f"nodename={cluster.options.node}"
    cluster.login(["scontrol", "update", node, "state=down", "reason=measurement"], root=True)
    one.ended()
    return [one]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--login", default="", help="command that leads to a machine with Slurm's commands")
    parser.add_argument(
        "--root", default="", help="the same, as root: also measures a node that is set to DOWN"
    )
    parser.add_argument("--node", required=True, help="the node on which the jobs run")
    parser.add_argument("--ssh-node", default="", help="ssh command that leads to this node")
    parser.add_argument("--python", default="python3", help="Python on the node, 3.8 or newer")
    parser.add_argument("--preempted", default="", help="a partition whose jobs are preempted")
    parser.add_argument("--preempting", default="", help="the partition whose jobs preempt them")
    options = parser.parse_args()
    cluster = Cluster(options)
    try:
        done = signals_by_hand(cluster) + time_limits(cluster)
        if options.preempted:
            done += preemption(cluster)
        if options.root:
            done += node_down(cluster)
        settings = (
            "SLURM_VERSION",
            "ProctrackType",
            "KillWait",
            "PreemptMode",
            "PreemptType",
            "PreemptParameters",
        )
        print(", ".join(f"{name} {cluster.setting(name)}" for name in settings))
        for one in done:
            print(
                f"\n**{one.title}** (ends as {one.state})\n\n| process | signals, seconds from the event |\n|---|---|"
            )
            for role, text in ROLES.items():
                print(f"| {text} | {one.row(role)} |")
    finally:
        cluster.login(["rm", "-r", cluster.folder])


if __name__ == "__main__":
    sys.exit(main())
