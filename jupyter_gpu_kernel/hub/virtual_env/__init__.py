"""Virtual environments that we make on nodes for `add --create-env`, and remove for `remove --env`."""
