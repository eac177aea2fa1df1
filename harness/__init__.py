"""Benchmark and parameter-sweep harness for speculative decoding of language models."""

__version__ = "0.1.0"
