"""Splits the broker's URL, which may be several URLs, one for each node of a cluster, separated by commas."""

from __future__ import annotations

import re


def split(urls: str) -> list[str]:
    """Returns the single URLs. Only a comma before a scheme separates them, because a password may contain one."""
    return re.split(r",\s*(?=amqps?://)", urls)
