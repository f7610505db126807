"""What the handlers of one Jupyter server share."""

from __future__ import annotations

from dataclasses import dataclass

from .add.probes import Probes
from .questions.prompts import Prompts
from .questions.sign_in_requests import SignInRequests
from .running.gpu_use import GpuUse
from .running.overview import Overview


@dataclass(frozen=True)
class ServerState:
    """Made by the extension, and found by each handler as `self.state`."""

    prompts: Prompts
    sign_ins: SignInRequests
    probes: Probes
    overview: Overview
    gpu_use: GpuUse
