"""The exceptions as plain data."""

from __future__ import annotations

import pickle

import pytest

import gpufleet as gf
from gpufleet import _core, _errors


def test_every_failure_code_has_a_class_of_its_own() -> None:
    codes = {kind.code: kind for kind in gf.JobFailed.__subclasses__()}
    assert sorted(_core.failure_codes()) == sorted(code for code in codes if code is not None)
    for code, kind in codes.items():
        assert isinstance(code, str)
        assert getattr(gf, kind.__name__) is kind, "it is exported"
        assert type(_errors.failed("1", "failed", gf.Failure("user", code, "why", None, None))) is kind


def test_a_failure_of_a_newer_worker_is_still_a_failure() -> None:
    error = _errors.failed("1", "failed", gf.Failure("user", "invented_later", "why", None, None))
    assert type(error) is gf.JobFailed and str(error) == "job 1 failed: why"
    assert str(_errors.failed("1", "expired", None)) == "job 1 expired"


@pytest.mark.parametrize("kind", ["SubmitError", "InvalidJob", "JobTooLarge", "NoQueue", "QueueFull", "MaybeSubmitted"])
def test_a_refusal_has_its_class_and_the_time_to_wait(kind: str) -> None:
    error = _errors.refused(kind, "why", 1.0)
    assert type(error) is getattr(gf, kind) and isinstance(error, gf.SubmitError)
    assert error.retry_after == 1.0
    assert str(pickle.loads(pickle.dumps(error))) == "why"


def test_a_timeout_is_a_timeout_of_python() -> None:
    assert issubclass(gf.WaitTimeout, TimeoutError)
    assert issubclass(gf.ConnectError, ConnectionError)
    assert issubclass(gf.InvalidJob, ValueError)
