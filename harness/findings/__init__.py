"""What measured tables show, in words: rules that look for known troubles and say what to do."""

from __future__ import annotations

from harness.findings.finding import Confidence, Finding, Topic
from harness.findings.rules import RULES, find, keep

__all__ = ["RULES", "Confidence", "Finding", "Topic", "find", "keep"]
