"""The connections of the hub's clients: launchers, provisioners, the server extension and commands.

`client_connection.py` is the connection of one client, whose messages `rpc.py`, above, turns into calls.
`challenge.py` is how both sides prove that they have the key; a client imports it, too.
"""
