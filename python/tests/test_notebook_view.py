"""How jobs are shown: plain data and HTML, without a fleet."""

from __future__ import annotations

from collections import Counter
from html.parser import HTMLParser
from typing import Any, cast

import pytest

import gpufleet as gf
from gpufleet._future import Future
from gpufleet._task import Options
from gpufleet.notebook._html import card, many, table
from gpufleet.notebook._live import Live
from gpufleet.notebook._many import ManyView
from gpufleet.notebook._view import View
from gpufleet.notebook._waiting import Waiting

HOSTILE = "<script>alert('1')</script>\"'&"
TIMINGS = gf.Timings(1.0, 0.25, 0.0, 0.0, 0.5, 0.0, 0.05, (0.1, 0.1), 0.0, 0.9, 4096, module_cached=False)


class Text(HTMLParser):
    """The tags and the text that a browser finds."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.text = ""
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs

    def handle_data(self, data: str) -> None:
        self.text += data


def hostile(state: str = "failed") -> View:
    ran_on = gf.RanOn(HOSTILE, 0, HOSTILE, emulated=True)
    return View(HOSTILE, HOSTILE, state, HOSTILE, {HOSTILE: HOSTILE}, f"a\n\n{HOSTILE}", TIMINGS, ran_on)


@pytest.mark.parametrize("state", ["open", "succeeded", "failed", "cancelled"])
def test_whatever_comes_from_a_job_is_text(state: str) -> None:
    for html in (card(hostile(state)), table([hostile(state)])):
        found = Text(html)
        assert set(found.tags) <= {"div", "b", "code", "span", "pre", "table", "tr", "td", "th"}
        assert {name for name, _ in found.attributes} <= {"style", "title"}
        assert found.text.count(HOSTILE) >= 4
        assert "\n\n" not in html, "Markdown would end the HTML there"


def test_a_card_shows_what_the_kernels_printed() -> None:
    view = View("1", "k", "succeeded")
    assert "printed" not in card(view, "")
    html = card(view, f"{HOSTILE}\n\nlast")
    found = Text(html)
    assert f"printed:\n{HOSTILE}\n" in found.text and found.text.rstrip().endswith("last")
    assert "script" not in found.tags and "\n\n" not in html
    assert "future.printed has all of it" in card(view, "x" * 5000)


def test_a_table_of_many_jobs_has_only_text_of_theirs() -> None:
    view = ManyView(HOSTILE, Counter(failed=3), ((0, hostile()), (7, hostile("open"))), emulated=1, note=HOSTILE)
    found = Text(many(view))
    assert set(found.tags) <= {"div", "b", "code", "span", "table", "tr", "td", "th"}
    assert {name for name, _ in found.attributes} <= {"style", "title"}
    assert found.text.count(HOSTILE) >= 8 and "and 1 more" in found.text
    assert "\n\n" not in many(view), "Markdown would end the HTML there"


def test_an_emulated_device_is_marked() -> None:
    emulated = View("1", "k", "succeeded", ran_on=gf.RanOn("w", 0, "CPU", emulated=True))
    real = View("1", "k", "succeeded", ran_on=gf.RanOn("w", 0, "H100", emulated=False))
    assert "EMULATED" in Text(card(emulated)).text and "EMULATED" in repr(emulated)
    assert "EMULATED" not in card(real) + repr(real)


def test_the_bar_has_the_steps_in_their_shares() -> None:
    bar = [value for name, value in Text(card(hostile())).attributes if name == "style" and "flex:0" in str(value)]
    assert [str(each).split(";")[0] for each in bar] == ["flex:0.2500", "flex:0.5000", "flex:0.0500", "flex:0.2000"]
    assert repr(hostile()).endswith(f"queue 250.0 ms, compile 500.0 ms, copy 50.0 ms, kernel 200.0 ms, a\n\n{HOSTILE}")


def test_a_cell_that_waits_shows_its_jobs_and_a_bar() -> None:
    counts = Counter(open=6, succeeded=3, failed=1)
    view = Waiting(counts, 41.9, HOSTILE, gf.Progress("7", 1, "running", 12.0, 36.0, counter=gf.Count(5, 20)))
    assert view.summary == "4 of 10 jobs done, 1 failed · 41 s"
    bar = "kernels ██░░░░░░░░ 5/20 steps · 12 s · about 35 s left"
    assert repr(view) == f"4 of 10 jobs done, 1 failed · 41 s\n{HOSTILE}: {bar}"
    found = Text(view._repr_html_())
    assert set(found.tags) == {"div"} and {name for name, _ in found.attributes} <= {"style", "title"}
    assert HOSTILE in found.text and "width:25.0%" in str(found.attributes)
    assert repr(Waiting(Counter(open=1), 3, "k", note="waiting for 3 s: why")) == "k: waiting for 3 s: why"
    assert repr(Waiting(Counter(succeeded=1), 3, "k")) == "k: succeeded · 3 s"
    assert repr(Waiting(Counter(succeeded=2), 3, "k")) == "2 of 2 jobs done · 3 s"


class Jobs:
    """A connection whose jobs never end by themselves."""

    pool = "default"
    is_inherited = False

    def __init__(self) -> None:
        self.asked = 0

    def follow(self, _: str | None) -> None:
        self.asked += 1

    def obstacle(self, pool: str) -> str:
        return f"no worker serves pool {pool}"

    def future(self, name: str) -> Future[Any]:
        return Future(cast(Any, self), 0, name, Options(name=name), dict)


class StoppedLive(Live):
    """Without a thread, so that the test makes the updates."""

    def _run(self) -> None:
        pass


def test_a_cell_is_shown_from_the_first_second_on_and_only_if_something_changes() -> None:
    now, shown, jobs = [0.0], list[tuple[str, bool]](), Jobs()
    live = StoppedLive(lambda view, is_update: shown.append((repr(view), is_update)), lambda: now[0])
    first, second = jobs.future("a"), jobs.future("b")
    for future in (first, second, first):
        live.began(future)
    for step in range(9):
        now[0] = step / 4
        live.update()
    first._progressed(("a", 1, 0, 2000, 0, "running", (1, 4), None, None, None))
    live.update()
    first._complete({}, None, None)
    live.finish()
    live.finish()
    live.began(jobs.future("after the end of the cell"))
    assert jobs.asked == 2
    waiting = "0 of 2 jobs done · {0} s\na: waiting for {0} s: no worker serves pool default"
    assert shown == [
        (waiting.format(1), False),
        (waiting.format(2), True),
        ("0 of 2 jobs done · 2 s\na: kernels ██░░░░░░░░ 1/4 launches · 2 s · about 6 s left", True),
        ("1 of 2 jobs done · 2 s\nb: still open at the end of the cell", True),
    ]


def test_a_cell_whose_jobs_are_brief_shows_nothing() -> None:
    shown, jobs = [], Jobs()
    live = StoppedLive(lambda view, _: shown.append(view), lambda: 0.0)
    future = jobs.future("a")
    live.waited(future)
    live.update()
    future._complete({}, None, None)
    live.update()
    live.waited(future)
    assert not shown
    live.finish(View("a", "a", "succeeded"))
    live.finish()
    assert [type(view) for view in shown] == [View]
