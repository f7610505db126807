"""Explains why a kernel, or its keeper, ended: from facts to cause, evidence and remedy. Pure functions.

The order of the tests matters: certain reasons come first, and likely ones say that they are only likely. This module
does not know how the facts are collected; see report.py.
"""

from __future__ import annotations

import re
import signal
from typing import Any, Dict, Mapping, NamedTuple, Optional, Sequence

from ...wire import remedies
from ...wire.remedies import LESS_MEMORY, NEW_KERNEL
from ...wire.texts import memory_size, signal_name
from ..in_kernel.signal_rules import ENDED, REPEAT_ENDS, Sender

SHORT = 0.10
"""The share of available memory below which earlyoom starts to kill processes."""
CRASHES = (signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS, signal.SIGILL, signal.SIGFPE)
_JOB_END = "was cancelled, or reached its time or memory limit"
_NO_STORY = "its log does not show why"
_FAULTS = {"Aborted": signal.SIGABRT, "Bus error": signal.SIGBUS, "Illegal instruction": signal.SIGILL}
FRAMES = 4
"""How many frames of a crash are shown."""
UNKNOWN = -255
"""The return code of a process whose exit status is unknown."""
_CELL = re.compile(r"/ipykernel_\d+/|^<ipython-input")
_BELOW_CELLS = re.compile(r"/IPython/core/|/ipykernel/")


class EndFacts(NamedTuple):
    """What is known of a kernel's end. Shares are from 0 to 1; "" and None mean unknown."""

    returncode: int
    requested: str = ""  # "restart" or "shutdown", if its user requested the end
    stop_reason: str = ""  # the reason given with the request
    signal_sent: int = 0  # the last signal that was sent for a front end
    guard: bool = True  # whether the guard was on
    sigterm: Mapping[str, Any] = {}  # what the guard reported of the last SIGTERM, if that is recent
    cgroup_oom_kills: int = 0  # since the start
    node_oom_kills: int = 0
    limit_mib: Optional[int] = None
    memory_available: Optional[float] = None  # the smallest recent share of the node's memory
    memory_daemon: str = ""  # the name of one that runs here
    stderr: str = ""  # the last output of faulthandler, or of the process
    unwritable: Sequence[str] = ()  # folders: "/home/alice: Disk quota exceeded"
    gpu_problem: str = ""
    job: str = ""  # "Slurm job 17"


class ExitReason(NamedTuple):
    """What a user reads. Only the remedy ends with a full stop."""

    cause: str
    evidence: str = ""
    remedy: str = ""

    def __str__(self) -> str:
        text = f"{self.cause} ({self.evidence})" if self.evidence else self.cause
        return f"{text}. {self.remedy}" if self.remedy else text


def explain(facts: EndFacts) -> ExitReason:
    """Return the reason that fits these facts."""
    if facts.requested:
        return ExitReason(
            "it was restarted" if facts.requested == "restart" else "it was shut down", facts.stop_reason
        )
    if facts.signal_sent and facts.returncode in (-facts.signal_sent, UNKNOWN):
        return ExitReason(f"its front end ended it with {signal_name(facts.signal_sent)}")
    if facts.returncode == UNKNOWN:
        return _with_node_problems(facts, _unknown_status(facts))
    if facts.returncode == -signal.SIGKILL:
        return _with_node_problems(facts, _killed(facts))
    if facts.returncode == -signal.SIGTERM:
        return _terminated(facts)
    if -facts.returncode in CRASHES:
        return _with_node_problems(facts, _crashed(facts))
    if facts.returncode == 0:
        return ExitReason(
            "it exited by itself: exit() or quit() was called in a cell or a library",
            "exit status 0, without a request",
            remedies.NO_EXIT,
        )
    return _with_node_problems(facts, _exited(facts))


def _killed(facts: EndFacts) -> ExitReason:
    """Explain a SIGKILL, whose sender is unknown."""
    unknown = ExitReason(
        "it was killed (SIGKILL) by an unknown sender: a person, a cleanup job of the site, or a service",
        "there is no sign of the OOM killer, and memory was not short",
        _both(remedies.ASK_ADMINISTRATORS, NEW_KERNEL),
    )
    return _from_circumstances(facts, unknown)


def _from_circumstances(facts: EndFacts, otherwise: ExitReason) -> ExitReason:
    """Return the first reason for a SIGKILL that fits; `otherwise`: where none does."""
    tests = (_oom, _memory_daemon, _after_sigterm, _low_memory, _job)
    return next((reason for reason in (test(facts) for test in tests) if reason is not None), otherwise)


def _unknown_status(facts: EndFacts) -> ExitReason:
    """Explain an end without an exit status: the kernel's parent, its first keeper, was killed before."""
    fault = crash_site(facts.stderr).partition(" ← ")[0]
    if fault:
        return _crashed(facts._replace(returncode=-_FAULTS.get(fault, signal.SIGSEGV)))
    if facts.sigterm.get("action") == ENDED:
        return _terminated(facts)
    unknown = ExitReason(
        "it ended for an unknown reason",
        "its first keeper was killed, so its exit status is unknown; memory was not short",
        _both(remedies.EXIT_KILL_OR_CRASH, NEW_KERNEL),
    )
    return _from_circumstances(facts, unknown)


def _oom(facts: EndFacts) -> Optional[ExitReason]:
    if facts.cgroup_oom_kills and facts.limit_mib is not None:
        return ExitReason(
            f"out of memory: it reached the limit of {memory_size(facts.limit_mib)}, and the system killed it",
            "the oom_kill counter of its cgroup rose",
            _both(remedies.MORE_MEMORY, LESS_MEMORY),
        )
    if facts.cgroup_oom_kills or facts.node_oom_kills:
        sure = "" if facts.cgroup_oom_kills else "probably "
        return ExitReason(
            f"{sure}out of memory: the node had no memory left, and the system killed it",
            f"the oom_kill counter of {'its cgroup' if facts.cgroup_oom_kills else 'the node'} rose",
            LESS_MEMORY,
        )
    return None


def _memory_daemon(facts: EndFacts) -> Optional[ExitReason]:
    certain = facts.sigterm.get("kind") == "memory"
    if certain or (
        facts.memory_daemon and facts.memory_available is not None and facts.memory_available <= SHORT
    ):
        name = str(facts.sigterm.get("command")) if certain else facts.memory_daemon
        return ExitReason(
            f"{'' if certain else 'probably '}{name} killed it: the node's memory was short",
            f"its SIGTERM came before, {_clock(facts)}"
            if certain
            else f"{_share(facts)}, and {name} runs here",
            LESS_MEMORY,
        )
    return None


def _after_sigterm(facts: EndFacts) -> Optional[ExitReason]:
    kind = facts.sigterm.get("kind")
    if kind is None:
        return None
    sender = {"scheduler": "the scheduler", "container": "the container's runtime", "system": "systemd"}.get(
        str(kind), str(_sender(facts.sigterm))
    )
    end = facts.job or "the allocation, the session or the grace period"
    return ExitReason(
        f"it was killed (SIGKILL), probably by {sender} at the end of {end}",
        f"SIGTERM from {_sender(facts.sigterm)} came before, {_clock(facts)}",
        _both(remedies.MORE_TIME, NEW_KERNEL),
    )


def _low_memory(facts: EndFacts) -> Optional[ExitReason]:
    if facts.memory_available is None or facts.memory_available > SHORT / 2:
        return None
    return ExitReason(
        "it was killed (SIGKILL), probably because memory was short", _share(facts), LESS_MEMORY
    )


def _job(facts: EndFacts) -> Optional[ExitReason]:
    if not facts.job:
        return None
    return ExitReason(
        f"it was killed (SIGKILL), probably with {facts.job}, which {_JOB_END}",
        "it ran in that job",
        _both(remedies.SCHEDULER, NEW_KERNEL),
    )


def _terminated(facts: EndFacts) -> ExitReason:
    term = facts.sigterm
    if not term or term.get("action") != ENDED:
        off = "" if facts.guard else " (the guard was off)"
        return ExitReason(f"SIGTERM from an unknown sender ended it{off}", "", NEW_KERNEL)
    sender, when = _sender(term), _clock(facts)
    if term.get("kind") == "memory":
        return ExitReason(
            f"{term.get('command')} ended it: the node's memory was short", f"SIGTERM {when}", LESS_MEMORY
        )
    if term.get("in_use"):
        seconds = REPEAT_ENDS.get(str(term.get("kind")), 0.0)
        return ExitReason(f"a second SIGTERM from {sender} within {seconds:.0f} s ended it", when, NEW_KERNEL)
    return ExitReason(
        f"SIGTERM from {sender} ended it while it was not in use", when, _both(remedies.IN_USE, NEW_KERNEL)
    )


def _crashed(facts: EndFacts) -> ExitReason:
    number = -facts.returncode
    what, remedy = {
        int(signal.SIGSEGV): ("it crashed in C code (segmentation fault)", remedies.CRASH),
        int(signal.SIGABRT): ("a library aborted it (SIGABRT)", remedies.ABORT),
        int(signal.SIGBUS): ("it crashed in a memory access (bus error)", remedies.BUS_ERROR),
    }.get(number, (f"it crashed ({signal_name(number)})", remedies.CRASH))
    return ExitReason(what, crash_site(facts.stderr), _both(remedy, NEW_KERNEL))


def _exited(facts: EndFacts) -> ExitReason:
    if facts.returncode < 0:
        return ExitReason(f"it was ended by {signal_name(-facts.returncode)}", "", NEW_KERNEL)
    traced = facts.stderr.rpartition("Traceback (most recent call last):\n")
    last = traced[2].strip().rpartition("\n")[2][:300] if traced[1] else ""
    return ExitReason(f"it exited with status {facts.returncode}", last, remedies.EXIT)


def _with_node_problems(facts: EndFacts, reason: ExitReason) -> ExitReason:
    """Add what else is wrong on the node, as it may be the reason."""
    problems = [f"cannot write to {folder}" for folder in facts.unwritable]
    problems += [facts.gpu_problem] if facts.gpu_problem else []
    if not problems:
        return reason
    evidence = "; ".join([part for part in [reason.evidence, *problems] if part])
    first = remedies.MAKE_ROOM if facts.unwritable else remedies.BROKEN_GPU
    return reason._replace(evidence=evidence, remedy=_both(first, reason.remedy))


def crash_site(trace: str) -> str:
    """Return faulthandler's output in one line: the fault, and the innermost frames of the thread that crashed."""
    fault = trace.rfind("Fatal Python error: ")
    if fault < 0:
        return ""
    lines = trace[fault:].splitlines()
    current = next((n for n, line in enumerate(lines) if line.startswith("Current thread")), 0)
    frames = []
    for line in lines[current + 1 :]:
        found = re.match(r'  File "(.*)", line (\d+) in (.*)', line)
        if found and not _BELOW_CELLS.search(found[1]):
            place = "the cell" if _CELL.search(found[1]) else found[1]
            frames.append(f"{found[3]} ({place}, line {found[2]})")
        elif frames:
            break
    return " ← ".join([lines[0][len("Fatal Python error: ") :], *frames[:FRAMES]])


# ------------------------------------------------------------------------------------------ keepers


class KeeperFacts(NamedTuple):
    """What is known of a keeper that was killed. `start`, `last`: entries of its story."""

    start: Mapping[str, Any]
    last: Mapping[str, Any]
    boot: str  # the present boot id
    booted: str = ""  # when that boot was, for the user
    lingers: bool = False  # whether logind keeps the user's processes after logout
    kills_sessions: Optional[bool] = None  # logind's KillUserProcesses, if it is set
    job_end: str = ""  # "Slurm job 17 ended: it has reached its time limit", if a keeper has reported that


def explain_keeper(facts: KeeperFacts) -> ExitReason:
    """Return why the keeper, and with it its kernel, has ended."""
    before = facts.start.get("boot")
    if before and facts.boot and str(before) != facts.boot:
        return ExitReason(
            f"the node was rebooted {facts.booted}".strip(), "its boot id has changed", NEW_KERNEL
        )
    session = re.search(r"session-\w+\.scope", str(facts.start.get("cgroup", "")))
    termed = facts.last.get("event") == "signal" and "SIGTERM" in str(facts.last.get("text"))
    killing = facts.kills_sessions or (facts.kills_sessions is None and termed)
    if session and not facts.lingers and killing:
        return ExitReason(
            "it was probably killed at the end of the SSH session that it was started from",
            f"it ran in {session[0]}, and this node kills a user's processes at logout (KillUserProcesses)",
            remedies.LINGER,
        )
    if facts.job_end:
        more_time = remedies.MORE_TIME if facts.job_end.endswith("time limit") else ""
        return ExitReason(facts.job_end, "SIGTERM came before", _both(more_time, NEW_KERNEL))
    sigterm = "SIGTERM from the scheduler came before" if facts.last.get("kind") == "scheduler" else ""
    job = facts.start.get("job") or (sigterm and "a job of the scheduler")  # sessions may not know their job
    if job:
        return ExitReason(
            f"its keeper was killed with {job}, which {_JOB_END}",
            sigterm or _NO_STORY,
            _both(remedies.SCHEDULER, NEW_KERNEL),
        )
    if facts.last.get("event") == "drop":
        return ExitReason(
            "its keeper was killed",
            "nothing was logged after the connection was lost: this node may kill a user's processes at logout",
            remedies.LINGER_IF_AGAIN,
        )
    return ExitReason("its keeper was killed", _NO_STORY, NEW_KERNEL)


# ------------------------------------------------------------------------------------------ phrases


def _both(first: str, then: str) -> str:
    return f"{first} {then}".strip()


def _sender(term: Mapping[str, Any]) -> Sender:
    known: Dict[str, Any] = {name: term[name] for name in Sender._fields if term.get(name) is not None}
    return Sender(**dict({"kind": "unknown"}, **known))


def _clock(facts: EndFacts) -> str:
    return "at %s" % facts.sigterm.get("clock", "?")


def _share(facts: EndFacts) -> str:
    assert facts.memory_available is not None
    return f"only {facts.memory_available:.0%} of the node's memory was available"
