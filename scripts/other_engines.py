"""Engines that run in processes of their own, for `compare_engines.py`."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import time
import urllib.error
import urllib.request
from pathlib import Path
from types import TracebackType
from typing import Any

from harness.backends.native import available_cores

START_TIMEOUT_S = 300.0
_WORKER = Path(__file__).with_name("vllm_worker.py")
_ANSWER = "ANSWER "  # marks the worker's lines among those of vLLM


class VllmWorker:
    """vLLM in the Python it is installed in: `vllm_worker.py`, prompts in, token ids out.

    Args:
        python: interpreter of an environment with vLLM.
        model: checkpoint folder.
        dtype: of weights and activations.
        context: longest prompt and output together.
    """

    def __init__(self, python: Path, model: Path, dtype: str, context: int) -> None:
        """See the class; nothing starts before the context is entered."""
        self._command = [str(python), str(_WORKER), str(model), dtype, str(context)]
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> VllmWorker:
        """Start it and wait until its model is loaded."""
        cores = f"0-{available_cores() - 1}"  # its default leaves one core idle
        settings = {"VLLM_CPU_OMP_THREADS_BIND": cores, "VLLM_CPU_KVCACHE_SPACE": "1"}
        settings |= {"VLLM_ENABLE_V1_MULTIPROCESSING": "0", "VLLM_LOGGING_LEVEL": "ERROR"}
        inherited = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        self._process = subprocess.Popen(
            self._command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=inherited | settings,
        )
        self._answer()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End it."""
        if self._process is not None:
            self._process.terminate()
            self._process.wait()

    def decode(self, prompt: list[int], new_tokens: int) -> list[int]:
        """Greedy output of exactly `new_tokens` ids."""
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"prompt": prompt, "new_tokens": new_tokens}) + "\n")
        self._process.stdin.flush()
        tokens: list[int] = self._answer()
        return tokens

    def _answer(self) -> Any:
        assert self._process is not None
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith(_ANSWER):
                return json.loads(line.removeprefix(_ANSWER))
        raise RuntimeError(f"vLLM ended with exit code {self._process.wait()}; its own messages are above")


class LlamaServer:
    """llama.cpp's server with one slot, asked token ids in, token ids out.

    Args:
        binary: `llama-server`.
        model: GGUF file.
        context: longest prompt and output together.
    """

    def __init__(self, binary: Path, model: Path, context: int) -> None:
        """See the class; nothing starts before the context is entered."""
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        self._url = f"http://127.0.0.1:{port}"
        cores = str(available_cores())
        self._command = [str(binary), "--model", str(model), "--port", str(port), "--parallel", "1"]
        self._command += ["--threads", cores, "--threads-batch", cores, "--ctx-size", str(context + 64)]
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> LlamaServer:
        """Start it and wait until it answers."""
        self._process = subprocess.Popen(self._command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        deadline = time.monotonic() + START_TIMEOUT_S
        while time.monotonic() < deadline and self._process.poll() is None:
            try:
                with urllib.request.urlopen(f"{self._url}/health", timeout=5):
                    return self
            except (urllib.error.URLError, ConnectionError):
                time.sleep(0.2)
        self.__exit__(None, None, None)
        raise RuntimeError(f"{' '.join(self._command)} doesn't answer: run it by hand to see why")

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End it."""
        if self._process is not None:
            self._process.terminate()
            self._process.wait()

    def decode(self, prompt: list[int], new_tokens: int) -> list[int]:
        """Greedy output of exactly `new_tokens` ids; the prompt is read anew each time."""
        body = {
            "prompt": prompt,
            "n_predict": new_tokens,
            "temperature": 0,
            "ignore_eos": True,
            "cache_prompt": False,
            "return_tokens": True,
        }
        request = urllib.request.Request(
            f"{self._url}/completion",
            data=json.dumps(body).encode(),
            headers={"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request) as answer:
            tokens: list[int] = json.load(answer)["tokens"]
        return tokens
