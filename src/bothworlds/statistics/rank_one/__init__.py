"""The rank-one fit: attraction and examination from counts, by Newton's method."""

from .fit import Fit, components, fit_newton

__all__ = ["Fit", "components", "fit_newton"]
