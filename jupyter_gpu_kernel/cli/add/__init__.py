"""The verb `add`, which connects to a machine and writes a kernelspec.

add: the verb, and what it prints about the machine; options: its arguments, of which those that are settings are
declared in wire/kernel_settings.py. What the verb has in common with JupyterLab's form is in adding.py, and the
environments of `--create-env` in create_env.py and wheels.py.
"""
