"""A kernelspec's settings with several hosts, as settings for each of them, and the error if none can be used."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ...errors import GpuKernelError, KernelStartError
from .. import sanitize
from ..kernel_settings import KernelSettings, Spec


def each_host(settings: dict[str, Any]) -> list[dict[str, Any]]:
    """Return a kernelspec's settings, as commands have them, with the route to each of their hosts."""
    return [one.to_json() for one in KernelSettings.from_json(settings).each_host()]


def each_spec(specs: Iterable[Spec]) -> list[Spec]:
    """Return the specs with one for each host of each."""
    return [spec._replace(settings=one) for spec in specs for one in spec.settings.each_host()]


def none_usable(errors: dict[str, GpuKernelError]) -> GpuKernelError:
    """Return the error if none of the hosts, by name, can be used: that of one to which only its user can sign in."""
    first, *others = errors.values()
    sign_in = next((error for error in errors.values() if error.login), None)
    if sign_in is not None or not others:
        return sign_in or first
    causes = "; ".join(f"{name}: {sanitize.one_line(error.cause)}" for name, error in errors.items())
    return KernelStartError(f"none of the hosts can be used: {causes}", remedy=first.remedy)
