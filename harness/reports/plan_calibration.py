"""How sure a plan is: predicted against measured under load, and how well the calibration fits."""

from __future__ import annotations

from collections.abc import Sequence

from harness.capacity.plan import ConfigurationPlan
from harness.capacity.validation_table import ValidationTable
from harness.privacy import clipped
from harness.reports import plan_words as words
from harness.reports.blocks import Block, Bullets, Column, Section, Table, entry
from harness.reports.display import MISSING, count, percent, seconds
from harness.reports.language import retold, say

Named = Sequence[tuple[str, ConfigurationPlan]]
_COMMAND = "plan validate RESULTS"


def validation_section(table: ValidationTable | None) -> Section:
    """Loads the engine was driven at, none of which calibrated the model."""
    title = "Predicted and measured"
    if table is None:
        return Section("validation", title, omitted="Not validated under load yet.", measure=_COMMAND)
    columns = [Column("variant", numeric=False), Column("requests/s"), Column("figure", numeric=False)]
    columns += [Column("predicted"), Column("95% over seeds"), Column("measured"), Column("error")]
    rows = []
    for row in table.rows:
        between = MISSING
        if row.predicted_low is not None and row.predicted_high is not None:
            between = say("{low} to {high}", low=seconds(row.predicted_low), high=seconds(row.predicted_high))
        texts = [row.variant_id, f"{row.requests_per_s:.3g}", row.figure.replace("_", " ").removesuffix(" s")]
        texts += [seconds(row.predicted), between, seconds(row.measured), _signed(row.error)]
        rows.append([entry(text) for text in texts])
    bias = [
        say("{name}: bias {bias}, mean error {error}", name=name, bias=_signed(bias), error=percent(error))
        for name, bias, error in table.summary()
    ]
    prompts = say(" and with prompts held out too") if table.held_out else ""
    lead = say(
        "{backend}, {num_requests} requests per load, served one after another, at rates that "
        "calibrated nothing{prompts}. Bias is the mean signed error: which way the model is off.",
        backend=table.backend,
        num_requests=count(table.num_requests),
        prompts=prompts,
    )
    blocks: list[Block] = [Table("Per load", columns, rows), Bullets(bias, title="Over all loads")]
    return Section("validation", title, lead, blocks)


def calibration_section(named: Named) -> Section:
    """Measured ranges, and fitted against measured seconds."""
    columns = [Column("configuration", numeric=False), Column("method", numeric=False), Column("steps")]
    columns += [
        Column("step error by batch", numeric=False, hint="mean fitted step over the mean measured one")
    ]
    columns += [Column("time to first token"), Column("ks", numeric=False)]
    rows, notes = [], []
    for label, one in named:
        for method, error in one.model.errors.items():
            model = one.model.methods.get(method)
            by_batch = ", ".join(f"{batch}: {_signed(value)}" for batch, value in error.mean_step.items())
            ks = ", ".join(map(str, sorted(model.acceptances))) if model else "0"
            texts = [
                clipped(label, 60),
                words.method_name(one, method),
                count(error.steps),
                by_batch,
                _signed(error.mean_ttft),
                ks,
            ]
            rows.append([entry(text) for text in texts])
        known = one.model.range
        batches = ", ".join(map(str, known.batches))
        notes.append(
            say(
                "{label}: batches of {batches}; prompts up to {prompt} tokens, contexts up to {context}.",
                label=clipped(label, 60),
                batches=batches,
                prompt=count(known.max_prompt_tokens),
                context=count(known.max_context_tokens),
            )
        )
        notes += [say("{text}.", text=clipped(retold(note), 200)) for note in one.model.notes]
    return Section(
        "calibration",
        "Calibration",
        "Seconds of a step are fitted to its width, its depth, its sequences and their context.",
        [Table("Fitted against measured", columns, rows), Bullets(notes, title="What was measured")],
    )


def _signed(value: float | None) -> str:
    return MISSING if value is None else f"{100 * value:+.1f}%"
