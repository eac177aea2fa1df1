"""Compiled kernels for CPUs with AVX-512 bfloat16 and int8 instructions: a whole forward pass in one call."""
