"""The base of all warnings that this package issues."""

from __future__ import annotations


class BothworldsWarning(UserWarning):
    """A result may not mean what it seems to mean. The command line prints it as a sentence."""
