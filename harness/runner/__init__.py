"""Measuring: cells, the block schedule, warmup, the stop rule and what the machine was doing."""
