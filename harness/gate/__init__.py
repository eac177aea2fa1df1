"""The regression gate: two stored runs in, a verdict per metric and one for all out. See docs/gate.md."""

from __future__ import annotations
