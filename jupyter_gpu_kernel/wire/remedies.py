"""Remedies: the sentences about a kernel's end that a keeper may send and the hub shows as its own advice.

A remedy tells the user what to do. Therefore the hub shows no other text of a node as one: `known` accepts only these
sentences.
"""

from __future__ import annotations

NEW_KERNEL = "Its variables are gone: restart, and go on from your last checkpoint."
NO_EXIT = "Restart to go on; leave exit() out of cells."
ASK_ADMINISTRATORS = "The administrators may know."
EXIT_KILL_OR_CRASH = "Without an exit status, exit(), a kill and a crash cannot be distinguished."
LESS_MEMORY = "Use less: smaller batches, fewer DataLoader workers, fewer copies of large data."
MORE_MEMORY = "Ask for more memory (in a job: --mem)."
MORE_TIME = "Ask for more time, or save from a function given to gpu_kernel.on_sigterm."
SCHEDULER = "See the scheduler's records (Slurm: sacct -j, scontrol show job)."
IN_USE = "A running cell, or “with gpu_kernel.hold():”, keeps a kernel in use."
BUS_ERROR = "Possible causes: /dev/shm or a disk is full, or a mapped file was truncated."
ABORT = "The library's message is on the last lines of its output."
CRASH = "The innermost line shows which library: another version of it, or of its CUDA build, may help."
EXIT = "Code in a cell, or a library, called os._exit or failed while ending."
MAKE_ROOM = "Make room there first."
BROKEN_GPU = "Tell the administrators about the GPU."
LINGER = "Run once on the node: loginctl enable-linger. Or ask the administrators, or start it in a job."
LINGER_IF_AGAIN = (
    "If that happens again, run once on the node: loginctl enable-linger. Or ask the administrators."
)

_KNOWN = frozenset(value for name, value in globals().items() if name.isupper())


def known(text: str) -> str:
    """Return the text if it consists of these sentences; else ""."""
    rest = text[:1000]
    while rest:
        sentence = next((one for one in _KNOWN if rest == one or rest.startswith(one + " ")), None)
        if sentence is None:
            return ""
        rest = rest[len(sentence) + 1 :]
    return text
