"""Fitting the position-based model: design, optimiser, intervals, warnings."""
