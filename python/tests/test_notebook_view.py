"""How jobs are shown: plain data and HTML, without a fleet."""

from __future__ import annotations

from collections import Counter
from html.parser import HTMLParser
from itertools import pairwise
from typing import Any, cast

import pytest

import gpufleet as gf
from gpufleet._future import Future
from gpufleet._task import Options
from gpufleet.notebook import _live
from gpufleet.notebook._html import card, many, table
from gpufleet.notebook._live import UPDATE_SECONDS, Live
from gpufleet.notebook._many import ManyView
from gpufleet.notebook._view import View

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


def test_a_display_is_updated_at_most_four_times_a_second() -> None:
    now = 0.0
    shown: list[tuple[float, str, bool]] = []
    live = Live(lambda view, is_update: shown.append((now, view.state, is_update)), lambda: now)
    for step in range(101):
        now = step / 100
        live.update(View("1", "k", "open"))
    live.update(View("1", "k", "succeeded"))
    times = [time for time, state, _ in shown if state == "open"]
    assert times == [0, 0.25, 0.5, 0.75, 1]
    assert min(b - a for a, b in pairwise(times)) >= UPDATE_SECONDS
    assert shown[0] == (0, "open", False) and shown[-1] == (1, "succeeded", True)


class EndsJobs:
    """A connection whose job ends while somebody asks why it waits."""

    pool = "default"
    is_inherited = False
    future: Future[Any]

    def obstacle(self, _: str) -> None:
        self.future._complete({"y": 1}, None, None)


def test_a_job_that_ends_while_its_wait_is_shown_is_shown_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_live, "OBSTACLE_SECONDS", 0)
    connection, shown = EndsJobs(), list[View]()
    connection.future = Future(cast(Any, connection), 0, "id", Options(name="k"), dict)
    assert _live.follow(connection.future, Live(lambda view, _: shown.append(view))) == {"y": 1}
    assert [(view.state, view.note) for view in shown] == [("succeeded", None)]
