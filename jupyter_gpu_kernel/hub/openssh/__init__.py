"""The SSH connection to a work node by the system's `ssh` program.

This transport does what paramiko cannot: Kerberos, certificates, PKCS#11 and FIDO keys, ProxyCommand, lists of
algorithms and of revoked keys, and connections that the user's own ssh has open already.

- `program.py` has the command lines of ssh, and `process.py` is one process of ssh: its stream, and its logs.
- `connect.py` connects: with a ControlMaster for each hop, or, as on Windows, with one process for all hops.
- `hops.py` runs commands on a hop; short ones share a shell.
- `complaints.py` makes errors of the logs.
- `askpass.py` is the program that ssh runs to ask the user. It asks at the socket of `questions.py`, which answers.
"""
