"""What several policies share: counts, epochs, blocks, duels, random streams, samplers, placement, settings."""
