"""Drafters: cheap guesses at the tokens the target is about to produce."""
