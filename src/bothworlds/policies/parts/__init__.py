"""What several policies share: counts, epochs, blocks, duels, change detection, random numbers, placement, settings."""
