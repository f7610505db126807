"""The SSH connection to a work node by the system's `ssh` program: one ControlMaster per hop.

It does what paramiko cannot: Kerberos, certificates, PKCS#11 and FIDO keys, ProxyCommand, KnownHostsCommand, binary
revocation lists, and connections that the user's own ssh has open already.
"""
