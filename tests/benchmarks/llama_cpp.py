"""Stands for llama-cpp-python's low-level interface: as much of it as the peer's script calls, counting what it is asked for."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

LOG: list[tuple[int, int, int]] = []
"""Of each decode: tokens, the first one's position, and how many logits were wanted."""


def llama_backend_init() -> None: ...


def llama_model_default_params() -> Any:
    return SimpleNamespace()


def llama_context_default_params() -> Any:
    return SimpleNamespace()


def llama_model_load_from_file(path: bytes, params: Any) -> Any:
    return path.decode() if path.endswith(b".gguf") else None


def llama_init_from_model(model: Any, params: Any) -> Any:
    assert params.n_batch == params.n_ubatch == 512 and params.n_threads == params.n_threads_batch and params.flash_attn_type in (0, 1)
    return params


def llama_get_memory(context: Any) -> Any:
    return context


def llama_model_get_vocab(model: Any) -> Any:
    return model


def llama_vocab_n_tokens(vocab: Any) -> int:
    return 100


def llama_batch_init(n: int, embd: int, lines: int) -> Any:
    return SimpleNamespace(n_tokens=0, token=[0] * n, pos=[0] * n, n_seq_id=[0] * n, seq_id=[[7] for _ in range(n)], logits=[0] * n)


def llama_memory_clear(memory: Any, data: bool) -> None: ...


def llama_decode(context: Any, batch: Any) -> int:
    n = batch.n_tokens
    assert batch.pos[:n] == list(range(batch.pos[0], batch.pos[0] + n)) and batch.n_seq_id[:n] == [1] * n and batch.seq_id[n - 1] == [0]
    assert batch.pos[n - 1] < context.n_ctx
    LOG.append((n, batch.pos[0], sum(map(bool, batch.logits[:n]))))
    return 0


def llama_get_logits(context: Any) -> list[float]:
    assert LOG[-1][2] == 1
    return [0.0]


def llama_print_system_info() -> bytes:
    return b"CPU : AVX2 = 1 | "
