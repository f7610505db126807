"""The connections of the hub's clients. `challenge.py` is how both sides prove that they have the key, which a client
imports, too; `client_connection.py` is one client's connection in the hub. `rpc.py`, above, makes calls of them.
"""
