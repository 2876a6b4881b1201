"""The magic `%gpu_session`: the GPU of a worker for the process of the notebook."""

from __future__ import annotations

import shlex
from typing import Any

from gpufleet._errors import InvalidJob
from gpufleet._session import Session
from gpufleet.notebook._options import CellError, Parser
from gpufleet.notebook._session import current_fleet

__all__ = ["open_session"]

_PARSER = Parser(prog="%gpu_session", add_help=False, allow_abbrev=False)
for _option in ("pool", "time-limit", "idle-limit", "queue-limit", "name", "library"):
    _PARSER.add_argument(f"--{_option}")
_PARSER.add_argument("--memory", required=True)
_PARSER.add_argument("--device-name", dest="device")
_PARSER.add_argument("--compute-capability")


def open_session(shell: Any, line: str) -> Session:
    """Opens the session that the line of the magic describes. It ends with the notebook's process."""
    try:
        options = vars(_PARSER.parse_args(shlex.split(line)))
        names = ("device", "compute_capability")
        requires = {name: found for name in names if (found := options.pop(name)) is not None}
        session = current_fleet().session(**options, requires=requires)
        session._open()
    except (FileNotFoundError, InvalidJob, RuntimeError, ValueError) as problem:
        raise CellError(str(problem)) from None
    print(session._description)
    shell.events.register("post_run_cell", lambda result: _explain(session, result))
    return session


def _explain(session: Session, result: Any) -> None:
    """Says why a cell failed, if the session had ended. Its calls return an error that does not."""
    ended = session._ended
    if ended is not None and result is not None and result.error_in_exec is not None:
        print(f"{ended}. Restart the notebook's kernel to open another session.")
