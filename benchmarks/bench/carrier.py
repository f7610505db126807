"""Carries packets between two TUN devices, one here and one in another network namespace, each a fixed time later.

    python carrier.py DEVICE DEVICE_THERE NAMESPACE SECONDS

Prints `ready` once both are there; they go with the process. The kernel hands over packets of up to 64 KB that a
network card would cut (IFF_VNET_HDR), so that carrying costs little. Needs root and Linux.
"""

from __future__ import annotations

import collections
import ctypes
import fcntl
import os
import select
import struct
import sys
import time

_TUNSETIFF, _TUNSETOFFLOAD = 0x400454CA, 0x400454D0
_IFF_TUN, _IFF_NO_PI, _IFF_VNET_HDR = 0x1, 0x1000, 0x4000
_CHECKSUM, _TSO4 = 0x1, 0x2
_CLONE_NEWNET = 0x40000000
_LARGEST = 80_000
_QUEUED = 256 << 20  # bytes on the way: more than any window


class Direction:
    """Packets from `source`, which `target` gets after `delay`."""

    def __init__(self, source: int, target: int, delay: float) -> None:
        self.source, self._target, self._delay = source, target, delay
        self._packets: collections.deque[tuple[float, bytes]] = collections.deque()
        self._size = 0

    def take(self) -> None:
        """Read all packets that are there."""
        for _ in range(256):
            try:
                packet = os.read(self.source, _LARGEST)
            except BlockingIOError:
                return
            if self._size + len(packet) <= _QUEUED:
                self._packets.append((time.monotonic() + self._delay, packet))
                self._size += len(packet)

    def deliver(self) -> float | None:
        """Write what is due. Return when the next packet is."""
        while self._packets and self._packets[0][0] <= time.monotonic():
            packet = self._packets.popleft()[1]
            self._size -= len(packet)
            try:
                os.write(self._target, packet)
            except OSError:  # the device is not up yet, or its queue is full: lost, as on a network
                pass
        return self._packets[0][0] if self._packets else None


def main(here: str, there: str, namespace: str, delay: float) -> None:
    """Carry until killed."""
    near = _device(here)
    with open(namespace) as file:
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.setns(file.fileno(), _CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), "setns")
    far = _device(there)
    print("ready", flush=True)
    directions = [Direction(near, far, delay), Direction(far, near, delay)]
    while True:
        due = [when for when in [one.deliver() for one in directions] if when is not None]
        timeout = max(0.0, min(due) - time.monotonic()) if due else None
        readable, _, _ = select.select([near, far], [], [], timeout)
        for one in directions:
            if one.source in readable:
                one.take()


def _device(name: str) -> int:
    device = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    flags = _IFF_TUN | _IFF_NO_PI | _IFF_VNET_HDR
    fcntl.ioctl(device, _TUNSETIFF, struct.pack("16sH22x", name.encode(), flags))
    fcntl.ioctl(device, _TUNSETOFFLOAD, _CHECKSUM | _TSO4)
    return device


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], float(sys.argv[4]))
