"""Every error a user can meet: which hop, what happened, what to do.

The tree:

    GpuKernelError
    ├── SettingsError      a kernelspec, flag or file says something we cannot use
    ├── RouteError         a destination or an ssh config cannot be turned into hops
    ├── ConnectError       a hop cannot be reached or its SSH server not be spoken to
    │   ├── HostKeyError   the hop is not, or not provably, the machine it was
    │   └── AuthError      the hop does not let us in
    ├── AgentError         the work node cannot run our agent (no Python, full disk, …)
    ├── GpuError           GPUs cannot be read or given
    ├── KernelStartError   the agent runs, but the kernel does not come up
    └── HubError           the local hub cannot be started or asked

An error crosses the hub's socket as the dictionary of `to_json`. This file knows no other module.
"""

from __future__ import annotations

from typing import Any


class GpuKernelError(Exception):
    """Base of all. `hop` is the user's own name for the machine ("" if it is this one).

    `login`: the owner has to type something, and there was nobody to ask; the `login` verb helps.
    """

    def __init__(self, cause: str, *, hop: str = "", remedy: str = "", login: bool = False) -> None:
        super().__init__(cause)
        self.cause = cause
        self.hop = hop
        self.remedy = remedy
        self.login = login
        self.steps: list[tuple[str, str, float]] = []
        """(hop, step, seconds) of a connection that failed: the completed steps, and the one that failed."""

    def __str__(self) -> str:
        text = f"{self.hop}: {self.cause}" if self.hop else self.cause
        return f"{text}\n{self.remedy}" if self.remedy else text

    def fill_in(self, placeholder: str, value: str) -> None:
        """Replace a placeholder in the remedy's commands, such as NAME or ID, by its value."""
        if value:
            self.remedy = self.remedy.replace(f" {placeholder}", f" {value}")

    def add_steps(self, steps: list[tuple[str, str, float]]) -> None:
        """Record (hop, step, seconds) of the steps to connect; the last one failed."""
        self.steps = steps

    def to_json(self) -> dict[str, Any]:
        """{"kind", "cause", "hop", "remedy"}, all strings, and "login" (true or false). "kind" is one of the tree's."""
        return {
            "kind": next((one.__name__ for one in type(self).__mro__ if one.__name__ in _KINDS), ""),
            "cause": self.cause,
            "hop": self.hop,
            "remedy": self.remedy,
            "login": self.login,
        }

    @staticmethod
    def from_json(data: dict[str, Any]) -> GpuKernelError:
        """The error that `to_json` described; an unknown kind becomes the base class."""
        kind = _KINDS.get(str(data.get("kind")), GpuKernelError)
        return kind(
            str(data.get("cause", "unknown error")),
            hop=str(data.get("hop", "")),
            remedy=str(data.get("remedy", "")),
            login=data.get("login") is True,
        )


class SettingsError(GpuKernelError):
    """A kernelspec, flag or file says something we cannot use."""


class RouteError(GpuKernelError):
    """A destination or an ssh config cannot be turned into hops."""


class ConnectError(GpuKernelError):
    """A hop cannot be reached, or its SSH server not be spoken to."""


class HostKeyError(ConnectError):
    """The hop's host key is unknown, changed or revoked."""


class AuthError(ConnectError):
    """The hop does not let us in with what we have."""


class AgentError(GpuKernelError):
    """The work node cannot run our agent."""


class GpuError(GpuKernelError):
    """GPUs cannot be read or given."""


class KernelStartError(GpuKernelError):
    """The kernel did not come up."""


class HubError(GpuKernelError):
    """The local hub cannot be started or asked."""


_KINDS: dict[str, type[GpuKernelError]] = {
    kind.__name__: kind
    for kind in (
        SettingsError,
        RouteError,
        ConnectError,
        HostKeyError,
        AuthError,
        AgentError,
        GpuError,
        KernelStartError,
        HubError,
    )
}
