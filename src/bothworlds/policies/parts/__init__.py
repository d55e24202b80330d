"""What only policies share: counts, epochs, blocks, duels, random streams, samplers, placing."""
