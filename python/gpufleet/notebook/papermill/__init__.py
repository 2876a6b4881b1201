"""An engine of papermill: runs a notebook on a machine without a GPU, whose kernels queue one by one.

`papermill --engine gpufleet in.ipynb out.ipynb`. Jobs have the labels `notebook`, `run` and `cell`. If a cell fails, or
if papermill is killed, the open jobs of the run are cancelled. The metadata of each cell say what its jobs took.
"""

try:
    # papermill loads the engines while it is imported. A module that defined the class would be imported in a circle.
    import papermill as _papermill  # noqa: F401
except ImportError as _problem:
    raise ImportError("the engine for papermill needs more packages; install gpufleet[notebook]") from _problem

from gpufleet.notebook.papermill._engine import GpufleetEngine

__all__ = ["GpufleetEngine"]
