"""Backends: engines behind one small interface."""
