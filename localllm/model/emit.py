"""ModelConfig and tensors -> Program: the one forward pass of the project.

    x = embed(tokens)
    per layer:  attn_norm -> q, k, v -> attend -> attn_output [-> norm] -> + x
                ffn_norm -> gate, up -> glu -> down (or experts) [-> norm] -> + x
    output_norm -> output

Register names are those of the weights that fill them. No operation writes a register that it reads. After the last layer's
attention only the wanted rows go on (``Last``); registers behind that point are named "last.*", so that a register has either
always T rows or always W.
"""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType

from localllm.model.config import LayerConfig, ModelConfig
from localllm.model.program import GLU, Add, Attend, Embed, Last, Linear, MoE, Op, Program, RMSNorm
from localllm.model.weights import Weights


def emit(config: ModelConfig, weights: Weights) -> Program:
    """The Program of a model. Raises GGUFError for a tensor that is missing or has another shape than ``config`` implies."""
    return _Emitter(config, weights).program()


class _Emitter:
    def __init__(self, config: ModelConfig, weights: Weights) -> None:
        self.config = config
        self.weights = weights
        self.ops: list[Op] = []
        self.widths: dict[str, int] = {}
        self.prefix = ""

    def program(self) -> Program:
        config, D = self.config, self.config.embedding_length
        vocab = self.weights.rows("token_embd.weight", D)
        x = self.register("x", D)
        self.ops.append(Embed(x, self.weights.need("token_embd.weight", vocab, D), config.embedding_scale))
        for index, layer in enumerate(config.layers):
            x = self.layer(index, layer, x)
        x = self.norm(x, "output_norm", D)
        output = "output" if "output.weight" in self.weights else "token_embd"
        result = self.linear(x, output, D, vocab, out="output")
        return Program(
            tuple(self.ops), MappingProxyType(self.widths), MappingProxyType(self.weights.shapes), result, vocab, config.context_length
        )

    def layer(self, index: int, layer: LayerConfig, x: str) -> str:
        D = self.config.embedding_length
        block = f"blk.{index}."
        attention = self.attention(index, block, layer, self.norm(x, block + "attn_norm", D))
        if index == len(self.config.layers) - 1:
            x, attention = self.last(x, attention)
        out = self.linear(attention, block + "attn_output", layer.head_count * layer.key_length, D)
        x = self.add(self.post_norm(out, block + "post_attention_norm"), x, "ffn_inp")
        h = self.norm(x, block + "ffn_norm", D)
        out = self.experts(block, layer, h) if layer.expert_count else self.feed_forward(block, layer, h)
        return self.add(self.post_norm(out, block + "post_ffw_norm"), x, "x")

    def attention(self, index: int, block: str, layer: LayerConfig, x: str) -> str:
        D, d = self.config.embedding_length, layer.key_length
        wide, narrow = layer.head_count * d, layer.head_count_kv * d
        q, k = self.linear(x, block + "attn_q", D, wide), self.linear(x, block + "attn_k", D, narrow)
        v = self.linear(x, block + "attn_v", D, narrow)
        norms = [self.weights.need(f"{block}attn_{name}_norm.weight", d) if self.config.qk_norm else None for name in "qk"]
        if layer.rope and layer.rope.factors:
            self.weights.need(layer.rope.factors, layer.rope.dim // 2)
        out = self.register("attn", wide)
        attend = Attend(q, k, v, out, index, layer.head_count, layer.head_count_kv, d, layer.scale, layer.rope, layer.sliding_window)
        self.ops.append(replace(attend, q_norm=norms[0], k_norm=norms[1], eps=self.config.epsilon))
        return out

    def feed_forward(self, block: str, layer: LayerConfig, x: str) -> str:
        D, F = self.config.embedding_length, layer.feed_forward_length
        gate, up = self.linear(x, block + "ffn_gate", D, F), self.linear(x, block + "ffn_up", D, F)
        out = self.register("ffn_act", F)
        self.ops.append(GLU(gate, up, out, self.config.activation))
        return self.linear(out, block + "ffn_down", F, D)

    def experts(self, block: str, layer: LayerConfig, x: str) -> str:
        D, F, E = self.config.embedding_length, layer.feed_forward_length, layer.expert_count
        router = self.weights.need(block + "ffn_gate_inp.weight", E, D)
        gate = self.weights.need(block + "ffn_gate_exps.weight", E, F, D)
        up = self.weights.need(block + "ffn_up_exps.weight", E, F, D)
        down = self.weights.need(block + "ffn_down_exps.weight", E, D, F)
        out = self.register("ffn_moe", D)
        self.ops.append(MoE(x, out, router, gate, up, down, E, layer.expert_used_count, F, self.config.activation))
        return out

    def last(self, *registers: str) -> tuple[str, ...]:
        outs = tuple(f"last.{name}" for name in registers)
        for x, out in zip(registers, outs, strict=True):
            self.widths[out] = self.widths[x]
            self.ops.append(Last(x, out))
        self.prefix = "last."
        return outs

    def norm(self, x: str, weight: str, width: int) -> str:
        out = self.register(weight, width)
        self.ops.append(RMSNorm(x, out, self.weights.need(weight + ".weight", width), self.config.epsilon))
        return out

    def post_norm(self, x: str, weight: str) -> str:
        return self.norm(x, weight, self.config.embedding_length) if self.config.post_norms else x

    def linear(self, x: str, weight: str, width: int, rows: int, out: str = "") -> str:
        register = self.register(out or weight, rows)
        bias = self.bias(out or weight, rows)
        self.ops.append(Linear(x, register, self.weights.need(weight + ".weight", rows, width), bias))
        return register

    def bias(self, weight: str, rows: int) -> str | None:
        required = weight.rsplit(".", 1)[-1] in self.config.biases
        take = self.weights.need if required else self.weights.maybe
        return take(weight + ".bias", rows)

    def add(self, a: str, b: str, out: str) -> str:
        register = self.register(out, self.config.embedding_length)
        self.ops.append(Add(a, b, register))
        return register

    def register(self, name: str, width: int) -> str:
        """A register for what ``name`` computes, shared by all layers that give it the same width."""
        name = self.prefix + name.split(".", 2)[-1]
        if self.widths.get(name, width) != width:
            name = f"{name}.{width}"
        self.widths[name] = width
        return name
