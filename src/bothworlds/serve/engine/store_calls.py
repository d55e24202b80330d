"""Calls of the store from the event loop: in a thread, with its errors translated to those of the service."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any, TypeVar

from ..model import Conflict, Invalid, Unavailable
from ..stores import StoreError, Unstorable, VersionConflict

T = TypeVar("T")

STORE_FAILED = "the store cannot be read or written now; retry later"


class ConcurrentChange(Conflict):
    """Another process changed the surface between reading and writing."""


async def in_thread(call: Callable[..., T], *arguments: Any) -> T:
    """Runs a blocking call in a worker thread; raises ConcurrentChange, Invalid or Unavailable if the store fails."""
    try:
        return await asyncio.to_thread(call, *arguments)
    except VersionConflict as error:
        raise ConcurrentChange("the surface was changed by another client; read it again") from error
    except Unstorable as error:
        raise Invalid("the request contains a value that cannot be stored") from error
    except StoreError as error:
        raise unavailable(error) from error


def unavailable(error: BaseException) -> Unavailable:
    """Logs the error and returns the one for the caller, which does not reveal where the store is."""
    logging.getLogger("bothworlds").warning("the store fails: %s", error)
    return Unavailable(STORE_FAILED)
