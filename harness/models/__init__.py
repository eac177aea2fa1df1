"""Models: where they come from, their tokenizers, and whether a pair fits together."""
