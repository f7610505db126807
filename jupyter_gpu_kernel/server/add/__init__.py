"""The page's form for a new kernelspec.

form: the machines that it offers, and what it was filled in with; probes: what is found on the node;
kernelspecs: writes and removes kernelspecs.
"""
