"""The sockets of one front end: ports, keys, the identities of its clients, and which users may connect."""
