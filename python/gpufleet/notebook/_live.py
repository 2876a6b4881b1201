"""One display for the jobs that a cell submits or waits for, while the cell runs.

A thread of its own updates it, because the thread of the cell waits. Cells whose jobs end within a second show nothing.
"""

from __future__ import annotations

import contextvars
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

from gpufleet._dependent import Dependent
from gpufleet._future import OBSTACLE_SECONDS, Future
from gpufleet._printed import print_rest
from gpufleet._progress import time_passed
from gpufleet._scope import Scope, entered
from gpufleet.notebook._view import View, state_of
from gpufleet.notebook._waiting import Waiting

__all__ = ["Cells", "Live"]

UPDATE_SECONDS = 0.5
"""The time between two updates."""
WAITING = {"gpufleet": "waiting"}
"""The metadata of an output that is there only because a job took long."""

Show = Callable[[Waiting | View, bool], None]
"""Shows a view. The flag says that it replaces the view before."""


class Live(Scope):
    """Follows the jobs of a cell."""

    def __init__(self, show: Show, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(None)
        self._show = show
        self._clock = clock
        self._started = clock()
        # Jobs begin and end in other threads too.
        self._lock = threading.Lock()
        self._open: dict[Future[Any], float] = {}
        """The open jobs with the times from which the cell has them, the oldest first."""
        self._states: Counter[str] = Counter()
        """The number of ended jobs in each state."""
        self._printed: list[Future[Any]] = []
        """Ended jobs whose text was shown while they ran. The rest of it is not shown yet."""
        self._title = ""
        """The name of the first job."""
        self._shown: str | None = None
        self._thread: threading.Thread | None = None
        self._is_over = threading.Event()

    def began(self, future: Future[Any]) -> None:
        # A job that needs others begins when these have ended.
        if not isinstance(future, Dependent):
            self._add(future)

    def waited(self, future: Future[Any]) -> None:
        jobs = [future]
        if isinstance(future, Dependent):
            jobs = list(future._needs) if future._job is None else [future._job]
        for job in jobs:
            self.began(job)

    def update(self) -> None:
        """Prints what the kernels have printed, and shows how far the jobs are, if a person has waited for a second."""
        self._print()
        view = self._view()
        if view is not None and repr(view) != self._shown:
            self._show(view, self._shown is not None)
            self._shown = repr(view)

    def finish(self, view: View | None = None) -> None:
        """Shows how the jobs have ended, if they were shown before, or a view that says more."""
        if self._is_over.is_set():
            return
        with self._lock:
            self._is_over.set()
        if self._thread is not None:
            self._thread.join()
        if view is None:
            self.update()
        else:
            self._show(view, self._shown is not None)
            self._print()

    def _add(self, future: Future[Any]) -> None:
        with self._lock:
            if self._is_over.is_set() or future in self._open or future.done():
                return
            self._open[future] = self._clock()
            if self._thread is None:
                self._started, self._title = self._clock(), _title(future)
                self._thread = self._start()
        future._follow()
        future._observe(self._ended)

    def _start(self) -> threading.Thread:
        # The context names the cell, to which the output of the thread belongs.
        context = contextvars.copy_context()
        thread = threading.Thread(target=context.run, args=(self._run,), name="gpufleet-cell", daemon=True)
        thread.start()
        return thread

    def _run(self) -> None:
        while not self._is_over.wait(UPDATE_SECONDS):
            self.update()

    def _ended(self, future: Future[Any]) -> None:
        course = future._course
        with self._lock:
            del self._open[future]
            self._states[state_of(future)] += 1
            if course is not None and course.transcript is not None:
                self._printed.append(future)

    def _print(self) -> None:
        with self._lock:
            open_, ended, self._printed = list(self._open), self._printed, []
        for future in open_:
            course = future._course
            if course is not None and course.transcript is not None and (text := course.transcript.unseen()):
                print(text, end="", flush=True)
        for future in ended:
            print_rest(future)

    def _view(self) -> Waiting | None:
        with self._lock:
            open_, counts = dict(self._open), self._states.copy()
        now = self._clock()
        oldest = next(iter(open_), None)
        waited = now - open_[oldest] if oldest else 0.0
        if self._shown is None and (waited < OBSTACLE_SECONDS or self._is_over.is_set()):
            return None
        counts["open"] = len(open_)
        view = Waiting(counts, now - self._started, self._title)
        if oldest is None:
            return view
        if self._is_over.is_set():
            return replace(view, title=_title(oldest), note="still open at the end of the cell")
        running = next((job for job in open_ if _is_running(job)), None)
        if running is not None and running._course is not None:
            return replace(view, title=_title(running), progress=running._course.current)
        why = oldest._obstacle()
        note = f"waiting for {time_passed(waited)}" + (f": {why}" if why else "")
        return replace(view, title=_title(oldest), note=note)


class Cells:
    """Follows each cell of a notebook. `display` shows a view, as IPython's function does."""

    def __init__(self, shell: Any, display: Callable[..., Any]) -> None:
        self._display = display
        self._scope = ExitStack()
        self._live: Live | None = None
        shell.events.register("pre_run_cell", self._begin)
        shell.events.register("post_run_cell", self._end)
        # The cell that loads the extension may submit jobs.
        self._begin()

    def show(self, view: View) -> None:
        """Shows how the only job of the cell has ended."""
        if self._live is not None:
            self._live.finish(view)

    def _begin(self, info: object = None) -> None:
        self._end()
        self._live = Live(self._show_as(uuid.uuid4().hex))
        self._scope.enter_context(entered(self._live))

    def _end(self, result: object = None) -> None:
        self._scope.close()
        if self._live is not None:
            self._live.finish()

    def _show_as(self, identity: str) -> Show:
        """Returns a function that shows views in one place of the page."""

        def show(view: Waiting | View, is_update: bool) -> None:
            metadata = WAITING if isinstance(view, Waiting) else None
            self._display(view, display_id=identity, update=is_update, metadata=metadata)

        return show


def _title(future: Future[Any]) -> str:
    return future._options.name or "job"


def _is_running(future: Future[Any]) -> bool:
    """Returns whether a worker said lately how far the job is. If it died, the job waits for another one."""
    course = future._course
    return course is not None and course.is_fresh
