"""The SSH connection to a work node, over any number of jump hosts. Only this package uses paramiko."""
