"""Splits the broker's URL, which may be several URLs, one for each node of a cluster, separated by commas."""

from __future__ import annotations

import re


def split(urls: str) -> list[str]:
    """Returns the single URLs. They are split only at a comma before a scheme, because a password may contain a comma.
    """
    return re.split(r",\s*(?=amqps?://)", urls)
