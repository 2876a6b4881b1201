"""The broker's URL, or one URL for each node of a cluster, separated by commas."""

from __future__ import annotations

import re


def split(urls: str) -> list[str]:
    """The single URLs. Only a comma before a scheme separates them, because a password may contain a comma."""
    return re.split(r",\s*(?=amqps?://)", urls)
