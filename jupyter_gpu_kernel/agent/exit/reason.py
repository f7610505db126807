"""Why a kernel ended, in words: from facts to cause, evidence and remedy. Pure: it reads and asks nothing.

The order of the questions is what matters here: what is certain comes first, what is likely says so. Must not
know how the facts are come by; that is witness.py.
"""

from __future__ import annotations

import re
import signal
from typing import Any, Dict, Mapping, NamedTuple, Optional, Sequence

from ...wire import remedies
from ...wire.remedies import LESS_MEMORY, NEW_KERNEL
from ...wire.texts import memory_size
from ..in_kernel.signal_rules import ENDED, REPEAT_ENDS, Sender

SHORT = 0.10
"""Share of a node's memory below which earlyoom starts to end processes."""
CRASHES = (signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS, signal.SIGILL, signal.SIGFPE)
_FAULTS = {"Aborted": signal.SIGABRT, "Bus error": signal.SIGBUS, "Illegal instruction": signal.SIGILL}
FRAMES = 4
UNKNOWN = -255
"""The return code of a process whose end nobody was told."""
_CELL = re.compile(r"/ipykernel_\d+/|^<ipython-input")
_BELOW_CELLS = re.compile(r"/IPython/core/|/ipykernel/")


class Facts(NamedTuple):
    """What is known at a kernel's end. Shares from 0 to 1; "" and None are "not known"."""

    returncode: int
    asked: str = ""  # "restart", "shutdown": by its user
    why: str = ""  # what was said when asked
    sent: int = 0  # the signal that its front end sent last
    guard: bool = True  # whether SIGTERM was caught
    term: Mapping[str, Any] = {}  # what the guard told about the last SIGTERM, if that was a moment ago
    cgroup_kills: int = 0  # by the OOM killer, since the start
    node_kills: int = 0
    limit_mib: Optional[int] = None
    available: Optional[float] = None  # the least share of the node's memory that was available of late
    memory_daemon: str = ""  # its name, if one runs here
    trace: str = ""  # what faulthandler, or the process, wrote last
    full: Sequence[str] = ()  # "/home/alice: Disk quota exceeded"
    gpu: str = ""  # what is wrong with one of its GPUs
    job: str = ""  # "Slurm job 17"


class ExitReason(NamedTuple):
    """What a user reads. No part ends with a full stop but the remedy."""

    cause: str
    evidence: str = ""
    remedy: str = ""

    def __str__(self) -> str:
        text = f"{self.cause} ({self.evidence})" if self.evidence else self.cause
        return f"{text}. {self.remedy}" if self.remedy else text


def explain(facts: Facts) -> ExitReason:
    """The death that fits these facts."""
    if facts.asked:
        return ExitReason("it was restarted" if facts.asked == "restart" else "it was shut down", facts.why)
    if facts.sent and facts.returncode in (-facts.sent, UNKNOWN):
        return ExitReason(f"its front end ended it with {_name(facts.sent)}")
    if facts.returncode == UNKNOWN:
        return _with_troubles(facts, _unwitnessed(facts))
    if facts.returncode == -signal.SIGKILL:
        return _with_troubles(facts, _killed(facts))
    if facts.returncode == -signal.SIGTERM:
        return _terminated(facts)
    if -facts.returncode in CRASHES:
        return _with_troubles(facts, _crashed(facts))
    if facts.returncode == 0:
        return ExitReason(
            "it exited by itself: exit() or quit() in a cell, or a library's",
            "status 0, and nobody had asked",
            remedies.NO_EXIT,
        )
    return _with_troubles(facts, _exited(facts))


def _killed(facts: Facts) -> ExitReason:
    """SIGKILL leaves no note: the circumstances have to say who it was."""
    for suspect in (_oom, _memory_daemon, _after_sigterm, _low_memory, _job):
        death = suspect(facts)
        if death is not None:
            return death
    return ExitReason(
        "it was killed (SIGKILL) by somebody unknown: a person, a reaper of the site, or a service",
        "no sign of the OOM killer, and memory was not short",
        _both(remedies.ASK_ADMINISTRATORS, NEW_KERNEL),
    )


def _unwitnessed(facts: Facts) -> ExitReason:
    """Its keeper was killed before it, and the one in its place is not told how it ended: what did it leave?"""
    fault = crash_site(facts.trace).partition(" ← ")[0]
    if fault:
        return _crashed(facts._replace(returncode=-_FAULTS.get(fault, signal.SIGSEGV)))
    if facts.term.get("action") == ENDED:
        return _terminated(facts)
    for suspect in (_oom, _memory_daemon, _after_sigterm, _low_memory, _job):
        death = suspect(facts)
        if death is not None:
            return death
    return ExitReason(
        "it ended, and how is not known",
        "its first keeper was killed, and the system tells nobody else; memory was not short",
        _both(remedies.EXIT_KILL_OR_CRASH, NEW_KERNEL),
    )


def _oom(facts: Facts) -> Optional[ExitReason]:
    if facts.cgroup_kills and facts.limit_mib is not None:
        return ExitReason(
            f"out of memory: it reached the limit of {memory_size(facts.limit_mib)}, and the system killed it",
            "the oom_kill counter of its cgroup rose",
            _both(remedies.MORE_MEMORY, LESS_MEMORY),
        )
    if facts.cgroup_kills or facts.node_kills:
        sure = "" if facts.cgroup_kills else "probably "
        return ExitReason(
            f"{sure}out of memory: the node had none left, and the system killed it",
            f"the oom_kill counter of its {'cgroup' if facts.cgroup_kills else 'node'} rose",
            LESS_MEMORY,
        )
    return None


def _memory_daemon(facts: Facts) -> Optional[ExitReason]:
    told = facts.term.get("kind") == "memory"
    if told or (facts.memory_daemon and facts.available is not None and facts.available <= SHORT):
        name = str(facts.term.get("command")) if told else facts.memory_daemon
        return ExitReason(
            f"{'' if told else 'probably '}{name} killed it: the node's memory was short",
            f"its SIGTERM came before, {_clock(facts)}" if told else f"{_share(facts)}, and {name} runs here",
            LESS_MEMORY,
        )
    return None


def _after_sigterm(facts: Facts) -> Optional[ExitReason]:
    kind = facts.term.get("kind")
    if kind is None:
        return None
    who = {"scheduler": "the scheduler", "container": "the container's runtime", "system": "systemd"}.get(
        str(kind), str(_sender(facts.term))
    )
    end = (
        f"the end of {facts.job}" if facts.job else "the end of the allocation, the session or their patience"
    )
    return ExitReason(
        f"it was killed (SIGKILL), probably by {who}: {end}",
        f"SIGTERM from {_sender(facts.term)} came before, {_clock(facts)}",
        _both(remedies.MORE_TIME, NEW_KERNEL),
    )


def _low_memory(facts: Facts) -> Optional[ExitReason]:
    if facts.available is None or facts.available > SHORT / 2:
        return None
    return ExitReason("it was killed (SIGKILL), probably for want of memory", _share(facts), LESS_MEMORY)


def _job(facts: Facts) -> Optional[ExitReason]:
    if not facts.job:
        return None
    return ExitReason(
        f"it was killed (SIGKILL), probably with {facts.job}: cancelled, or its time or memory was used up",
        "it ran in that job",
        _both(remedies.SCHEDULER, NEW_KERNEL),
    )


def _terminated(facts: Facts) -> ExitReason:
    term = facts.term
    if not term or term.get("action") != ENDED:
        why = "whose sender is unknown" if facts.guard else "whose sender is unknown, as the guard was off"
        return ExitReason(f"SIGTERM ended it, {why}", "", NEW_KERNEL)
    sender, when = _sender(term), _clock(facts)
    if term.get("kind") == "memory":
        return ExitReason(
            f"{term.get('command')} ended it: the node's memory was short", f"SIGTERM {when}", LESS_MEMORY
        )
    if term.get("in_use"):
        seconds = REPEAT_ENDS.get(str(term.get("kind")), 0.0)
        return ExitReason(f"a second SIGTERM from {sender} within {seconds:.0f} s ended it", when, NEW_KERNEL)
    return ExitReason(
        f"SIGTERM from {sender} ended it while it was not in use",
        when,
        _both(remedies.IN_USE, NEW_KERNEL),
    )


def _crashed(facts: Facts) -> ExitReason:
    number = -facts.returncode
    what = {
        int(signal.SIGSEGV): "it crashed in C code (segmentation fault)",
        int(signal.SIGABRT): "a library ended it (abort)",
        int(signal.SIGBUS): "it crashed at a memory access that could not be served (bus error)",
    }.get(number, f"it crashed ({_name(number)})")
    first = {int(signal.SIGBUS): remedies.BUS_ERROR, int(signal.SIGABRT): remedies.ABORT}
    return ExitReason(what, crash_site(facts.trace), _both(first.get(number, remedies.CRASH), NEW_KERNEL))


def _exited(facts: Facts) -> ExitReason:
    if facts.returncode < 0:
        return ExitReason(f"it was ended by {_name(-facts.returncode)}", "", NEW_KERNEL)
    traced = facts.trace.rpartition("Traceback (most recent call last):\n")
    last = traced[2].strip().rpartition("\n")[2][:300] if traced[1] else ""
    return ExitReason(
        f"it exited with status {facts.returncode}",
        last,
        remedies.EXIT,
    )


def _with_troubles(facts: Facts, death: ExitReason) -> ExitReason:
    """What else is wrong on the node right now, and may well be why."""
    troubles = [*(f"no room: {place}" for place in facts.full), *([facts.gpu] if facts.gpu else [])]
    if not troubles:
        return death
    evidence = "; ".join([part for part in [death.evidence, *troubles] if part])
    first = remedies.MAKE_ROOM if facts.full else remedies.BROKEN_GPU
    return death._replace(evidence=evidence, remedy=_both(first, death.remedy))


def crash_site(trace: str) -> str:
    """faulthandler's account in one line: the fault, and the innermost frames of the thread it hit."""
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


# ------------------------------------------------------------------------------------------ keepers' deaths


class KeeperFacts(NamedTuple):
    """What is known of a keeper that is gone without a word. `start`, `last`: entries of its story."""

    start: Mapping[str, Any]
    last: Mapping[str, Any]
    boot: str  # the boot id of now
    booted: str = ""  # when that was, as the user reads it
    lingers: bool = False  # whether the user's processes outlive his sessions
    kills_sessions: Optional[bool] = None  # logind's KillUserProcesses, where it says


def same_boot(before: str, now: str) -> bool:
    """Whether two boot ids are of one boot. Those of older agents have the machine's part alone."""
    return f"{now}/".startswith(f"{before}/")


def explain_keeper(facts: KeeperFacts) -> ExitReason:
    """Why the keeper, and with it its kernel, is gone."""
    before = facts.start.get("boot")
    if before and facts.boot and not same_boot(str(before), facts.boot):
        return ExitReason(
            f"the node was rebooted {facts.booted}".strip(), "its boot id is another one", NEW_KERNEL
        )
    session = re.search(r"session-\w+\.scope", str(facts.start.get("cgroup", "")))
    termed = facts.last.get("event") == "signal" and "SIGTERM" in str(facts.last.get("text"))
    killing = facts.kills_sessions or (facts.kills_sessions is None and termed)
    if session and not facts.lingers and killing:
        return ExitReason(
            "the end of the SSH session it was started from killed it, probably",
            f"it ran in {session[0]}, and this node ends what a logout leaves (KillUserProcesses)",
            remedies.LINGER,
        )
    told = "SIGTERM from the scheduler came before" if facts.last.get("kind") == "scheduler" else ""
    job = facts.start.get("job") or (
        told and "a job of the scheduler"
    )  # which not every site tells its sessions
    if job:
        return ExitReason(
            f"its keeper was killed with {job}: cancelled, or its time or memory was used up",
            told or "it left no word",
            _both(remedies.SCHEDULER, NEW_KERNEL),
        )
    if facts.last.get("event") == "drop":
        return ExitReason(
            "its keeper was killed",
            "no word came after the link went down: the node may end what a logout leaves",
            remedies.LINGER_IF_AGAIN,
        )
    return ExitReason("its keeper was killed", "it left no word", NEW_KERNEL)


# ------------------------------------------------------------------------------------------ words


def _both(first: str, then: str) -> str:
    return f"{first} {then}".strip()


def _sender(term: Mapping[str, Any]) -> Sender:
    known: Dict[str, Any] = {name: term[name] for name in Sender._fields if term.get(name) is not None}
    return Sender(**dict({"kind": "unknown"}, **known))


def _clock(facts: Facts) -> str:
    return "at %s" % facts.term.get("clock", "?")


def _share(facts: Facts) -> str:
    assert facts.available is not None
    return f"only {facts.available:.0%} of the node's memory was available"


def _name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
