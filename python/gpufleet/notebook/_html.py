"""Jobs as HTML. Whatever comes from a job is escaped: labels, names and messages may hold any text.

The styles are inline, because notebooks and sites drop style sheets, and the colours suit light and dark pages. All
facts are also in the text, because some sites drop inline styles too.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from html import escape

from gpufleet._report import RanOn, Timings
from gpufleet.notebook._many import STATES, ManyView
from gpufleet.notebook._view import View, duration, steps
from gpufleet.notebook._waiting import Waiting

__all__ = ["card", "many", "table", "waiting"]

_COLOURS = {"queue": "#9aa5b1", "fetch": "#56b4e9", "compile": "#e69f00", "copy": "#cc79a7", "kernel": "#009e73"}
_STATES = {"open": "#56b4e9", "succeeded": "#009e73", "failed": "#d55e00", "cancelled": "#9aa5b1"}
_FRAME = "border-left:3px solid {colour};padding:2px 8px;max-width:44em"
_EMULATED = '<b style="background:#d55e00;color:#fff;padding:0 4px">EMULATED</b>'
_SMALLEST_SHARE = 0.004
"""A step is visible from this share of the bar on."""
_PRINTED_CHARACTERS = 4000
"""The most of a kernel's printed text in a card."""
_NOTE_CHARACTERS = 160
"""The most of an error in a table, whose rows shall stay short. The exception has it all."""


def card(view: View, printed: str | None = None) -> str:
    """A job with its state, device and times, and the text that its kernels printed."""
    return "\n".join(_card(view, printed))


def table(views: Iterable[View]) -> str:
    """Jobs, one in a row."""
    rows = "\n".join(
        f"<tr><td>{escape(view.title)}</td><td><code>{escape(view.job_id)}</code></td><td>{escape(view.state)}</td>"
        f"<td>{escape(view.pool)}</td><td>{_labels(view)}</td></tr>"
        for view in views
    )
    return f"<table>\n<tr><th>job</th><th>id</th><th>state</th><th>pool</th><th>labels</th></tr>\n{rows}\n</table>"


def many(view: ManyView) -> str:
    """Many jobs: the number in each state, and a table of some."""
    return "\n".join(_many(view))


def waiting(view: Waiting) -> str:
    """The jobs of a cell that waits: how many are done, and a bar for one of them."""
    return "\n".join(_waiting(view))


def _waiting(view: Waiting) -> Iterator[str]:
    yield f'<div style="{_FRAME.format(colour=_STATES[view.worst])}">'
    if view.summary:
        yield f"<div>{escape(view.summary)}</div>"
    if view.fraction is not None:
        done = f"{view.fraction:.1%}"
        yield '<div style="background:#9aa5b155;height:8px;margin:3px 0">'
        yield f'<div title="{done}" style="width:{done};height:8px;background:{_STATES["open"]}"></div></div>'
    if job := view.job():
        yield f"<div>{_lines(job)}</div>"
    yield "</div>"


def _many(view: ManyView) -> Iterator[str]:
    worst = next((state for state in STATES if view.counts[state]), "open")
    yield f'<div style="{_FRAME.format(colour=_STATES[worst])}">'
    yield f"<div><b>{escape(view.title)}</b> {escape(view.summary)}</div>"
    if view.emulated:
        yield f"<div>{_EMULATED} {view.emulated:,} of the jobs ran on the emulated device, not on a GPU</div>"
    if view.kernel_seconds is not None:
        yield f"<div>kernels ran for {duration(view.kernel_seconds)}</div>"
    if view.note:
        yield f"<div>{_lines(view.note)}</div>"
    if view.rows:
        yield "<table>"
        yield "<tr><th>#</th><th>job</th><th>id</th><th>state</th><th>device</th><th>kernel</th><th></th></tr>"
        for index, job in view.rows:
            yield _row(index, job)
        yield "</table>"
    if view.hidden:
        yield f"<div>and {view.hidden:,} more</div>"
    yield "</div>"


def _row(index: int, job: View) -> str:
    on, timings = job.ran_on, job.timings
    device = "" if on is None else f"{_EMULATED} {escape(on.device_name)}" if on.emulated else escape(on.device_name)
    note = (job.note or "").strip().partition("\n")[0]
    if len(note) > _NOTE_CHARACTERS:
        note = f"{note[:_NOTE_CHARACTERS]}…"
    return (
        f"<tr><td>{index}</td><td>{escape(job.title)}</td><td><code>{escape(job.job_id)}</code></td>"
        f'<td style="color:{_STATES[job.state]}">{escape(job.state)}</td><td>{device}</td>'
        f"<td>{duration(timings.kernel) if timings else ''}</td><td>{escape(note)}</td></tr>"
    )


def _card(view: View, printed: str | None) -> Iterator[str]:
    yield f'<div style="{_FRAME.format(colour=_STATES[view.state])}">'
    yield f"<div><b>{escape(view.title)}</b> {escape(view.state)}, pool {escape(view.pool)},"
    yield f"job <code>{escape(view.job_id)}</code></div>"
    if view.labels:
        yield f"<div>{_labels(view)}</div>"
    if view.ran_on:
        yield f"<div>{_device(view.ran_on)}</div>"
    if view.timings:
        yield from _times(view.timings)
    if view.note:
        yield f'<pre style="margin:0;white-space:pre-wrap">{_lines(view.note)}</pre>'
    if printed:
        shown = printed[:_PRINTED_CHARACTERS]
        more = "" if len(shown) == len(printed) else "\n… future.printed has all of it"
        yield f'<pre style="margin:0;white-space:pre-wrap">printed:\n{_lines(shown + more)}</pre>'
    yield "</div>"


def _labels(view: View) -> str:
    return " ".join(f"<code>{escape(name)}={escape(value)}</code>" for name, value in view.labels.items())


def _device(ran_on: RanOn) -> str:
    place = f"{escape(ran_on.device_name)}, device {ran_on.device} of {escape(ran_on.worker)}"
    return f"{_EMULATED}\n{place}" if ran_on.emulated else place


def _times(timings: Timings) -> Iterator[str]:
    times = steps(timings)
    whole = sum(times.values())
    yield '<div style="display:flex;height:8px;margin:3px 0">'
    for step, seconds in times.items():
        if whole and seconds / whole >= _SMALLEST_SHARE:
            yield f'<div title="{step}" style="flex:{seconds / whole:.4f};background:{_COLOURS[step]}"></div>'
    yield "</div>"
    yield "<div>"
    for step, seconds in times.items():
        yield f'<span style="color:{_COLOURS[step]}">■</span> {step} {duration(seconds)}'
    yield "</div>"


def _lines(text: str) -> str:
    """An empty line would end the HTML where Markdown embeds it."""
    return "\n".join(escape(line) or "&nbsp;" for line in text.splitlines())
