"""A spec for each host of a kernelspec with several hosts, and the error if no host can be used."""

from __future__ import annotations

from collections.abc import Iterable

from ...errors import GpuKernelError, KernelStartError
from .. import sanitize
from ..kernel_settings import Spec


def each_spec(specs: Iterable[Spec]) -> list[Spec]:
    """Return a spec for each host of each of these specs."""
    return [spec._replace(settings=one) for spec in specs for one in spec.settings.each_host()]


def none_usable(errors: dict[str, GpuKernelError]) -> GpuKernelError:
    """Return the error for hosts of which none can be used. `errors`: by the names of the hosts. If the user can sign
    in to a host, the error is that of this host. If all hosts fail because of one hop before them, the error is that of
    this hop."""
    first = next(iter(errors.values()))
    sign_in = next((error for error in errors.values() if error.login), None)
    is_of_hop = bool(first.hop) and len({(error.hop, error.cause) for error in errors.values()}) == 1
    if sign_in is not None or is_of_hop or len(errors) == 1:
        return sign_in or first
    causes = "; ".join(f"{name}: {sanitize.one_line(error.cause)}" for name, error in errors.items())
    return KernelStartError(f"none of the hosts can be used: {causes}", remedy=first.remedy)
