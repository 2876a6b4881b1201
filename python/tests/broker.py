"""Users of a local fleet's broker."""

from __future__ import annotations

import socket
from pathlib import Path
from urllib.parse import unquote, urlsplit, urlunsplit

PASSWORD = "secret"


def add_user(folder: Path, url: str, name: str, permission: str) -> str:
    """Adds a user who may configure, write and read what the pattern matches. Returns the user's URL."""
    parts = urlsplit(url)
    vhost = unquote(parts.path.removeprefix("/"))
    functions = "rabbit_auth_backend_internal"
    _evaluate(folder, f'{functions}:add_user(<<"{name}">>, <<"{PASSWORD}">>, <<"tests">>)')
    patterns = ", ".join([f'<<"{permission}">>'] * 3)
    _evaluate(folder, f'ok = {functions}:set_permissions(<<"{name}">>, <<"{vhost}">>, {patterns}, <<"tests">>)')
    place = f"{name}:{PASSWORD}@{parts.hostname}:{parts.port}"
    return urlunsplit((parts.scheme, place, parts.path, parts.query, ""))


def _evaluate(folder: Path, expression: str) -> None:
    """Evaluates an expression in the broker, which listens on a socket in its folder."""
    text = f"{expression}.".encode()
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(str(folder / "broker/control"))
        connection.sendall(len(text).to_bytes(4, "big") + text)
        with connection.makefile("rb") as answers:
            size = int.from_bytes(answers.read(4), "big")
            answer = answers.read(size).decode()
    assert answer.startswith("ok "), answer
