"""Reads the node's AMD GPUs with ROCm's `rocm-smi`, where there is no nvidia-smi. Tested on recorded output only.

The spelling of the keys in its JSON differs between releases. What rocm-smi does not report is None, never 0; a process
whose GPUs it does not know counts as a user of every GPU that is in use.
"""

from __future__ import annotations

import json
import re
import threading
from typing import Any, Dict, List, Mapping, NamedTuple, Optional, Tuple

from ....wire.texts import one_line, whole_number
from ...system.agent_runtime import AgentRuntime
from .gpu import WITHOUT, Gpu, SmiError, amd_uuid, process_on_gpu
from .smi_runner import TIMEOUT, SmiOutput, SmiRunner
from .topology import Topology

PROGRAM = "rocm-smi"
PLACES = ("/opt/rocm/bin",)
"""The path of rocm-smi where PATH does not lead to it."""
CARDS = ["--showid", "--showuniqueid", "--showproductname", "--showuse", "--showmeminfo", "vram", "--json"]
PIDS = ["--showpids", "--json"]
PID_GPUS = ["--showpidgpus"]  # text: its JSON lacks the GPUs
_MIB = 1 << 20
_UNUSED_MIB = 64  # a GPU without a process uses less
_INTEGRATED_MIB = 1024  # a GPU with less memory is part of the processor
_USES = re.compile(r"^PID (\d{1,18}) is using (\d{1,18}) DRM device\(s\):?((?:\s+\d{1,18}\b)*)", re.MULTILINE)
_NAMES = ("card series", "device name", "card model", "card sku")


class RocmSmi:
    """The node's rocm-smi. Not for use by several threads at a time."""

    def __init__(self, runtime: AgentRuntime) -> None:
        self._runtime = runtime
        self._runner = SmiRunner(runtime, PROGRAM, PLACES)

    def read(self, timeout: float = TIMEOUT, stop: Optional[threading.Event] = None) -> List[Gpu]:
        """Return all GPUs, ordered by index, within `timeout` seconds. Raises SmiError, also when `stop` is set."""
        deadline = self._runtime.monotonic() + timeout
        cards, pids, pid_gpus = self._runner.run([CARDS, PIDS, PID_GPUS], deadline, stop or threading.Event())
        return parse(checked(cards), checked(pids), checked(pid_gpus))

    def read_links(self, timeout: float = TIMEOUT, stop: Optional[threading.Event] = None) -> Topology:
        """Return no links between the GPUs: those of AMD GPUs are not read."""
        return {}


class _Card(NamedTuple):
    """`number`: rocm-smi's own; `facts`: by key in lower case."""

    number: int
    facts: Mapping[str, str]

    def known(self, key: str) -> str:
        """Return the value of this key, "" if it is unknown."""
        value = self.facts.get(key, "").strip()
        return "" if value.lower() in ("n/a", "none", "unknown", "unsupported") else value

    def quantity(self, key: str) -> Optional[int]:
        """Return the value of this key, None if it is not a number."""
        return whole_number(self.known(key))

    @property
    def unique_id(self) -> int:
        """The id that the GPU has on every node; 0 if it has none."""
        value = self.known("unique id")
        return int(value, 16) if re.fullmatch("0x[0-9a-fA-F]{1,16}", value) else 0

    @property
    def name(self) -> str:
        """The GPU's name as users know it. Some releases of rocm-smi have only the vendor's number under some keys."""
        names = [self.known(key) for key in _NAMES]
        return one_line(next((name for name in names if name and not name.startswith("0x")), "AMD GPU"))

    @property
    def memory(self) -> Tuple[Optional[int], Optional[int]]:
        """The MiB of its memory: all, and in use."""
        total, used = (self.quantity(f"vram total {word}memory (b)") for word in ("", "used "))
        return (None if total is None else total // _MIB), (None if used is None else used // _MIB)


class _User(NamedTuple):
    """A process with its GPUs, by rocm-smi's numbers; None if they are unknown."""

    pid: int
    cards: Optional[List[int]]
    memory_mib: Optional[int]

    def uses(self, card: _Card) -> bool:
        """Whether the process uses this GPU, or may."""
        used = card.memory[1]
        return card.number in self.cards if self.cards is not None else used is None or used > _UNUSED_MIB


def checked(answer: SmiOutput) -> str:
    """Return the text of a successful call. Raises SmiError otherwise."""
    if answer.code == 0 and "Driver not initialized" not in answer.text:
        return answer.text
    lines = [line for line in answer.text.split("\n") if line.strip(" =")]
    line = one_line(lines[-1] if lines else "it printed nothing")
    remedy = f"Ask the node's administrator to look at the amdgpu driver (`rocm-smi` shows the same error). {WITHOUT}"
    raise SmiError("driver", f"rocm-smi fails with exit status {answer.code}: {line}", remedy)


def parse(cards_text: str, pids_text: str, uses_text: str) -> List[Gpu]:
    """Return the GPUs in the output of the three calls. Raises SmiError (driver, none) for anything else."""
    cards = _cards(_json(cards_text))
    if not cards:
        remedy = "In a job, request GPUs from the scheduler. Otherwise use another node, or --gpus 0."
        raise SmiError("none", "rocm-smi finds no GPU on this node", remedy)
    users = _users(_json(pids_text), uses_text)
    ids = [card.unique_id for card in cards]
    # The parts of a partitioned GPU have one id in common, which names none of them.
    return [
        _gpu(
            card,
            amd_uuid(card.unique_id if ids.count(card.unique_id) == 1 else 0, index),
            index,
            cards,
            users,
        )
        for index, card in enumerate(cards)
    ]


def _gpu(card: _Card, uuid: str, index: int, cards: List[_Card], users: List[_User]) -> Gpu:
    total, used = card.memory
    problem = ""
    if total is not None and total < _INTEGRATED_MIB and any((one.memory[0] or 0) > total for one in cards):
        problem = "it is integrated into the processor, with little memory"
    return Gpu(
        index=index,
        uuid=uuid,
        name=card.name,
        memory_total_mib=total,
        memory_used_mib=used,
        utilization=card.quantity("gpu use (%)"),
        processes=tuple(process_on_gpu(user.pid, user.memory_mib) for user in users if user.uses(card)),
        problem=problem,
    )


def _cards(report: Mapping[str, Any]) -> List[_Card]:
    """The GPUs in the order in which ROCm counts them: that of their nodes in the driver, where rocm-smi tells it."""
    cards = []
    for name, facts in report.items():
        match = re.fullmatch(r"card(\d{1,18})", name)
        if match and isinstance(facts, dict):
            cards.append(
                _Card(int(match[1]), {key.lower().strip(): str(value) for key, value in facts.items()})
            )
    nodes = [card.quantity("node id") for card in cards]
    if None in nodes or len(set(nodes)) < len(nodes):
        return sorted(cards, key=lambda card: card.number)
    return sorted(cards, key=lambda card: card.quantity("node id") or 0)


def _users(report: Mapping[str, Any], uses_text: str) -> List[_User]:
    """The processes that use GPUs. `report`: {"system": {"PID1234": "name, GPUs, VRAM in bytes, SDMA, CUs"}}."""
    if "PID" not in uses_text:  # the heading, a process, or that there is none
        raise _unexpected(uses_text)
    system = report.get("system")
    memory: Dict[int, Optional[int]] = {}
    for key, value in (system if isinstance(system, dict) else {}).items():
        match = re.fullmatch(r"PID(\d{1,18})", key)
        if match:
            words = str(value).split(", ")
            used = whole_number(words[-3]) if len(words) > 4 else None
            memory[int(match[1])] = None if used is None else used // _MIB
    uses: Dict[int, Optional[List[int]]] = dict.fromkeys(memory)
    for pid, count, numbers in _USES.findall(uses_text):
        cards = [int(number) for number in numbers.split()]
        # A process with no GPU and an unknown use of memory is hidden from rocm-smi, not idle.
        is_known = len(cards) == int(count) and bool(cards or memory.get(int(pid)) is not None)
        uses[int(pid)] = cards if is_known else None
    return [
        _User(pid, cards, memory.get(pid) if cards is not None and len(cards) == 1 else None)
        for pid, cards in uses.items()
    ]


def _json(text: str) -> Dict[str, Any]:
    """The object that rocm-smi has printed among its warnings; {} if it says that it has none."""
    start = text.find("{")
    if start < 0 and ("No JSON data" in text or "No KFD PIDs" in text or not text.strip()):
        return {}
    try:
        found = json.JSONDecoder().raw_decode(text[start:])[0] if start >= 0 else None
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise _unexpected(text)
    return found


def _unexpected(text: str) -> SmiError:
    line = next((line for line in text.split("\n") if line.strip(" =")), "it printed nothing")
    return SmiError("driver", f"unexpected output of rocm-smi: {one_line(line)}", WITHOUT)
