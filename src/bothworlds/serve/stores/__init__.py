"""The store of the service, in one SQLite file or one PostgreSQL database. All SQL of the service is here."""

from .database import StoreError, Unstorable
from .deletion import DeletedEvents
from .events import LostLease
from .learners import Snapshot, VersionConflict
from .records import TABLES
from .store import MOVING, SETTLE_LIMIT, Store, open_store
from .totals import VisitorSums

__all__ = [
    "MOVING",
    "SETTLE_LIMIT",
    "TABLES",
    "DeletedEvents",
    "LostLease",
    "Snapshot",
    "Store",
    "StoreError",
    "Unstorable",
    "VersionConflict",
    "VisitorSums",
    "open_store",
]
