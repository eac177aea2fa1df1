"""Configuration: dataclass schemas, validation, and the identity of a run."""
