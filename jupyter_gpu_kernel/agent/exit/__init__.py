"""The end of a kernel: why it ended, and the processes and folders that it left."""
