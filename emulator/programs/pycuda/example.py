"""Runs an example of PyCUDA.

Most of them expect a context, but the release's examples have lost the import of `pycuda.autoinit`, which makes one.
"""

import runpy
import sys
from pathlib import Path

example = Path(sys.argv.pop(1))
if "make_context" not in example.read_text(encoding="utf-8"):
    import pycuda.autoinit  # noqa: F401

runpy.run_path(str(example), run_name="__main__")
