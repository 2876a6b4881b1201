"""Where a fleet is found, and what a pickle shows."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import numpy as np
import pytest

import gpufleet as gf
from gpufleet._settings import Place, Settings, flag, place_of, redacted

CANARY = "canary-4711"
URL = f"amqp://anna:{CANARY}@broker:5672/vhost"
X = np.ones(3, np.float32)


def local(folder: Path, blobs: object) -> dict[str, str]:
    endpoints = {"amqp_url": "amqp://local", "database_url": "postgres://local", "blobs": blobs}
    (folder / "endpoints.json").write_text(json.dumps(endpoints))
    return {"GPUFLEET_LOCAL_DIR": str(folder)}


def test_the_argument_comes_before_the_environment_and_the_local_fleet(tmp_path: Path) -> None:
    environment = local(tmp_path, "/blobs")
    assert place_of(Settings(), environment) == Place("amqp://local", "local fleet", "/blobs")
    assert place_of(Settings(blobs="/mine"), environment) == Place("amqp://local", "local fleet", "/mine")
    environment["GPUFLEET_AMQP_URL"] = "amqp://named"
    assert place_of(Settings(), environment) == Place("amqp://named", "environment", None)
    environment["GPUFLEET_BLOBS"] = "/named"
    assert place_of(Settings(), environment) == Place("amqp://named", "environment", "/named")
    assert place_of(Settings(URL, "/mine"), environment) == Place(URL, "argument", "/mine")


def test_the_bucket_of_the_local_fleet_comes_with_its_key(tmp_path: Path) -> None:
    bucket = {"url": "s3://gpufleet", "access_key_id": "id", "secret_access_key": CANARY}
    place = place_of(Settings(), local(tmp_path, bucket))
    assert (place.blobs, place.key) == ("s3://gpufleet", ("id", CANARY))
    assert CANARY not in repr(place)


def test_without_any_fleet_the_error_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(
        gf.ConnectError, match=f"no local fleet is running in {tmp_path}; give a URL, set GPUFLEET_AMQP"
    ):
        place_of(Settings(), {"GPUFLEET_LOCAL_DIR": str(tmp_path)})
    (tmp_path / "endpoints.json").write_text("{")
    with pytest.raises(gf.ConnectError, match="is unreadable"):
        place_of(Settings(), {"GPUFLEET_LOCAL_DIR": str(tmp_path)})


def test_an_unreachable_broker_is_a_connection_error_without_the_password() -> None:
    with pytest.raises(ConnectionError) as caught:
        gf.Fleet(f"amqp://anna:{CANARY}@127.0.0.1:1/", connect_timeout=5)
    assert "127.0.0.1:1" in str(caught.value) and CANARY not in str(caught.value)


def test_flags_are_read_from_the_environment() -> None:
    assert flag(None, "F", {"F": "true"}) and flag(None, "F", {"F": "1"})
    assert not flag(None, "F", {}) and not flag(False, "F", {"F": "1"})


def test_no_password_shows() -> None:
    assert redacted(URL) == "amqp://anna@broker:5672/vhost"
    assert redacted("amqp://[") == "***"
    assert CANARY not in repr(Settings(URL)) + repr(Place(URL, "argument", None))


def test_a_pickle_has_no_password(environment: None, monkeypatch: pytest.MonkeyPatch) -> None:
    with gf.Fleet() as original:
        url = original._place.url
    password = url.split(":")[2].split("@")[0]
    monkeypatch.setenv("GPUFLEET_AMQP_URL", url)
    with gf.Fleet() as fleet:
        assert password not in repr(fleet)
        pickled = pickle.dumps(fleet)
        assert password.encode() not in pickled
        with pickle.loads(pickled) as copy:
            assert "not connected" in repr(copy)
            np.testing.assert_array_equal(copy.kernel("saxpy")(1.0, X, X), 2 * X)
    with gf.Fleet(url) as fleet, pytest.raises(TypeError, match="set GPUFLEET_AMQP_URL for both processes"):
        pickle.dumps(fleet)
