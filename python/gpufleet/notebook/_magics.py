"""The magics of IPython."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any

from gpufleet._diagnostics import Origin
from gpufleet._launching import LaunchedKernel
from gpufleet._printed import print_rest
from gpufleet._task import ProgressCounter
from gpufleet.notebook import _cuda, _jit
from gpufleet.notebook._arguments import CellParameter, results
from gpufleet.notebook._cancel import cancel_jobs, cancel_labelled, open_jobs
from gpufleet.notebook._device import open_session
from gpufleet.notebook._gpu import gpu
from gpufleet.notebook._html import table
from gpufleet.notebook._interrupt import Interrupts
from gpufleet.notebook._live import Cells
from gpufleet.notebook._options import CellError, CellOptions, parse
from gpufleet.notebook._remote._cell import run_cell
from gpufleet.notebook._remote._code import code_of
from gpufleet.notebook._remote._options import is_remote
from gpufleet.notebook._remote._options import parse as parse_remote
from gpufleet.notebook._session import current_fleet
from gpufleet.notebook._timeit import RUNS, Measured, measure
from gpufleet.notebook._view import View, view_of

__all__ = ["load"]

_FIRST_LINE = 2
"""The code of a cell begins below the magic."""


def load(shell: Any) -> None:
    """Adds the magics and the name `gpu` to a shell of IPython."""
    magics = _Magics(shell)
    shell.register_magic_function(magics.cell, "cell", "gpu")
    shell.register_magic_function(magics.line, "line", "gpu")
    shell.register_magic_function(magics.timeit, "line", "gpu_timeit")
    shell.register_magic_function(magics.session, "line", "gpu_session")
    Interrupts(shell)
    magics.follow_cells()
    if shell.user_ns.setdefault("gpu", gpu) is not gpu:
        print("The notebook has a variable `gpu`. For the scope: from gpufleet.notebook import gpu as gpu_scope")


class Jobs:
    """Jobs as a table."""

    def __init__(self, views: Sequence[View]) -> None:
        self.views = views

    def __repr__(self) -> str:
        return "\n".join(f"{view.job_id} {view!r}" for view in self.views) or "no open jobs"

    def _repr_html_(self) -> str:
        return table(self.views) if self.views else "no open jobs"


def _usage(magic: Callable[..., Any]) -> Callable[..., Any]:
    """IPython shows a UsageError as one line."""

    @wraps(magic)
    def wrapped(*args: Any) -> Any:
        try:
            return magic(*args)
        except CellError as problem:
            from IPython.core.error import UsageError  # noqa: PLC0415

            raise UsageError(str(problem)) from None

    return wrapped


class _Magics:
    def __init__(self, shell: Any) -> None:
        self._shell = shell
        self._cells: Cells | None = None

    def follow_cells(self) -> None:
        """Shows the progress of each cell's jobs, except in a terminal, which can't replace what it has shown."""
        if hasattr(self._shell, "kernel"):
            from IPython.display import display  # noqa: PLC0415

            self._cells = Cells(self._shell, display)

    @property
    def _names(self) -> dict[str, Any]:
        names: dict[str, Any] = self._shell.user_ns
        return names

    @_usage
    def cell(self, line: str, cell: str) -> Any:
        """CUDA C++ on the fleet of the notebook.

        %%gpu alone compiles the cell and defines each of its kernels, which are extern "C" __global__ functions, as a
        variable: kernel(grid, block, args).

        With --cover, the cell runs at once with the named variables:

        %%gpu -i x,n -o y:f32[1024] --cover 1024

        -i PARAMETER[=VARIABLE],...                 variables that are passed
        -o PARAMETER[=VARIABLE]:DTYPE[SHAPE],...    variables that get results; they start as zeros
        -o PARAMETER[=VARIABLE]                     the variable is passed, and gets the result
        --cover THREADS                             1024, or 640,480; also names of variables
        --block THREADS                             threads in a block
        --kernel NAME                               the kernel to run, if the cell has several
        --option OPTION                             an option of NVRTC; repeatable
        --python                                    the cell has functions with @cuda.jit of Numba

        With --remote, the cell is ordinary Python that runs on the machine of a worker, with a whole device:

        %%gpu --remote --env torch

        The names that it uses go along, and those that it changes come back.

        --env NAME             environment of the worker, such as torch; or --image NAME, a container image
        --pool POOL            pool whose workers run programs
        --time-limit TIME      longest time for which the cell runs, such as 2h
        --queue-limit TIME     longest time to wait for a worker
        --network              let the cell use the network, if the pool allows it
        --upload PATH          file or folder for the cell, such as a module of yours; repeatable
        --max-size SIZE        the most that goes to the worker or comes back [default: 256MiB]
        """
        if is_remote(line):
            code = code_of(self._shell, cell, self._file_of(cell))
            run_cell(self._shell, current_fleet(), parse_remote(line), code, self._cell_name(), self._show)
            return None
        options = parse(line)
        if options.is_python:
            return self._python_cell(cell, options)
        origin = Origin(self._cell_name(), _FIRST_LINE)
        if not options.runs:
            kernels, defined = _cuda.define(current_fleet(), cell, options, origin)
            self._names.update(kernels)
            return defined
        with _cuda.explained(origin):
            return self._run(options, *_cuda.prepare(current_fleet(), cell, options, self._names, origin))

    @_usage
    def line(self, line: str) -> Any:
        """The jobs of this notebook.

        %gpu jobs                  lists the open jobs
        %gpu cancel                cancels the open jobs
        %gpu cancel ID...          cancels open jobs by the beginning of their ids
        %gpu cancel KEY=VALUE...   cancels all jobs of the fleet that have these labels
        """
        match line.split():
            case ["jobs"]:
                return Jobs([view_of(future) for future in open_jobs()])
            case ["cancel", *what] if what and all("=" in each for each in what):
                cancel_labelled(current_fleet(), dict(each.split("=", 1) for each in what))
                return None
            case ["cancel", *ids]:
                return self._cancel(ids)
        raise CellError("write %gpu jobs, %gpu cancel, %gpu cancel ID or %gpu cancel KEY=VALUE")

    @_usage
    def timeit(self, line: str) -> Measured:
        """Measures the jobs of a statement on the device: %gpu_timeit [-n RUNS] STATEMENT."""
        found = re.fullmatch(r"(?:-n\s*(?P<runs>[1-9]\d*)\s+)?(?P<statement>[^-\s].*)", line.strip())
        if found is None:
            raise CellError("write %gpu_timeit STATEMENT or %gpu_timeit -n RUNS STATEMENT")
        code = compile(found["statement"], "<%gpu_timeit>", "exec")
        return measure(lambda: exec(code, self._names), int(found["runs"] or RUNS))

    @_usage
    def session(self, line: str) -> None:
        """The GPU of a worker for this notebook, for libraries such as numba-cuda: %gpu_session --memory 8GiB.

        Run it before the first cell that uses CUDA. The session ends with the notebook's kernel.

        --memory SIZE                  device memory to lease, such as 8GiB
        --pool POOL                    pool whose workers offer sessions
        --time-limit TIME              longest time for which the session is open, such as 2h
        --idle-limit TIME              longest time without a driver call or a running kernel
        --queue-limit TIME             longest time to wait for a worker
        --device-name NAME             use only a device whose name contains this text
        --compute-capability X.Y       use only a device of at least this compute capability
        --name NAME                    name of the job in the history
        --library FILE                 gpufleet's driver library
        """
        open_session(self._shell, line)

    def _cancel(self, ids: Sequence[str]) -> None:
        jobs = open_jobs()
        for begin in ids:
            if not any(job.job_id.startswith(begin) for job in jobs):
                raise CellError(f"no open job has an id that begins with {begin!r}; %gpu jobs lists them")
        count = cancel_jobs(job for job in jobs if not ids or job.job_id.startswith(tuple(ids)))
        print(f"Cancelled {count} job{'s' * (count != 1)}.")

    def _python_cell(self, cell: str, options: CellOptions) -> Any:
        file = self._file_of(cell)
        # A cell that runs changes no variable but its outputs.
        names = dict(self._names) if options.runs else self._names
        kernels = _jit.define(current_fleet(), cell, file, names)
        if options.runs:
            return self._run(options, *_jit.prepare(kernels, options, self._names))
        self._names.update(kernels)
        return _cuda.Defined([f"{name}[grid, block](...)" for name in kernels])

    def _run(
        self, options: CellOptions, kernel: LaunchedKernel, parameters: Sequence[CellParameter], args: Sequence[Any]
    ) -> None:
        grid, block = options.grid(self._names)
        future = kernel.submit(grid, block, tuple(args))
        future._wait()
        self._show(view_of(future))
        print_rest(future)
        arrays = [each for each, arg in zip(parameters, args, strict=True) if not isinstance(arg, ProgressCounter)]
        self._names.update(results(arrays, options, future.result()))

    def _show(self, view: View) -> None:
        """Shows a job of a cell that runs it, in place of its progress."""
        if self._cells is not None:
            self._cells.show(view)
            return
        from IPython.display import display  # noqa: PLC0415

        display(view)

    def _file_of(self, cell: str) -> str:
        """The file under which IPython knows the lines of the cell, below the magic."""
        number = re.search(r"\d+", self._cell_name())
        file: str = self._shell.compile.cache(f"\n{cell}", int(number[0]) if number else self._shell.execution_count)
        return file

    def _cell_name(self) -> str:
        """The cell as tracebacks name it, such as `Cell In[3]`."""
        frame = sys._getframe(1)
        while frame.f_back is not None and frame.f_globals is not self._shell.user_global_ns:
            frame = frame.f_back
        return " ".join(self._shell.compile.format_code_name(frame.f_code.co_filename) or ("cell",))
