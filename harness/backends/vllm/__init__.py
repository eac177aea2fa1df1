"""vLLM as a backend: one engine per variant, each in a process of its own."""
