"""Hugging Face Transformers' `generate` as a backend."""
