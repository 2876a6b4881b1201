"""Where a fleet is found, and what a pickle shows."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import numpy as np
import pytest

import gpufleet as gf
from gpufleet._profile import surroundings
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
    urls = f"amqp://anna@first/vhost,{URL}"
    assert redacted(urls) == "amqp://anna@first/vhost,amqp://anna@broker:5672/vhost"
    with pytest.raises(TypeError, match="has a password"):
        Settings(urls).without_secrets()


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


PROFILES = """
default = "lab"
[profile.lab]
amqp_url = "amqps://ana@broker.example/fleet"
password_command = "echo 's3cret/#'"
pool = "team-a"
affinity = true
api_url = "https://ledger.example"
[profile.home]
amqp_url = "amqp://localhost"
"""


def configured(folder: Path, text: str = PROFILES) -> dict[str, str]:
    file = folder / "config.toml"
    file.write_text(text)
    return {"GPUFLEET_CONFIG": str(file)}


def test_a_profile_gives_what_the_environment_leaves_open(tmp_path: Path) -> None:
    environment = surroundings(None, configured(tmp_path))
    assert place_of(Settings(), environment) == Place("amqps://ana:s3cret%2F%23@broker.example/fleet", "profile", None)
    assert environment["GPUFLEET_POOL"] == "team-a" and flag(None, "GPUFLEET_AFFINITY", environment)
    named = surroundings("home", configured(tmp_path))
    assert place_of(Settings(), named) == Place("amqp://localhost", "profile", None)
    overridden = surroundings(None, {**configured(tmp_path), "GPUFLEET_AMQP_URL": "amqp://mine", "GPUFLEET_POOL": ""})
    assert place_of(Settings(), overridden) == Place("amqp://mine", "environment", None)
    assert overridden["GPUFLEET_POOL"] == "team-a"


def test_the_password_of_a_profile_is_for_the_urls_of_all_nodes(tmp_path: Path) -> None:
    urls = "amqps://ana@a.example/fleet, amqps://ana:own@b.example/fleet,amqps://ana@c.example/fleet"
    text = PROFILES.replace("amqps://ana@broker.example/fleet", urls)
    place = place_of(Settings(), surroundings(None, configured(tmp_path, text)))
    nodes = ("amqps://ana:s3cret%2F%23@a", "amqps://ana:own@b", "amqps://ana:s3cret%2F%23@c")
    assert place.url == ",".join(f"{node}.example/fleet" for node in nodes)


def test_without_a_file_there_is_no_profile(tmp_path: Path) -> None:
    nowhere = {"GPUFLEET_CONFIG": str(tmp_path / "absent.toml"), "A": "b"}
    assert dict(surroundings(None, nowhere)) == nowhere
    with pytest.raises(gf.ConnectError, match="there is no profile 'lab'"):
        surroundings("lab", nowhere)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("default = 'x'\n[profile.lab]\n[profile.home]\n", "no profile 'x' in .*; it has home, lab"),
        ("default = 'lab'\n[profile.lab]\nurl = 'amqp://h'\n", "unknown key 'url'"),
        ("[profile.lab", "not valid"),
        ("default = 'lab'\n[profile.lab]\namqp_url = 'amqp://u@h'\npassword_command = 'exit 3'\n", "exit status 3"),
        ("default = 'lab'\n[profile.lab]\namqp_url = 'amqp://u@h'\npassword_command = 'true'\n", "printed nothing"),
        ("default = 'lab'\n[profile.lab]\namqp_url = 'amqp://h'\npassword_command = 'pass'\n", "names no user"),
    ],
)
def test_a_wrong_configuration_file_is_told(tmp_path: Path, text: str, told: str) -> None:
    with pytest.raises(gf.ConnectError, match=told):
        surroundings(None, configured(tmp_path, text))
