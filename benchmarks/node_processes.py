"""Prints what this user's processes cost on a work node, by kind: attach, keepers, kernels, sshd. Sent by many.py.

One JSON object: {kind: [MiB, threads, processes, CPU seconds]}. "sshd" are those of all users that serve a session.
"""

import json
import os
import re

TICKS = os.sysconf("SC_CLK_TCK")
KINDS = (("attach", r"agent-\w+\0attach"), ("keepers", r"agent-\w+\0(serve|succeed)"))
KINDS += (("kernels", r"agent-\w+\0ipykernel"), ("sshd", r"^sshd"))


def main() -> None:
    """Count, print."""
    total = {kind: [0.0, 0, 0, 0.0] for kind, _ in KINDS}
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open("/proc/%s/cmdline" % pid) as file:
                command = file.read()
            kind = next((kind for kind, pattern in KINDS if re.search(pattern, command)), None)
            if kind is None:
                continue
            with open("/proc/%s/status" % pid) as file:
                status = dict(line.split(":", 1) for line in file if ":" in line)
            with open("/proc/%s/stat" % pid) as file:
                fields = file.read().rpartition(")")[2].split()
        except OSError:  # ended meanwhile
            continue
        cpu = (int(fields[11]) + int(fields[12])) / TICKS
        values = (int(status["VmRSS"].split()[0]) / 1024, int(status["Threads"]), 1, cpu)
        total[kind] = [a + b for a, b in zip(total[kind], values)]  # noqa: B905 (Python 3.8)
    print(json.dumps(total))


main()
