"""Reports: one self-contained HTML page per sweep and a short table for the terminal."""

from __future__ import annotations
