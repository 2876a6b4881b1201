"""Finds a fleet: by an argument, the environment, a profile, or the fleet of `gpufleet local`."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

from gpufleet._errors import ConnectError
from gpufleet._profile import Surroundings
from gpufleet._urls import split

AMQP_URL = "GPUFLEET_AMQP_URL"
BLOBS = "GPUFLEET_BLOBS"
POOL = "GPUFLEET_POOL"
NO_USER_ID = "GPUFLEET_NO_USER_ID"
AFFINITY = "GPUFLEET_AFFINITY"
LOCAL_DIR = "GPUFLEET_LOCAL_DIR"


@dataclass(frozen=True, slots=True)
class Settings:
    """The program's settings for a fleet. A setting that is None comes from the environment or a profile."""

    url: str | None = None
    blobs: str | None = None
    client: str | None = None
    keep_replies: float | None = None
    connect_timeout: float | None = None
    confirm_timeout: float | None = None
    user_id: bool | None = None
    affinity: bool | None = None
    on_interrupt: Literal["detach", "cancel"] = "detach"
    profile: str | None = None

    def __repr__(self) -> str:
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        values["url"] = None if self.url is None else redacted(self.url)
        given = [f"{name}={value!r}" for name, value in values.items() if value is not None]
        return f"Settings({', '.join(given)})"

    def without_secrets(self) -> Settings:
        """Returns the settings for another process. Raises `TypeError` if the URL has a password.

        Pickles are stored and logged, so they must not contain a password.
        """
        if self.url is not None and any(urlsplit(url).password is not None for url in split(self.url)):
            raise TypeError(
                "the URL of this fleet has a password, which must not be in a pickle; set"
                f" {AMQP_URL} for both processes and create the fleet without a URL"
            )
        return self


@dataclass(frozen=True, slots=True)
class Place:
    """The addresses of a broker and a blob store."""

    url: str
    source: Literal["argument", "environment", "profile", "local fleet"]
    blobs: str | None
    key: tuple[str, str] | None = None
    """The access key of the local fleet's bucket."""

    def __repr__(self) -> str:
        return f"Place({redacted(self.url)!r}, {self.source!r}, {self.blobs!r})"


def place_of(settings: Settings, environment: Mapping[str, str]) -> Place:
    """Finds the broker as the command `gpufleet` does. The local fleet's blob store is used only with its broker."""
    blobs = settings.blobs or environment.get(BLOBS) or None
    if settings.url:
        return Place(settings.url, "argument", blobs)
    if url := environment.get(AMQP_URL):
        is_of_profile = isinstance(environment, Surroundings) and environment.is_of_profile(AMQP_URL)
        return Place(url, "profile" if is_of_profile else "environment", blobs)
    local = _local(environment)
    if blobs is not None:
        return Place(local["amqp_url"], "local fleet", blobs)
    match local.get("blobs"):
        case {"url": str(bucket), "access_key_id": str(key), "secret_access_key": str(secret)}:
            return Place(local["amqp_url"], "local fleet", bucket, (key, secret))
        case store:
            return Place(local["amqp_url"], "local fleet", store)


def flag(setting: bool | None, variable: str, environment: Mapping[str, str]) -> bool:
    """Reads a setting that is true or false."""
    if setting is not None:
        return setting
    return environment.get(variable, "").lower() in ("true", "1", "yes", "on")


def redacted(urls: str) -> str:
    """Returns one or several URLs without their passwords."""
    return ",".join(_redacted(url) for url in split(urls))


def _redacted(url: str) -> str:
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
        port = f":{parts.port}" if parts.port else ""
    except ValueError:
        return "***"
    user = f"{parts.username}@" if parts.username else ""
    return f"{parts.scheme}://{user}{host}{port}{parts.path}"


def _local(environment: Mapping[str, str]) -> dict[str, Any]:
    """Returns the addresses of the fleet of `gpufleet local`."""
    import json  # noqa: PLC0415

    folder = _local_folder(environment)
    hint = f"give a URL, set {AMQP_URL}, or start a local fleet: gpufleet local up"
    if folder is None:
        raise ConnectError(f"no broker URL was given, and there is no home folder with a local fleet; {hint}")
    try:
        found: dict[str, Any] = json.loads((folder / "endpoints.json").read_text())
    except FileNotFoundError:
        raise ConnectError(f"no broker URL was given, and no local fleet is running in {folder}; {hint}") from None
    except (OSError, ValueError) as error:
        raise ConnectError(f"no broker URL was given, and the local fleet in {folder} is unreadable: {error}") from None
    return found


def _local_folder(environment: Mapping[str, str]) -> Path | None:
    """Returns the folder of the local fleet: in the user's state folder, or in /var/lib for root."""
    if named := environment.get(LOCAL_DIR):
        return Path(named)
    state, home = environment.get("XDG_STATE_HOME", ""), environment.get("HOME", "")
    if state.startswith("/"):
        return Path(state, "gpufleet/local")
    if os.geteuid() == 0:
        return Path("/var/lib/gpufleet/local")
    return Path(home, ".local/state/gpufleet/local") if home.startswith("/") else None
