from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from harness.errors import ModelSourceError
from harness.models.gguf_checkpoint import convert_gguf


@pytest.fixture
def converted(tmp_path: Path, make_tiny_llama: Callable[..., Path], write_gguf: Callable[..., Path]) -> Path:
    (tmp_path / "out").mkdir()
    convert_gguf(write_gguf(make_tiny_llama(), tmp_path / "tiny.gguf"), tmp_path / "out")
    return tmp_path / "out"


def test_config_is_plain_llama(converted: Path) -> None:
    config = json.loads((converted / "config.json").read_text())
    assert config["rms_norm_eps"] == 1e-5  # stored as a float32 that prints as 9.999999747378752e-06
    assert config["rope_theta"] == config["rope_parameters"]["rope_theta"] == 10000.0
    assert (config["num_key_value_heads"], config["head_dim"], config["vocab_size"]) == (2, 16, 300)
    assert (config["bos_token_id"], config["eos_token_id"], config["pad_token_id"]) == (1, 2, 0)
    assert config["tie_word_embeddings"] is True
    assert not {"quantization_config", "_name_or_path", "_model_name_or_path"} & config.keys()


def test_logits_equal_those_of_the_source_model(converted: Path, tmp_path: Path) -> None:
    from transformers import AutoModelForCausalLM

    ids = torch.tensor([[1, 70, 80, 90, 100, 110]])
    with torch.inference_mode():
        logits = [
            AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)(ids).logits
            for folder in (converted, tmp_path / "target")
        ]
    torch.testing.assert_close(*logits, rtol=0, atol=0)


def test_digits_are_split_off_before_the_byte_level_rule(converted: Path) -> None:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(converted)
    # With the byte-level rule alone the second line break would belong to the digit's piece.
    assert tokenizer.convert_ids_to_tokens(tokenizer.encode("x\n\n1")) == ["x", "ĊĊ", "1"]
    text = "<s>été  12\n\n3 日本</s>"
    ids = tokenizer.encode(text)
    assert ids[0] == 1
    assert ids[-1] == 2
    assert tokenizer.decode(ids) == text
    assert (tokenizer.bos_token, tokenizer.eos_token, tokenizer.pad_token) == ("<s>", "</s>", "<pad>")
    assert tokenizer.chat_template.startswith("{% for m in messages %}")


@pytest.mark.parametrize(
    ("options", "named"),
    [({"pre": "qwen2"}, "pre-tokenizer 'qwen2'"), ({"architecture": "gemma"}, "'gemma'")],
)
def test_other_models_are_refused(
    options: dict[str, str],
    named: str,
    tmp_path: Path,
    make_tiny_llama: Callable[..., Path],
    write_gguf: Callable[..., Path],
) -> None:
    file = write_gguf(make_tiny_llama(), tmp_path / "tiny.gguf", **options)
    with pytest.raises(ModelSourceError, match=named):
        convert_gguf(file, tmp_path)


def test_damaged_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "bad.gguf").write_bytes(b"GGUX" + bytes(64))
    with pytest.raises(ModelSourceError, match=r"bad\.gguf: isn't a readable GGUF file"):
        convert_gguf(tmp_path / "bad.gguf", tmp_path)
