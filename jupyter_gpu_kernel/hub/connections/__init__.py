"""How a connection to a work node is made: over SSH, on this machine, and through commands that lead further."""
