"""A seeded model of what speculative decoding costs and yields; nothing is computed, no time passes."""
