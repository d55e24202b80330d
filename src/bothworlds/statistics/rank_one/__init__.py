"""The rank-one fit: attraction and examination from counts, by Newton's method or by EM."""

from .fit import Fit, components, fit_em, fit_newton

__all__ = ["Fit", "components", "fit_em", "fit_newton"]
