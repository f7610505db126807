"""The SSH connection to a work node by the system's `ssh` program: one ControlMaster per hop.

This transport does what paramiko cannot: Kerberos, certificates, PKCS#11 and FIDO keys, ProxyCommand,
KnownHostsCommand, binary revocation lists, and connections that the user's own ssh has open already.

- `program.py` has the command lines of ssh. `connect.py` connects to one hop, whose ssh process is a `master.py`, and
  `master_hop.py` runs commands there, each by a process of its own (`session.py`).
- `log.py` reads ssh's log, and `complaints.py` makes errors of it.
- `askpass.py` is the program that ssh runs to ask the user. It asks `askpass_server.py`, and `questions.py` answers.
"""
