"""The verb `add`: connect as ssh would, find a Python and the GPUs, and write a kernelspec.

command: the verb; options: its options, of which most are settings that wire/kernel_settings.py declares; questions:
what the verb asks in a terminal where no machine was given; result: what it prints. create_env, wheels: the
environments of `--create-env`. What the verb has in common with the form of JupyterLab is in adding.py.
"""
