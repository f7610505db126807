"""The sockets towards front ends: ports, keys, client identities, and who may connect."""
