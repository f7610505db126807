"""What all transports have in common: the stream of one command, and short commands over it.

`stream.py` has the one class of streams between hub and node; `process.py` and `hub/ssh/channel.py` have what carries
them; `short_command.py` runs a command to its end.
"""
