"""Starts the hub: `python -m jupyter_gpu_kernel.hub serve`. spawn.py runs this."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the hub, and return when it exits."""
    # paramiko would import it for `Match exec` in a config file, which it is not asked to evaluate: an eighth of the
    # time that the hub takes to start.
    sys.modules["invoke"] = None  # type: ignore[assignment]
    from .app import HubApp

    HubApp.launch_instance(argv=sys.argv[2:])


if __name__ == "__main__":
    main()
