"""Virtual environments that we make on nodes for `add --create-env`, and remove for `remove --env`.

`base_python.py` chooses the Python from which an environment is made, and
`node_script.py` runs the script `agent/virtual_env.sh` on the node and checks its answers.
"""
