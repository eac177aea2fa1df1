"""Make drafters: prompts, the target's own text as training data, distillation and export."""
