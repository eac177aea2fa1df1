"""Native PyTorch decoding engine: models, caches, sampling, verification, drafters and the decode loop."""
