"""Notebooks: the magics of IPython, `with gpu(...)`, and how jobs are shown.

`%load_ext gpufleet` makes the magics. Nothing here imports IPython before that.
"""

from gpufleet.notebook._gpu import gpu
from gpufleet.notebook._session import current_fleet, use

__all__ = ["current_fleet", "gpu", "use"]
