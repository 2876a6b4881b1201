"""The options of `%%gpu --remote`."""

from __future__ import annotations

import shlex
from dataclasses import dataclass

from gpufleet._amounts import bytes_of
from gpufleet._task import seconds
from gpufleet.notebook._options import CellError, Parser

__all__ = ["RemoteOptions", "is_remote", "parse"]

BYTES_MAX = "256MiB"
"""The most that goes to the worker or comes back, unless the cell says another."""

_PARSER = Parser(prog="%%gpu --remote", add_help=False, allow_abbrev=False)
_PARSER.add_argument("--remote", action="store_true")
_PLACE = _PARSER.add_mutually_exclusive_group(required=True)
_PLACE.add_argument("--env")
_PLACE.add_argument("--image")
_PARSER.add_argument("--pool")
_PARSER.add_argument("--time-limit")
_PARSER.add_argument("--queue-limit")
_PARSER.add_argument("--network", action="store_true")
_PARSER.add_argument("--upload", action="append", default=[])
_PARSER.add_argument("--max-size", default=BYTES_MAX)


@dataclass(frozen=True, slots=True)
class RemoteOptions:
    """Where and how a cell runs. Times are in seconds."""

    env: str | None
    image: str | None
    pool: str | None
    time_limit: float | None
    queue_limit: float | None
    network: bool
    upload: tuple[str, ...]
    bytes_max: int


def is_remote(line: str) -> bool:
    """Returns whether a cell runs on the machine of a worker.

    >>> is_remote("--remote --env torch"), is_remote("-i x --cover n")
    (True, False)
    """
    return "--remote" in line.split()


def parse(line: str) -> RemoteOptions:
    """Reads the line of `%%gpu --remote`.

    >>> parse("--remote --env torch --time-limit 2m --max-size 1GiB").bytes_max
    1073741824
    """
    try:
        found = _PARSER.parse_args(shlex.split(line))
        return RemoteOptions(
            env=found.env,
            image=found.image,
            pool=found.pool,
            time_limit=None if found.time_limit is None else seconds(found.time_limit),
            queue_limit=None if found.queue_limit is None else seconds(found.queue_limit),
            network=found.network,
            upload=tuple(found.upload),
            bytes_max=bytes_of(found.max_size),
        )
    except CellError:
        raise
    except ValueError as problem:
        raise CellError(f"{line!r}: {problem}") from None
