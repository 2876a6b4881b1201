"""The fleet of the notebook."""

from __future__ import annotations

from gpufleet._fleet import Fleet

__all__ = ["current_fleet", "use"]

_fleet: Fleet | None = None


def current_fleet() -> Fleet:
    """The fleet of the notebook's cells. It is `Fleet()` unless `use` chose another."""
    global _fleet
    if _fleet is None or _fleet._is_closed:
        _fleet = Fleet()
    return _fleet


def use(fleet: Fleet) -> None:
    """Makes this the fleet of the notebook's cells."""
    global _fleet
    _fleet = fleet
