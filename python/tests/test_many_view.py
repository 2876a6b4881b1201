"""How the results of `map` and a batch are shown in a notebook."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from notebooks import html, run
from test_notebook_view import Text

import gpufleet as gf
from gpufleet.notebook._many import ROWS_MAX

X = np.ones(4, np.float32)


def shown(thing: Any) -> str:
    return Text(thing._repr_html_()).text


def test_results_of_map_tell_their_states(fleet: gf.Fleet) -> None:
    results = fleet.kernel("saxpy").options(name="<b>sum</b>").map([float(a) for a in range(600)], x=X, y=X)
    assert "344 to send" in shown(results)
    first = [next(results) for _ in range(300)]
    assert len(first) == 300
    assert len(list(results)) == 300
    assert "600 succeeded" in shown(results) and "600 of the jobs ran on the emulated device" in shown(results)
    assert "EMULATED" in shown(results)
    assert repr(results) == "<gpufleet.Results: 600 succeeded, 600 EMULATED>"


def test_the_table_lists_jobs_that_were_not_taken(fleet: gf.Fleet) -> None:
    results = fleet.kernel("saxpy").options(name="<b>sum</b>").map([1.0] * 30, x=X, y=X)
    next(results)
    text = shown(results)
    assert text.count("<b>sum</b>") == ROWS_MAX
    assert f"and {30 - ROWS_MAX} more" in text


def test_failed_jobs_come_first_and_stay_after_they_were_taken(fleet: gf.Fleet) -> None:
    # Each job has this time beside the endless one, which occupies the processor.
    samples = fleet.kernel("monte_carlo_pi").options(time_limit="3s")
    results = samples.map([1000, 10**15, 1000])
    ended = []
    for _ in range(3):
        try:
            ended.append(next(results))
        except gf.TimeLimitReached as error:
            ended.append(error)
    assert isinstance(ended[1], gf.TimeLimitReached)
    found = Text(results._repr_html_())
    assert "2 succeeded, 1 failed" in found.text and ended[1].job_id in found.text
    assert "time limit" in found.text and "and 2 more" in found.text


def test_a_refused_input_is_told(fleet: gf.Fleet) -> None:
    def inputs() -> Iterator[npt.NDArray[Any]]:
        yield X
        yield X.astype(np.float64)

    results = fleet.kernel("saxpy").map(inputs(), a=1.0, y=X)
    text = shown(results)
    assert "an input is refused" in text and "float64" in text and "more to send" not in text
    next(results)
    with pytest.raises(TypeError, match="float64"):
        next(results)


def test_an_endless_input_has_more_to_send(fleet: gf.Fleet) -> None:
    def inputs() -> Iterator[float]:
        while True:
            yield 1.0

    assert "more to send" in shown(fleet.kernel("saxpy").map(inputs(), x=X, y=X))


def test_a_batch_tells_states_and_gpu_time(fleet: gf.Fleet) -> None:
    with fleet.batch(name="<i>") as batch:
        assert "no jobs" in shown(batch)
        for a in range(3):
            fleet.kernel("saxpy").submit(float(a), X, X)
    text = shown(batch)
    assert "3 succeeded" in text and "3 of the jobs ran on the emulated device" in text
    assert text.count("<i>") == 3 and "kernels ran for" in text and batch.id in text


def test_a_cell_shows_the_table(environment: None, tmp_path: Path) -> None:
    cells = run(
        "import numpy as np, gpufleet as gf\nx = np.ones(4, np.float32)\nfleet = gf.Fleet()",
        "results = fleet.kernel('saxpy').map([1.0, 2.0], x=x, y=x)\nvalues = list(results)\nresults",
        folder=tmp_path,
    )
    assert "2 succeeded" in html(cells[1]) and "EMULATED" in html(cells[1])
