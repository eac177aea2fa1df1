"""What the native backend drafts with: from a variant and a checkpoint to a drafter."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from harness.engine.cache import KVCache
from harness.engine.drafters.base import Drafter
from harness.engine.drafters.eagle import EagleDrafter, EagleHead
from harness.engine.drafters.independent import IndependentDrafter
from harness.engine.drafters.lookup_first import LookupFirst
from harness.engine.drafters.medusa import MedusaDrafter, MedusaHeads
from harness.engine.drafters.ngram import NgramDrafter
from harness.engine.drafters.synthetic import SyntheticAcceptance
from harness.engine.drafters.tree_model import TreeDraftModel
from harness.engine.heads import load_eagle, load_medusa
from harness.engine.linear import Linear
from harness.engine.model import Transformer
from harness.engine.pace import PaceRules
from harness.engine.tree_growth import DynamicTree, StaticTree, TreePlan, chain
from harness.engine.typical import TypicalAcceptance
from harness.engine.weights import load_head
from harness.errors import UnsupportedError
from harness.models.checkpoint import ResolvedModel
from harness.records import Variant

DRAFT_VOCAB_FILE = "draft_vocab.npy"


class NativeDrafters:
    """Builds drafters of one session; models and heads are loaded once and shared by variants.

    Args:
        target: the model that verifies.
        target_model: its checkpoint.
        load: loads a draft model.
        cache: gives the cache of a model.
        scheme: how to quantise heads.
    """

    def __init__(
        self,
        target: Transformer,
        target_model: ResolvedModel,
        *,
        load: Callable[[ResolvedModel], Transformer],
        cache: Callable[[Transformer], KVCache],
        scheme: str = "none",
    ) -> None:
        """See the class."""
        self._target, self._target_model = target, target_model
        self._load, self._cache, self._scheme = load, cache, scheme
        self._models: dict[str, Transformer] = {}
        self._draft_heads: dict[str, tuple[Linear, Tensor]] = {}
        self._heads: dict[tuple[str, bool], EagleHead | MedusaHeads] = {}

    def knows(self, variant: Variant, drafter: ResolvedModel) -> bool:
        """Whether what a variant drafts with is loaded."""
        key = (drafter.revision, bool(variant.option("draft_vocab")))
        return drafter.revision in self._models or key in self._heads

    def make(self, variant: Variant, drafter: ResolvedModel | None) -> tuple[Drafter | None, dict[str, Any]]:
        """The drafter of a variant, and its settings as applied.

        Raises:
            UnsupportedError: no such method here, or more tokens than it can draft.
        """
        if variant.method == "ngram":
            smallest, largest = int(variant.option("min_ngram")), int(variant.option("max_ngram"))
            return NgramDrafter(min_ngram=smallest, max_ngram=largest), {"draft_sampling": "one-hot"}
        if variant.is_baseline:
            return None, {}
        makers = {
            "draft_model": self._draft_model,
            "eagle": self._eagle,
            "medusa": self._medusa,
            "synthetic": self._synthetic,
        }
        if drafter is None or variant.method not in makers:
            raise UnsupportedError(f"the native backend doesn't run method.name={variant.method!r}.")
        sampled = variant.option("draft_sampling") == "sampled"
        made, applied = makers[variant.method](variant, drafter, sampled)
        if shortest := variant.option("lookup"):
            made = LookupFirst(made, NgramDrafter(min_ngram=shortest, max_ngram=shortest + 1))
        return made, {"draft_sampling": "sampled" if sampled else "greedy", **applied, **_tree_facts(variant)}

    def clear(self) -> None:
        """Drop all models and heads."""
        self._models.clear()
        self._draft_heads.clear()
        self._heads.clear()

    def _draft_model(
        self, variant: Variant, drafter: ResolvedModel, sampled: bool
    ) -> tuple[Drafter, dict[str, Any]]:
        if drafter.revision not in self._models:
            self._models[drafter.revision] = self._load(drafter)
        model = self._models[drafter.revision]
        head, vocab = self._draft_head(drafter) if variant.option("draft_vocab") else (None, None)
        options: dict[str, Any] = {"cache": self._cache(model), "head": head, "vocab": vocab}
        applied = {
            "draft_vocab_size": model.architecture.vocab_size if vocab is None else len(vocab),
            "drafter_layers": model.architecture.num_layers,
            "drafter_weight_bytes": model.weight_bytes + (0 if head is None else head.num_bytes),
        }
        plan = tree_plan(variant)
        if _has_tree(variant):
            return TreeDraftModel(model, plan=plan, sample=sampled, **options), applied
        options["min_confidence"] = variant.option("min_confidence", 0.0)
        return IndependentDrafter(model, sample=sampled, **options), applied

    def _synthetic(
        self, variant: Variant, drafter: ResolvedModel, sampled: bool
    ) -> tuple[Drafter, dict[str, Any]]:
        if _has_tree(variant):
            raise UnsupportedError("method.tree: synthetic acceptance is for chains. Leave the tree out.")
        proposer, applied = self._draft_model(variant, drafter, sampled)
        acceptance = variant.option("acceptance")
        return SyntheticAcceptance(proposer, acceptance), applied | {"synthetic_acceptance": list(acceptance)}

    def _eagle(
        self, variant: Variant, drafter: ResolvedModel, sampled: bool
    ) -> tuple[Drafter, dict[str, Any]]:
        head = self._head(variant, drafter)
        assert isinstance(head, EagleHead)
        plan = tree_plan(variant)
        made = EagleDrafter(head, cache=self._cache(head.model), plan=plan, sample=sampled)
        return made, {"draft_vocab_size": self._vocab_size(head), "drafter_layers": 1}

    def _medusa(
        self, variant: Variant, drafter: ResolvedModel, sampled: bool
    ) -> tuple[Drafter, dict[str, Any]]:
        heads = self._head(variant, drafter)
        assert isinstance(heads, MedusaHeads)
        plan = tree_plan(variant)
        if plan.depth > heads.num_heads:
            what = "method.tree: it is" if variant.option("tree_parents") else "method.k: drafts would be"
            raise UnsupportedError(
                f"{what} {plan.depth} tokens deep, but {drafter.ref} has {heads.num_heads} Medusa head(s). "
                f"Draft at most {heads.num_heads} tokens, or train more heads."
            )
        made = MedusaDrafter(heads, plan, sample=sampled)
        return made, {"draft_vocab_size": self._vocab_size(heads), "medusa_heads": heads.num_heads}

    def _head(self, variant: Variant, drafter: ResolvedModel) -> EagleHead | MedusaHeads:
        reduced = bool(variant.option("draft_vocab"))
        key = (drafter.revision, reduced)
        if key not in self._heads:
            load = load_eagle if variant.method == "eagle" else load_medusa
            self._heads[key] = load(
                drafter.path,
                self._target,
                self._target_model.path,
                reduced_vocab=reduced,
                scheme=self._scheme,
            )
        return self._heads[key]

    def _vocab_size(self, head: EagleHead | MedusaHeads) -> int:
        return self._target.architecture.vocab_size if head.vocab is None else len(head.vocab)

    def _draft_head(self, drafter: ResolvedModel) -> tuple[Linear | None, Tensor | None]:
        """Head over the drafter's reduced vocabulary, and the ids of its outputs, where it has one."""
        if drafter.revision not in self._draft_heads:
            file = drafter.path / DRAFT_VOCAB_FILE
            if not file.is_file():
                return None, None
            vocab = torch.from_numpy(np.load(file).astype(np.int64)).to(self._target.device)
            head = load_head(
                drafter.path,
                vocab,
                dtype=self._target.dtype,
                device=self._target.device,
                scheme=self._scheme,
            )
            self._draft_heads[drafter.revision] = head, vocab
        return self._draft_heads[drafter.revision]


def tree_plan(variant: Variant) -> TreePlan:
    """The shape a variant drafts: a chain of k tokens, or a tree no deeper than that."""
    if variant.option("tree_parents"):
        return StaticTree(variant.option("tree_parents"))
    if variant.option("tree_nodes"):
        return DynamicTree(
            num_nodes=variant.option("tree_nodes"),
            depth=variant.k,
            breadth=variant.option("tree_breadth"),
        )
    return chain(variant.k, variant.option("min_confidence", 0.0))


def pace_rules(variant: Variant) -> PaceRules:
    """Where a variant drafts nothing."""
    return PaceRules(
        min_output_tokens=variant.option("min_output_tokens", 0),
        max_prompt_tokens=variant.option("max_prompt_tokens"),
        max_batch=variant.option("max_batch"),
    )


def typical_acceptance(variant: Variant) -> TypicalAcceptance | None:
    """By which plausibility a variant accepts; None where it accepts losslessly."""
    if variant.option("verification") != "typical":
        return None
    return TypicalAcceptance(variant.option("epsilon"), variant.option("delta"))


def _has_tree(variant: Variant) -> bool:
    return bool(variant.option("tree_parents") or variant.option("tree_nodes"))


def _tree_facts(variant: Variant) -> dict[str, Any]:
    if variant.option("tree_parents"):
        return {"tree_nodes": len(variant.option("tree_parents"))}
    return {"tree_nodes": variant.option("tree_nodes")} if variant.option("tree_nodes") else {}
