"""Reads the node's NVIDIA GPUs with `nvidia-smi`, also when one of them is lost or in MIG mode.

This module knows no leases and no kernels, and not which GPUs count as free.
"""

from __future__ import annotations

import functools
import re
import threading
from pathlib import Path
from typing import List, Optional

from ....wire.texts import one_line
from ...system.agent_runtime import AgentRuntime
from ...system.procfs import read_text
from .gpu import WITHOUT, Gpu, SmiError
from .mig import mig_devices
from .nvidia_csv import INVALID_FIELD, NO_DEVICES, OPTIONAL, app_query, checked, fields_of, parse, query
from .smi_runner import TIMEOUT, SmiOutput, SmiRunner
from .topology import Topology, parse_topology

PROGRAM = "nvidia-smi"
_MAX_GPUS = 32  # the indices to try when a lost GPU makes nvidia-smi refuse to list any
_AT_ONCE = 8  # each call may take seconds
_LOST = re.compile(r"^.*(?:Unable to determine the device handle|(?<!\[)GPU is lost).*$", re.MULTILINE)
_VERSION = Path("/proc/driver/nvidia/version")


class NvidiaSmi:
    """The node's nvidia-smi, and what is known of it: the fields it lacks, the GPUs it has lost.

    Not for use by several threads at a time.
    """

    def __init__(self, runtime: AgentRuntime) -> None:
        self._runtime = runtime
        self._runner = SmiRunner(runtime, PROGRAM)
        self._fields = fields_of(read_text(_VERSION))
        self._only: List[str] = []  # the indices to query if a GPU is lost; empty: all
        self._lost: List[Gpu] = []

    def read(self, timeout: float = TIMEOUT, stop: Optional[threading.Event] = None) -> List[Gpu]:
        """Return all GPUs, ordered by index, within `timeout` seconds. Raises SmiError, also when `stop` is set."""
        deadline = self._runtime.monotonic() + timeout
        run = functools.partial(self._runner.run, deadline=deadline, stop=stop or threading.Event())
        isolated = False
        while True:
            # Both run at once, so that the two answers describe the same moment.
            gpus, apps = run([query("gpu", self._fields, self._only), app_query(self._only)])
            invalid = INVALID_FIELD.search(gpus.text)
            if invalid and invalid[1] in OPTIONAL and invalid[1] in self._fields:
                self._fields.remove(invalid[1])
            elif not isolated and _LOST.search(gpus.text + apps.text):
                self._isolate(run)
                isolated = True
            else:
                break
        found = parse(checked(*gpus), checked(*apps), self._fields) + self._lost
        if any(gpu.mig_mode == "Enabled" for gpu in found):
            listing, report = run([["-L"], ["-q", "-x"]])
            found += mig_devices(found, checked(*listing), checked(*report))
        return sorted(found, key=lambda gpu: (gpu.index, bool(gpu.parent)))

    def read_links(self, timeout: float = TIMEOUT, stop: Optional[threading.Event] = None) -> Topology:
        """Return the links between the GPUs, {} if nvidia-smi cannot tell. Raises SmiError when `stop` is set."""
        deadline = self._runtime.monotonic() + timeout
        try:
            (answer,) = self._runner.run([["topo", "-m"]], deadline, stop or threading.Event())
        except SmiError as error:
            if error.code == "stopped":
                raise
            return {}
        return parse_topology(answer.text)

    def _isolate(self, run: functools.partial[List[SmiOutput]]) -> None:
        """Query the GPUs one by one, as nvidia-smi shows none if a lost one is among them."""
        self._only, self._lost = [], []
        for first in range(0, _MAX_GPUS, _AT_ONCE):
            indices = range(first, first + _AT_ONCE)
            answers = run([query("gpu", self._fields, [str(index)]) for index in indices])
            for index, answer in zip(indices, answers):
                lost = _LOST.search(answer.text)
                if lost:
                    problem = f"the driver has lost it: {one_line(lost[0])}"
                    self._lost.append(Gpu(index, "", "?", problem=problem))
                elif NO_DEVICES not in answer.text:
                    self._only.append(str(index))
            if NO_DEVICES in answers[-1].text:
                break
        if not self._only:
            self._lost = []
            raise SmiError(
                "driver", "the driver has lost the node's GPUs", f"The node needs a reboot. {WITHOUT}"
            )
