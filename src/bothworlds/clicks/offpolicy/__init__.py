"""What other rankings would have earned on logged clicks: the parts of :mod:`bothworlds.clicks.evaluation`."""
