"""Off-policy evaluation: what other rankings and policies would have earned on logged clicks."""
