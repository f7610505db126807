"""The page's form for a new kernelspec.

ssh_hosts: the hosts that it offers; form: what it was filled in with; probe, probes: what is found on the node;
kernelspecs: writes and removes kernelspecs.
"""
