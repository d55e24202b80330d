"""What several policies share: counts, change detection, epochs, blocks, duels, random streams, samplers, placement, settings."""
