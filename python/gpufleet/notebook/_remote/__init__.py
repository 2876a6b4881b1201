"""Cells that run on the machine of a worker: `%%gpu --remote`."""
