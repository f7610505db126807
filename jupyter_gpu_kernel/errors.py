"""The errors that users see: the hop, the cause and the remedy.

The class hierarchy:

    GpuKernelError
    ├── SettingsError      a kernelspec, option or file has an invalid value
    ├── RouteError         a destination or the ssh configuration does not give a list of hops
    ├── ConnectError       a hop cannot be reached, or its SSH server does not work
    │   ├── HostKeyError   the hop's host key is unknown, changed or revoked
    │   │   └── UnknownHost   it is unknown
    │   └── AuthError      the hop refuses the sign-in
    │       ├── NotAnswered   it asked, and nobody answered
    │       └── Cancelled     it asked, and the user cancelled
    ├── AgentError         the work node cannot run the agent (no Python, full disk, …)
    │   └── AgentRefusal   the agent refuses a request of the hub
    ├── KernelStartError   the agent runs, but the kernel does not start
    └── HubError           the local hub cannot be started or does not answer

The hub sends an error as the dictionary that `to_json` returns. This module imports no other module of ours.
"""

from __future__ import annotations

from typing import Any

BY_LOGIN = "with “jupyter gpu-kernel login NAME” in a terminal"
"""How to sign in, or to accept a host key. A text does not end with a command: VS Code appends a full stop to it."""

CREATE_ENV = "Run “jupyter gpu-kernel add” with --create-env: it makes an environment with ipykernel there"
"""The beginning of the remedy where no Python has ipykernel, and one is new enough to make an environment."""


class GpuKernelError(Exception):
    """The base class. `hop` is the user's name for the machine, "" for this machine.

    `login` is true if a password, code or confirmation is needed and nobody could be asked; the `login` verb helps.
    """

    is_transient = False
    """Whether the same attempt may succeed later, although nobody changes anything."""

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

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self)!r})"

    def fill_in(self, placeholder: str, value: str) -> None:
        """Replace words of the remedy, such as the placeholder NAME or ID of a command, unless the value is empty."""
        if value:
            self.remedy = self.remedy.replace(f" {placeholder}", f" {value}")

    def to_json(self, name: str = "") -> dict[str, Any]:
        """{"kind", "cause", "hop", "remedy"}, all strings, and "login" (true or false). "kind" is a class name. `name`:
        of a kernelspec, for NAME in the remedy; the error itself may concern several."""
        return {
            "kind": next((cls.__name__ for cls in type(self).__mro__ if cls.__name__ in _KINDS), ""),
            "cause": self.cause,
            "hop": self.hop,
            "remedy": self.remedy.replace(" NAME", f" {name}") if name else self.remedy,
            "login": self.login,
        }

    @staticmethod
    def from_json(data: dict[str, Any]) -> GpuKernelError:
        """The error from the dictionary of `to_json`; the base class if the kind is unknown."""
        kind = _KINDS.get(str(data.get("kind")), GpuKernelError)
        return kind(
            str(data.get("cause", "unknown error")),
            hop=str(data.get("hop", "")),
            remedy=str(data.get("remedy", "")),
            login=data.get("login") is True,
        )


class SettingsError(GpuKernelError):
    """A kernelspec, option or file has an invalid value."""

    @classmethod
    def about(cls, setting: str, value: Any, form: str) -> SettingsError:
        """The error about a value that must have another form."""
        return cls(f"“{setting}” is {in_message(value)}", remedy=f"It must be {form}.")


def in_message(value: Any) -> str:
    """An invalid value, cut where it is long."""
    return text if len(text := repr(value)) <= 60 else f"{text[:60]}…"


class RouteError(GpuKernelError):
    """A destination or the ssh configuration does not give a list of hops."""


class ConnectError(GpuKernelError):
    """A hop cannot be reached, or its SSH server does not work."""

    is_transient = True


class HostKeyError(ConnectError):
    """The hop's host key is unknown, changed or revoked."""

    is_transient = False


class UnknownHost(HostKeyError):
    """The hop's host key is not known. To front ends it is a HostKeyError."""


class AuthError(ConnectError):
    """The hop refuses the sign-in."""

    is_transient = False


class NotAnswered(AuthError):
    """The user was to be asked, and nobody answered. To front ends it is an AuthError."""

    def __init__(self, cause: str, *, hop: str = "") -> None:
        super().__init__(cause, hop=hop, remedy=f"Sign in once {BY_LOGIN}.", login=True)


class Cancelled(AuthError):
    """The user was asked, and cancelled. To front ends it is an AuthError."""

    def __init__(self, hop: str) -> None:
        remedy = f"To be asked again, start it again. Or sign in once {BY_LOGIN}."
        super().__init__("you cancelled the sign-in", hop=hop, remedy=remedy, login=True)


class AgentError(GpuKernelError):
    """The work node cannot run the agent."""


class AgentRefusal(AgentError):
    """The agent refused a request; `code` is its reason in one word, such as "gone". To front ends it is an AgentError.

    The hub chooses the remedy; a node's text is never shown as one.
    """

    def __init__(self, cause: str, *, code: str, hop: str) -> None:
        super().__init__(cause, hop=hop, remedy=_REFUSAL_REMEDIES.get(code, ""))
        self.code = code


class KernelStartError(GpuKernelError):
    """The kernel did not start."""


class HubError(GpuKernelError):
    """The local hub cannot be started, or does not answer."""

    @classmethod
    def from_bug(cls, error: Exception, hop: str = "") -> HubError:
        """Return the error for a bug of the hub, whose log has the traceback."""
        remedy = "The hub's log has details; please report it."
        return cls(f"{type(error).__name__}: {error}", hop=hop, remedy=remedy)


_KINDS: dict[str, type[GpuKernelError]] = {
    kind.__name__: kind
    for kind in (
        SettingsError,
        RouteError,
        ConnectError,
        HostKeyError,
        AuthError,
        AgentError,
        KernelStartError,
        HubError,
    )
}

# --- what to do when the agent refuses a request

_REPORT = "Please report this, with the output of “jupyter gpu-kernel logs ID”."
_DRIVER = "Ask the node's administrator to look at the NVIDIA driver, or use --gpus 0 to run without a GPU."
_REFUSAL_REMEDIES = {
    # Codes with a space are the hub's own: no node can send them.
    "taken": "Run a cell here to take it back.",
    "gone": "Start a new kernel; “jupyter gpu-kernel logs ID” shows what happened to the old one.",
    "protocol": "Use it with the version of jupyter-gpu-kernel that started it, or end it: "
    "“jupyter gpu-kernel stop ID”.",
    "hangs up": "“jupyter gpu-kernel logs ID” shows what happened; “jupyter gpu-kernel stop ID” ends it.",
    "unresponsive": "Try again in a minute. If that process is stopped on the node, continue it (kill -CONT) or "
    "kill it (kill -9): the kernel keeps running either way.",
    "keeper": "Check the node's Python with “jupyter gpu-kernel check NAME”.",
    "policy": "The site's rules are in /etc/jupyter-gpu-kernel/policy.json on the node.",
    "absent": (
        "If no GPU is wanted, use --gpus 0. Otherwise add the folder of nvidia-smi (or of rocm-smi) to PATH (--setup)."
    ),
    "none": "In a job, ask the scheduler for GPUs. Otherwise use another node, or --gpus 0 to run without a GPU.",
    "few": "Ask for fewer (--gpus N), use another node, or ask the scheduler for more.",
    "hang": _DRIVER,
    "driver": _DRIVER,
    "system": "The node may lack file descriptors or processes: end what you do not need there, and try again.",
    "malformed answer": "The agent on the node may be damaged or replaced: ask the node's administrator.",
    "malformed": _REPORT,
    "unknown": _REPORT,
    "fault": _REPORT,
    "job": "If it runs (squeue --me), try again in a minute; if it is over, restart the kernel and run a cell.",
    "older": "A new kernel can; “jupyter gpu-kernel stop ID” ends this one.",
    "large": "Ask for less at a time, for example for one cell.",
    "busy": "Try again in a moment.",
    "setup": "Run the kernelspec's set-up lines (--setup) by hand on the node and correct them.",
    "code": "Change --code or --cwd in the kernelspec (jupyter gpu-kernel add … --replace), or commit first.",
    "cwd": "Change --cwd in the kernelspec (jupyter gpu-kernel add … --replace).",
}
