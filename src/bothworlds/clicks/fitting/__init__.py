"""Fitting click models: log-linear ones by Newton's method, chains and trust bias in a box, rates by counting."""
