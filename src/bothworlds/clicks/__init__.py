"""Click logs: read them, count them, fit the position-based model, evaluate policies on them."""

from .fitting import fit
from .model import Model, Models
from .storage import load_model
from .tally import Counts

__all__ = ["Counts", "Model", "Models", "fit", "load_model"]
