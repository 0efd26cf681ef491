"""Durations as Go writes them."""

import re
from datetime import timedelta

_SECONDS = {"h": 3600, "m": 60, "s": 1, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9}
_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|us|µs|ns|h|m|s)")


def to_text(duration):
    """Return a duration as text: a timedelta, a number of seconds, or a text such as 1m30s, which stays."""
    if isinstance(duration, str):
        return duration
    if isinstance(duration, timedelta):
        return f"{duration // timedelta(microseconds=1)}us"
    return f"{round(duration * 1e9)}ns"


def from_text(text):
    """Return a timedelta, whose resolution is a microsecond."""
    return timedelta(seconds=sum(float(number) * _SECONDS[unit] for number, unit in _PART.findall(text)))
