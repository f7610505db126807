"""The network between the laptop and the login node: a namespace of its own with a delay, or loopback with a proxy.

The nodes' sshd run in the namespace, and the laptop is everything else. At 0 ms a veth pair joins both; with a delay,
two TUN devices do, between which `carrier.py` carries each packet later, so that TCP sees the round trip as on a long
path. A namespace needs root. Without it the nodes are on loopback, and `proxy.py` delays the bytes of each connection:
TCP's own windows then play no part, but those of SSH do.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Protocol

HERE = Path(__file__).parent


class Network(Protocol):
    """Where the login node listens, as the laptop sees it, and how a command is run on the nodes."""

    description: str

    def listen_address(self) -> str: ...

    def inside(self, command: list[str]) -> list[str]: ...

    def reach(self, port: int) -> tuple[str, int]: ...

    def close(self) -> None: ...


def make(round_trip: float) -> Network:
    """`round_trip` in milliseconds."""
    if os.geteuid() == 0 and sys.platform == "linux":
        try:
            return Namespace(round_trip)
        except (OSError, subprocess.CalledProcessError) as error:
            print(f"no network namespace here ({error}): measuring through loopback", file=sys.stderr)
    return Loopback(round_trip)


class Namespace:
    """A network namespace, kept by a process, and the path to it."""

    def __init__(self, round_trip: float) -> None:
        number = os.getpid()
        subnet = f"10.{224 + number % 16}.{(number >> 4) % 256}"
        self._processes: list[subprocess.Popen[bytes]] = []
        self._links: list[str] = []
        self.description = (
            f"a network namespace, each packet delayed by {round_trip / 2:g} ms in both directions"
            if round_trip
            else "a network namespace"
        )
        self._there = f"{subnet}.2"
        keeper = subprocess.Popen(["unshare", "--net", "sh", "-c", "echo; exec cat"], stdin=-1, stdout=-1)
        self._processes.append(keeper)
        assert keeper.stdout
        keeper.stdout.readline()
        self._keeper = keeper.pid
        here, there = f"jgk{number % 1000000}l", f"jgk{number % 1000000}n"
        try:
            self._ip_inside("link", "set", "lo", "up")
            if round_trip:
                self._carry(here, there, round_trip)
            else:
                _ip("link", "add", here, "type", "veth", "peer", "name", there, "netns", str(self._keeper))
            self._links.append(here)
            _ip("address", "add", f"{subnet}.1/30", "dev", here)
            _ip("link", "set", here, "up")
            self._ip_inside("address", "add", f"{subnet}.2/30", "dev", there)
            self._ip_inside("link", "set", there, "up")
        except BaseException:
            self.close()
            raise

    def listen_address(self) -> str:
        return self._there

    def inside(self, command: list[str]) -> list[str]:
        return ["nsenter", f"--net=/proc/{self._keeper}/ns/net", "--", *command]

    def reach(self, port: int) -> tuple[str, int]:
        return self._there, port

    def close(self) -> None:
        for process in reversed(self._processes):
            process.kill()
            process.wait()
        for link in self._links:  # a TUN device has gone with its process
            subprocess.run(["ip", "link", "delete", link], stderr=subprocess.DEVNULL, check=False)

    def _carry(self, here: str, there: str, round_trip: float) -> None:
        words = [sys.executable, str(HERE / "carrier.py"), here, there]
        words += [f"/proc/{self._keeper}/ns/net", str(round_trip / 2000)]
        carrier = subprocess.Popen(words, stdout=subprocess.PIPE)
        self._processes.append(carrier)
        assert carrier.stdout
        if carrier.stdout.readline() != b"ready\n":
            raise OSError("no TUN device")

    def _ip_inside(self, *words: str) -> None:
        subprocess.run(self.inside(["ip", *words]), check=True)


class Loopback:
    """The nodes listen on 127.0.0.1; with a delay, connections to the login node lead through proxies."""

    def __init__(self, round_trip: float) -> None:
        self._one_way = round_trip / 2000
        self._proxies: list[subprocess.Popen[bytes]] = []
        self.description = (
            f"loopback, through a proxy that delays bytes by {round_trip / 2:g} ms in both directions"
            if round_trip
            else "loopback"
        )

    def listen_address(self) -> str:
        return "127.0.0.1"

    def inside(self, command: list[str]) -> list[str]:
        return command

    def reach(self, port: int) -> tuple[str, int]:
        if not self._one_way:
            return "127.0.0.1", port
        words = [sys.executable, str(HERE / "proxy.py"), str(port), str(self._one_way)]
        proxy = subprocess.Popen(words, stdout=subprocess.PIPE)
        self._proxies.append(proxy)
        assert proxy.stdout
        return "127.0.0.1", int(proxy.stdout.readline())

    def close(self) -> None:
        for proxy in self._proxies:
            proxy.kill()
            proxy.wait()


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True)
