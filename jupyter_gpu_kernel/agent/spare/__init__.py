"""The spare interpreter: a process that has imported what a kernel needs, and from which kernels are forked.

`server.py` is that process: it imports, forks, and becomes a kernel in the forked process, which shows the kernel's
command line (`proc_title.py`). `client.py` is the keeper's end. `places.py` has the files of spare interpreters, and
what both ends send each other, `identity.py` the key that tells them apart, and `files.py` notices changes of the
Python environment.
"""
