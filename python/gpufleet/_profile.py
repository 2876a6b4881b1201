"""Profiles: the fleets that the configuration file of the command `gpufleet` names."""

from __future__ import annotations

import os
from collections import ChainMap
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import SplitResult, quote, urlsplit, urlunsplit

from gpufleet._errors import ConnectError
from gpufleet._urls import split

PROFILE = "GPUFLEET_PROFILE"
CONFIG = "GPUFLEET_CONFIG"

_AMQP_URL = "GPUFLEET_AMQP_URL"
_KEYS = {"amqp_url", "blobs", "pool", "affinity", "no_user_id"}
"""The keys of a profile that a fleet uses. Each replaces the environment variable with this name."""
_PASSWORD_COMMAND = "password_command"
_LEDGER_KEYS = {
    "database_url",
    "database_read_url",
    "database_password_command",
    "api_url",
    "api_token",
    "api_token_command",
}
"""The keys of a profile that only the command uses, to read the ledger."""
_COMMAND_SECONDS = 60.0
"""The time in seconds for a password manager, which may ask for its passphrase."""


class Surroundings(ChainMap[str, str]):
    """The environment variables. A missing one is replaced by the value of the profile."""

    def is_of_profile(self, variable: str) -> bool:
        return variable not in self.maps[0]


def surroundings(name: str | None, environment: Mapping[str, str] = os.environ, *, broker: bool = True) -> Surroundings:
    """Returns the environment with a profile: the named one, that of ``GPUFLEET_PROFILE``, or the file's default one.

    If `broker` is false, no command is run for its password.
    """
    values = _read(name or environment.get(PROFILE) or None, environment)
    found = {f"GPUFLEET_{key.upper()}": _text(value) for key, value in values.items() if key in _KEYS}
    given = {variable: value for variable, value in environment.items() if value or variable not in found}
    url, command = found.get(_AMQP_URL), values.get(_PASSWORD_COMMAND)
    if broker and url is not None and command is not None and _AMQP_URL not in given:
        found[_AMQP_URL] = _with_password(url, command)
    return Surroundings(given, found)


def _read(name: str | None, environment: Mapping[str, str]) -> dict[str, Any]:
    path = _path(environment)
    config = _config(path)
    name = name or config.get("default")
    if name is None:
        return {}
    profiles: dict[str, dict[str, Any]] = config.get("profile", {})
    if name not in profiles:
        known = f"; it has {', '.join(sorted(profiles))}" if profiles else ""
        raise ConnectError(f"there is no profile {name!r} in {path or '~/.config/gpufleet/config.toml'}{known}")
    if unknown := sorted(profiles[name].keys() - _KEYS - _LEDGER_KEYS - {_PASSWORD_COMMAND}):
        raise ConnectError(f"profile {name!r} in {path} has the unknown key {unknown[0]!r}")
    return profiles[name]


def _config(path: Path | None) -> dict[str, Any]:
    try:
        text = "" if path is None else path.read_text()
        if not text:
            return {}
        # Most programs have no such file.
        import tomllib  # noqa: PLC0415

        return tomllib.loads(text)
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise ConnectError(f"the configuration file {path} is not valid: {error}") from None


def _path(environment: Mapping[str, str]) -> Path | None:
    if named := environment.get(CONFIG):
        return Path(named)
    if folder := environment.get("XDG_CONFIG_HOME"):
        return Path(folder, "gpufleet/config.toml")
    home = environment.get("HOME")
    return Path(home, ".config/gpufleet/config.toml") if home else None


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _with_password(urls: str, command: str) -> str:
    import subprocess  # noqa: PLC0415

    nodes = [urlsplit(url) for url in split(urls)]
    if all(parts.password is not None for parts in nodes):
        return urls
    if not all(parts.username for parts in nodes):
        raise ConnectError("amqp_url of the profile names no user, to whom the password of password_command belongs")
    try:
        printed = subprocess.run(["sh", "-c", command], stdout=subprocess.PIPE, check=True, timeout=_COMMAND_SECONDS)
        lines = printed.stdout.decode().splitlines()
    except (OSError, subprocess.SubprocessError, UnicodeDecodeError) as error:
        reason = f"exit status {error.returncode}" if isinstance(error, subprocess.CalledProcessError) else str(error)
        raise ConnectError(f"password_command of the profile gave no password: {reason}") from None
    if not lines or not lines[0]:
        raise ConnectError("password_command of the profile gave no password: it printed nothing")
    password = quote(lines[0], safe="")
    return ",".join(urlunsplit(_completed(parts, password)) for parts in nodes)


def _completed(parts: SplitResult, password: str) -> SplitResult:
    if parts.password is not None:
        return parts
    user, _, place = parts.netloc.rpartition("@")
    return parts._replace(netloc=f"{user}:{password}@{place}")
