#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes a small model of each architecture and its logits in transformers and llama.cpp, for tests/llm/architectures_test.cpp.

  LLAMA_CPP_LIB_PATH=LLAMA/build/bin tools/make_architecture_cases.py LLAMA tests/data/architectures.json [NAME...]

LLAMA is the source of llama.cpp. With names, only these cases are made, and the others are kept. A formula computes the weights of a transformers model from their names in GGUF files; the
test uses the same formula. llama.cpp's converter writes the GGUF file, and this script checks that each tensor matches the
formula. It writes the metadata of the file, the names and shapes of its tensors (and the values of tensors that the converter
computes), and the logits of some tokens: from transformers in float64, and from llama.cpp with f32 caches. Requires
transformers, torch, numpy and llama-cpp-python.
"""
from __future__ import annotations

import argparse
import ctypes
import json
import logging
import re
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path

import llama_cpp
import numpy as np
import torch
import transformers

VOCABULARY, WIDTH, HIDDEN, LAYERS = 64, 32, 48, 2
SIZES = dict(vocab_size=VOCABULARY, hidden_size=WIDTH, intermediate_size=HIDDEN, num_hidden_layers=LAYERS,
             num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=512, tie_word_embeddings=False,
             bos_token_id=1, eos_token_id=2, pad_token_id=0)
LONG = dict(rope_type="longrope", rope_theta=10000.0, original_max_position_embeddings=256,
            short_factor=[1.0, 1.25, 1.5], long_factor=[1.125, 2.5, 6.0])
THETA = dict(rope_type="default", rope_theta=10000.0)
PHI = dict(partial_rotary_factor=0.75, rope_parameters=dict(LONG, partial_rotary_factor=0.75), sliding_window=None,
           original_max_position_embeddings=256)
WINDOWS = dict(sliding_window=8, head_dim=16)
# The names of these parameters differ between classes. Rows of an expert must be a multiple of 32.
EXPERTS = dict(num_local_experts=8, num_experts=8, num_experts_per_tok=3, intermediate_size=64, moe_intermediate_size=32,
               rope_parameters=THETA)
SCALES = dict(embedding_multiplier=2.5, residual_multiplier=0.3, attention_multiplier=0.4, logits_scaling=3.0)
PARTIAL = dict(THETA, partial_rotary_factor=0.5)
DELTA = dict(num_hidden_layers=4, head_dim=16, linear_num_key_heads=2, linear_num_value_heads=6, linear_key_head_dim=8,
             linear_value_head_dim=8, linear_conv_kernel_dim=4)
GEMMA4 = dict(sliding_window=8, head_dim=16, global_head_dim=32, hidden_size_per_layer_input=0, final_logit_softcapping=30.0,
              vocab_size_per_layer_input=VOCABULARY, tie_word_embeddings=True, rope_parameters=None)
# The columns are name, class, differences from SIZES, number of tokens and cache size.
CASES = [
    ("Llama 2", "Llama", dict(head_dim=8, rope_parameters=THETA), 24, 64),
    ("Llama 3.1", "Llama", dict(head_dim=16, rope_parameters=dict(
        rope_type="llama3", rope_theta=5000.0, factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
        original_max_position_embeddings=64)), 40, 64),
    ("Mistral", "Mistral", dict(head_dim=16, sliding_window=None, rope_parameters=dict(THETA, rope_theta=1e6)), 24, 64),
    ("Ministral 3", "Ministral3", dict(head_dim=16, rope_parameters=dict(
        rope_type="yarn", rope_theta=1e4, factor=4.0, original_max_position_embeddings=16, beta_fast=8.0, beta_slow=1.0,
        mscale=1.0, mscale_all_dim=1.0, llama_4_scaling_beta=0.5)), 60, 64),
    ("Qwen 2.5", "Qwen2", dict(tie_word_embeddings=True, rope_parameters=dict(THETA, rope_theta=1e6)), 24, 64),
    ("Qwen 2.5, YaRN", "Qwen2", dict(rope_parameters=dict(
        rope_type="yarn", rope_theta=1000.0, factor=4.0, original_max_position_embeddings=64)), 40, 64),
    ("Qwen 3", "Qwen3", dict(head_dim=16, rope_parameters=dict(THETA, rope_theta=1e6)), 24, 64),
    ("Qwen 2.5 VL", "Qwen2", dict(rope_parameters=dict(THETA, mrope_section=[2, 1, 1])), 24, 64),
    ("Qwen 3 VL", "Qwen3", dict(head_dim=16, rope_parameters=dict(THETA, mrope_section=[3, 3, 2])), 24, 64),
    ("SmolLM 3", "SmolLM3", dict(num_hidden_layers=5, rope_parameters=dict(THETA, rope_theta=5e4)), 24, 64),
    ("Phi 4", "Phi3", dict(sliding_window=None, rope_parameters=THETA), 24, 64),
    ("Phi 3.5, short", "Phi3", PHI, 40, 256),
    ("Phi 3.5, long", "Phi3", PHI, 280, 320),
    ("Phi 3, window", "Phi3", dict(sliding_window=8, rope_parameters=THETA), 24, 64),
    ("Gemma", "Gemma", dict(head_dim=16, tie_word_embeddings=True, rope_parameters=THETA,
                            hidden_activation="gelu_pytorch_tanh"), 24, 64),
    ("Gemma 2", "Gemma2", dict(WINDOWS, num_hidden_layers=3, num_attention_heads=2, num_key_value_heads=1, head_dim=256,
                               query_pre_attn_scalar=256, attn_logit_softcapping=2.0, final_logit_softcapping=3.0,
                               tie_word_embeddings=True, rope_parameters=THETA), 24, 64),
    ("Gemma 3", "Gemma3", dict(WINDOWS, num_hidden_layers=7, query_pre_attn_scalar=16, tie_word_embeddings=True,
                               rope_parameters=dict(
                                   full_attention=dict(rope_type="linear", factor=8.0, rope_theta=1e5),
                                   sliding_attention=dict(rope_type="default", rope_theta=1e4))), 40, 64),
    ("Mixtral", "Mixtral", dict(EXPERTS, sliding_window=None), 24, 64),
    ("Qwen 3 MoE", "Qwen3Moe", dict(EXPERTS, head_dim=16, norm_topk_prob=True), 24, 64),
    ("Granite 3", "Granite", dict(SCALES, rope_parameters=THETA), 24, 64),
    ("Granite 4", "GraniteMoeHybrid", dict(SCALES, rope_parameters=THETA, position_embedding_type="rope",
                                           shared_intermediate_size=HIDDEN, num_local_experts=0, num_experts_per_tok=0,
                                           mamba_n_heads=8, mamba_d_head=8,
                                           layer_types=["attention"] * LAYERS), 24, 64),
    ("OLMo 2", "Olmo2", dict(rope_parameters=THETA), 24, 64),
    ("OLMo 3", "Olmo3", dict(num_hidden_layers=5, sliding_window=8, rope_parameters=dict(
        full_attention=dict(rope_type="yarn", rope_theta=1000.0, factor=4.0, original_max_position_embeddings=64),
        sliding_attention=dict(rope_type="default", rope_theta=1000.0))), 40, 64),
    ("GLM 4 0414", "Glm4", dict(head_dim=16, attention_bias=True, rope_parameters=PARTIAL), 24, 64),
    ("GLM 4", "Glm", dict(head_dim=8, attention_bias=True, rms_norm_eps=1e-5, rope_parameters=PARTIAL), 24, 64),
    ("Qwen 2 MoE", "Qwen2Moe", dict(EXPERTS, shared_expert_intermediate_size=HIDDEN), 24, 64),
    ("OLMoE", "Olmoe", dict(EXPERTS, num_key_value_heads=4), 24, 64),
    ("Granite 3 MoE", "GraniteMoe", dict(SCALES, **EXPERTS), 24, 64),
    ("EXAONE 4", "Exaone4", dict(head_dim=8, sliding_window=None, layer_types=["full_attention"] * LAYERS,
                                 rope_parameters=THETA), 24, 64),
    ("EXAONE 4, windows", "Exaone4", dict(head_dim=8, sliding_window=8, num_hidden_layers=5, rope_parameters=dict(
        rope_type="llama3", rope_theta=5000.0, factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
        original_max_position_embeddings=64)), 40, 64),
    ("ERNIE 4.5", "Ernie4_5", dict(head_dim=8, rope_parameters=THETA), 24, 64),
    ("Command R", "Cohere", dict(logit_scale=0.3, tie_word_embeddings=True, rope_parameters=THETA), 24, 64),
    ("Command R7B", "Cohere2", dict(logit_scale=0.3, rotary_pct=1.0, num_hidden_layers=5, sliding_window=8,
                                    tie_word_embeddings=True, rope_parameters=THETA), 40, 64),
    ("Granite MoE, shared", "GraniteMoeShared", dict(SCALES, **EXPERTS, shared_intermediate_size=HIDDEN), 24, 64),
    ("gpt-oss", "GptOss", dict(WINDOWS, intermediate_size=64, num_local_experts=4, num_experts_per_tok=2, rope_parameters=dict(
        rope_type="yarn", rope_theta=1000.0, factor=4.0, original_max_position_embeddings=64, beta_fast=8.0, beta_slow=1.0,
        truncate=False)), 40, 64),
    ("LFM2", "Lfm2", dict(num_hidden_layers=4, layer_types=["conv", "full_attention", "conv", "conv"], conv_L_cache=3,
                          block_auto_adjust_ff_dim=False, tie_word_embeddings=True, rope_parameters=THETA), 24, 64),
    ("Qwen 3.5", "Qwen3_5", dict(DELTA, rope_parameters=dict(PARTIAL, mrope_section=[2, 1, 1])), 40, 64),
    ("LFM2 MoE", "Lfm2Moe", dict(EXPERTS, num_hidden_layers=4, layer_types=["conv", "full_attention", "conv", "conv"],
                                 conv_L_cache=3, num_dense_layers=1, intermediate_size=HIDDEN,
                                 tie_word_embeddings=True), 24, 64),
    ("Qwen 3.5 MoE", "Qwen3_5Moe", dict(EXPERTS, **DELTA, shared_expert_intermediate_size=HIDDEN,
                                        rope_parameters=dict(PARTIAL, mrope_section=[2, 1, 1])), 40, 64),
    ("Qwen 3 Next", "Qwen3Next", dict(EXPERTS, **DELTA, shared_expert_intermediate_size=HIDDEN, rope_parameters=PARTIAL), 40, 64),
    ("Gemma 4", "Gemma4", dict(GEMMA4, num_hidden_layers=4, global_head_dim=512, num_global_key_value_heads=1, attention_k_eq_v=True,
                               layer_types=["sliding_attention", "full_attention"] * 2), 40, 64),
    ("Gemma 4, layer inputs", "Gemma4", dict(GEMMA4, num_hidden_layers=7, num_kv_shared_layers=3, use_double_wide_mlp=True,
                                             hidden_size_per_layer_input=16, layer_types=[
        "sliding_attention", "full_attention"] * 2 + ["sliding_attention"] * 2 + ["full_attention"]), 40, 64),
    ("Gemma 4, experts", "Gemma4", dict(GEMMA4, enable_moe_block=True, num_experts=8, top_k_experts=3, intermediate_size=64,
                                        moe_intermediate_size=32, layer_types=["sliding_attention", "full_attention"]), 24, 64),
]
# These names use the vision class, because its text part has the same weights. (llama.cpp would not rotate the last pairs if
# the sections of Qwen 3 VL differed by more.)
SEEING = {"Qwen 2.5 VL": "Qwen2_5_VL", "Qwen 3 VL": "Qwen3VL"}
POST_NORMED = ("Gemma2", "Gemma3", "Olmo2", "Olmo3", "Exaone4", "GptOss", "Qwen3_5", "Qwen3_5Moe", "Qwen3Next",
               "Gemma4")
TEXT_CONFIG = ("Gemma3", "Qwen3_5", "Qwen3_5Moe", "Gemma4")
DELTA_KINDS = ("Qwen3_5", "Qwen3_5Moe", "Qwen3Next")
# The converter makes each pair of elements adjacent that is rotated together.
PERMUTED = ("Llama", "Mistral", "Ministral3", "SmolLM3", "Mixtral", "Granite", "GraniteMoe", "GraniteMoeShared",
            "GraniteMoeHybrid")
# llama.cpp deviates for these: it computes gelu from an f16 table, ignores the windows of Phi, and of EXAONE unless a model has
# 64 layers, and rounds the first and last pair of YaRN in gpt-oss.
LLAMA_CPP_BOUND = {"Gemma": 3e-3, "Gemma 2": 3e-3, "Gemma 3": 3e-3, "Gemma 4": 3e-3, "Gemma 4, layer inputs": 3e-3, "Gemma 4, experts": 3e-3, "Phi 3, window": None, "EXAONE 4, windows": None,
                   "gpt-oss": None}
BOUND = 1e-5

NAMES = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output",
         "input_layernorm": "attn_norm", "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k",
         "self_attn.v_proj": "attn_v", "self_attn.qkv_proj": "attn_qkv", "self_attn.o_proj": "attn_output",
         "self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm", "mlp.gate_proj": "ffn_gate",
         "mlp.up_proj": "ffn_up", "mlp.gate_up_proj": "ffn_up", "mlp.down_proj": "ffn_down",
         "post_attention_layernorm": "ffn_norm", "pre_feedforward_layernorm": "ffn_norm",
         "post_feedforward_layernorm": "post_ffw_norm",
         "post_self_attn_layernorm": "post_attention_norm", "post_mlp_layernorm": "post_ffw_norm"}
for block in ("mlp", "block_sparse_moe", "feed_forward"):
    NAMES.update({f"{block}.gate": "ffn_gate_inp", f"{block}.router": "ffn_gate_inp",
                  f"{block}.experts.gate_up_proj": "ffn_gate_exps ffn_up_exps", f"{block}.experts.down_proj": "ffn_down_exps"})
NAMES.update({f"mlp.shared_expert.{part}_proj": f"ffn_{part}_shexp" for part in ("gate", "up", "down")})
NAMES.update({"mlp.shared_expert_gate": "ffn_gate_inp_shexp", "shared_mlp.input_linear": "ffn_gate_shexp ffn_up_shexp",
              "shared_mlp.output_linear": "ffn_down_shexp"})
NAMES.update({"model.embedding_norm": "token_embd_norm", "operator_norm": "attn_norm", "ffn_norm": "ffn_norm",
              "feed_forward.w1": "ffn_gate", "feed_forward.w2": "ffn_down", "feed_forward.w3": "ffn_up",
              "self_attn.out_proj": "attn_output", "self_attn.q_layernorm": "attn_q_norm",
              "self_attn.k_layernorm": "attn_k_norm"})
NAMES.update({f"conv.{part}": f"shortconv.{part}" for part in ("conv", "in_proj", "out_proj")})
NAMES.update({f"linear_attn.{theirs}": ours for theirs, ours in dict(
    in_proj_qkv="attn_qkv", in_proj_z="attn_gate", in_proj_b="ssm_beta", in_proj_a="ssm_alpha", conv1d="ssm_conv1d", norm="ssm_norm",
    out_proj="ssm_out").items()})
NAMES.update({"linear_attn.in_proj_ba": "ssm_ba", "expert": "exp_probs_b"})
NAMES.update({"model.embed_tokens_per_layer": "per_layer_token_embd", "model.per_layer_model_projection": "per_layer_model_proj",
              "model.per_layer_projection_norm": "per_layer_proj_norm", "per_layer_input_gate": "inp_gate",
              "per_layer_projection": "proj", "post_per_layer_input_norm": "post_norm", "layer_scalar": "layer_output_scale",
              "post_feedforward_layernorm_1": "post_ffw_norm_1", "pre_feedforward_layernorm_2": "pre_ffw_norm_2",
              "post_feedforward_layernorm_2": "post_ffw_norm_2", "router": "ffn_gate_inp", "router.proj": "ffn_gate_inp",
              "router.per_expert": "ffn_down_exps", "experts.gate_up_proj": "ffn_gate_up_exps", "experts.down_proj": "ffn_down_exps"})


def numbers(name: str, count: int) -> np.ndarray:
    """Returns 16 bits per element, from SplitMix64 seeded with the FNV-1a hash of the name."""
    seed = 0xCBF29CE484222325
    for byte in name.encode():
        seed = ((seed ^ byte) * 0x100000001B3) % 2**64
    with np.errstate(over="ignore"):
        z = np.uint64(seed) + np.arange(1, count + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return (z ^ (z >> np.uint64(31))) >> np.uint64(48)


def weights(name: str, shape: tuple[int, ...]) -> np.ndarray:
    """Returns weights that are exact in f32. The weights of norms are exact even after subtracting 1."""
    u = (numbers(name, int(np.prod(shape))).astype(np.float64) - 32768) / 32768
    if re.search(r"norm(_\d)?\.weight$|scale(\.weight)?$", name):
        u = 1 + u / 4
    elif name.endswith(("gate_exps.bias", "up_exps.bias")):  # so large that some gates are clamped
        u = u * 8
    elif name.endswith(".bias"):
        u = u / 4
    elif name != "token_embd.weight":  # scaled by about the square root of the columns
        u = u * 2.0 ** (("attn_q.weight" in name) - np.floor(np.log2(shape[-1]) / 2))
    return u.reshape(shape).astype(np.float32)


def gguf_names(name: str, kind: str) -> list[str]:
    """Returns the names of the tensors whose rows together are a parameter."""
    name = name.replace("per_expert_scale", "per_expert.scale")  # Gemma 4
    name = name.replace("feed_forward.expert_bias", "expert.bias")  # LFM2
    stem, what = (name, "weight") if ".experts." in name or name.endswith("layer_scalar") else name.rsplit(".", 1)
    layer = re.fullmatch(r"model\.layers\.(\d+)\.(.*)", stem)
    if not layer:
        return [f"{NAMES[stem]}.{what}"]
    part = layer[2]
    part = "post_attention_norm" if part == "post_attention_layernorm" and kind in POST_NORMED else NAMES[part]
    if kind == "GraniteMoeHybrid":  # without experts, the shared one is an ordinary layer
        part = part.replace("_shexp", "")
    return [f"blk.{layer[1]}.{each}.{what}" for each in part.split()]


def parameter(name: str, kind: str, shape: tuple[int, ...]) -> np.ndarray:
    names = gguf_names(name, kind)
    if len(names) == 1:
        return weights(names[0], shape)
    return np.concatenate([weights(n, (*shape[:-2], shape[-2] // len(names), shape[-1])) for n in names], -2)


def gpt_oss_weights(name: str, shape: tuple[int, ...]) -> np.ndarray | None:
    """Returns the sinks of gpt-oss, or a parameter of its experts, which have another layout than in GGUF files."""
    match = re.fullmatch(r"model\.layers\.(\d+)\.(self_attn\.sinks|mlp\.experts\.(gate_up|down)_proj(_bias)?)", name)
    if not match:
        return None
    layer, _, part, bias = match.groups()
    if not part:
        return weights(f"blk.{layer}.attn_sinks.weight", shape)

    def transposed(part: str, columns: int) -> np.ndarray:
        stem = f"blk.{layer}.ffn_{part}_exps"
        if bias:
            return weights(f"{stem}.bias", (shape[0], columns))
        return weights(f"{stem}.weight", (shape[0], columns, shape[1])).swapaxes(1, 2)

    if part == "down":
        return transposed(part, shape[-1])
    return np.stack([transposed(p, shape[-1] // 2) for p in ("gate", "up")], axis=-1).reshape(shape)


def delta_weights(name: str, config, shape: tuple[int, ...]) -> np.ndarray | None:
    """Returns a parameter of a layer with the gated delta rule. The converter orders heads by their index in the group of a key head."""
    match = re.fullmatch(r"model\.layers\.(\d+)\.linear_attn\.(\w+)(\.weight)?", name)
    grouped = hasattr(config, "decoder_sparse_step")  # Qwen 3 Next
    if not match or match[2] == "norm" or (grouped and match[2] in ("conv1d", "in_proj_ba", "out_proj")):
        return None
    block = f"blk.{match[1]}."
    if match[2] == "in_proj_qkvz":
        return qkvz_weights(block, config, shape)
    if match[2] in ("A_log", "dt_bias"):
        w = weights(block + "ssm_dt.bias", shape) if match[2] == "dt_bias" else weights(block + "ssm_a.bias", shape) * 4
    else:
        w = weights(f"{block}{NAMES['linear_attn.' + match[2]]}.weight", shape)
    if grouped:
        return w
    groups, keys = config.linear_num_key_heads, 2 * config.linear_num_key_heads * config.linear_key_head_dim
    begin = keys if match[2] in ("in_proj_qkv", "conv1d") else 0

    def by_group(rows: np.ndarray) -> np.ndarray:
        heads = config.linear_num_value_heads
        return rows.reshape(heads // groups, groups, -1, *rows.shape[1:]).swapaxes(0, 1).reshape(rows.shape)

    if match[2] == "out_proj":
        return by_group(w.T).T
    return np.concatenate([w[:begin], by_group(w[begin:])])


def qkvz_weights(block: str, config, shape: tuple[int, ...]) -> np.ndarray:
    """Returns the queries, keys, values and gates of each key head of Qwen 3 Next, which are two matrices in GGUF files."""
    heads, size = config.linear_num_key_heads, config.linear_key_head_dim
    values = config.linear_num_value_heads * config.linear_value_head_dim
    qkv = weights(f"{block}attn_qkv.weight", (2 * heads * size + values, shape[1]))
    z = weights(f"{block}attn_gate.weight", (values, shape[1]))
    parts = [qkv[:heads * size], qkv[heads * size:2 * heads * size], qkv[2 * heads * size:], z]
    return np.concatenate([p.reshape(heads, -1, shape[1]) for p in parts], 1).reshape(shape)


def make_model(kind: str, further: dict) -> torch.nn.Module:
    config = getattr(transformers, kind + ("TextConfig" if kind in TEXT_CONFIG else "Config"))(**{**SIZES, **further})
    config.architectures = [kind + "ForCausalLM"]
    config._attn_implementation = config._experts_implementation = "eager"
    model = getattr(transformers, kind + "ForCausalLM")(config).eval()
    with torch.no_grad():
        buffers = ((name, p) for name, p in model.named_buffers() if name.endswith(("layer_scalar", "expert_bias")))
        for name, p in (*model.named_parameters(), *buffers):
            if name == "lm_head.weight" and config.tie_word_embeddings:
                continue
            shape = tuple(p.shape)
            w = gpt_oss_weights(name, shape) if kind == "GptOss" else delta_weights(name, config, shape) if kind in DELTA_KINDS else None
            w = parameter(name, kind, shape) if w is None else w
            if kind != "Gemma4" and (kind.startswith("Gemma") or kind in DELTA_KINDS) and name.endswith("norm.weight") and "linear_attn" not in name:
                w = w - 1
            heads = {"q_proj": "num_attention_heads", "k_proj": "num_key_value_heads"}.get(name.split(".")[-2])
            if heads and kind in PERMUTED:
                heads = getattr(config, heads)
                w = w.reshape(heads, -1, 2, *w.shape[1:]).swapaxes(1, 2).reshape(w.shape)
            p.copy_(torch.from_numpy(np.ascontiguousarray(w)))
    return model


def logits(name: str, model: torch.nn.Module, tokens: list[int]) -> torch.Tensor:
    ids = torch.tensor([tokens])
    if name not in SEEING:
        return model.double()(ids).logits[0]
    config = getattr(transformers, SEEING[name] + "TextConfig")(**model.config.to_dict())
    config._attn_implementation = "eager"
    module = sys.modules[getattr(transformers, SEEING[name] + "ForConditionalGeneration").__module__]
    part = getattr(module, SEEING[name] + "TextModel")(config).eval()
    part.load_state_dict(model.model.state_dict())
    return model.double().lm_head(part.double()(input_ids=ids).last_hidden_state)[0]


def convert(name: str, model: torch.nn.Module, folder: Path) -> Path:
    import gguf
    from conversion import get_model_class

    model.save_pretrained(folder)
    if name == "Granite 4":  # transformers renames the layers of the published models
        config = folder / "config.json"
        config.write_text(config.read_text().replace('"full_attention"', '"attention"'))
    # Converters of Gemma read the size of the tokenizer.
    tokenizer = {"model": {"vocab": {str(i): i for i in range(VOCABULARY)}}, "added_tokens": []}
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    base = get_model_class(SEEING[name] + "ForConditionalGeneration" if name in SEEING else model.config.architectures[0])
    if name == "Ministral 3":  # get_model_class returns a class that dispatches
        base = base.Ministral3Model

    class WithoutVocabulary(base):
        model_arch = base.model_arch
        no_mtp = True  # layers that predict further tokens

        def set_vocab(self):
            self.gguf_writer.add_tokenizer_model("no_vocab")
            if not any("vocab_size" in key for keys in self.gguf_writer.kv_data for key in keys):
                self.gguf_writer.add_vocab_size(VOCABULARY)

        def set_gguf_parameters(self):
            super().set_gguf_parameters()
            for keys in self.gguf_writer.kv_data:
                keys.setdefault(f"{self.gguf_writer.arch}.vocab_size", gguf.gguf_writer.GGUFValue(
                    VOCABULARY, gguf.GGUFValueType.UINT32))

    out = folder / "model.gguf"
    WithoutVocabulary(folder, gguf.LlamaFileType.ALL_F32, out, model_name="tiny").write()
    return out


def describe(path: Path) -> dict:
    import gguf

    reader = gguf.GGUFReader(path)
    keys = []
    for key, field in reader.fields.items():
        if key.startswith(("GGUF.", "tokenizer.")) or key in ("general.file_type", "general.size_label"):
            continue
        value = field.contents()
        keys.append([key, field.types[0].name.lower() if field.types[0].name != "ARRAY" else
                     "array " + field.types[1].name.lower(), value])
    tensors = []
    for t in reader.tensors:
        data = np.array(t.data)
        entry: list = [t.name, [int(d) for d in t.shape]]
        if t.name.startswith("rope_f") or t.name.endswith("ssm_a"):
            entry.append([float(v) for v in data])
        else:
            assert np.array_equal(data, weights(t.name, data.shape)), f"{t.name} does not follow the formula"
        tensors.append(entry)
    return {"keys": keys, "tensors": tensors}


def by_llama_cpp(path: Path, tokens: list[int], context: int, at: list[int]) -> np.ndarray:
    parameters = llama_cpp.llama_model_default_params()
    parameters.n_gpu_layers = 0
    parameters.use_extra_bufts = False
    model = llama_cpp.llama_model_load_from_file(str(path).encode(), parameters)
    assert model, "llama.cpp does not load the file"
    how = llama_cpp.llama_context_default_params()
    how.n_ctx, how.n_threads, how.n_threads_batch, how.flash_attn_type = context, 1, 1, 0
    how.type_k = how.type_v = llama_cpp.GGML_TYPE_F32
    running = llama_cpp.llama_init_from_model(model, how)
    out = {}
    for i, token in enumerate(tokens):
        one = (llama_cpp.llama_token * 1)(token)
        assert llama_cpp.llama_decode(running, llama_cpp.llama_batch_get_one(one, 1)) == 0
        row = ctypes.cast(llama_cpp.llama_get_logits_ith(running, -1), ctypes.POINTER(ctypes.c_float * VOCABULARY))
        if i in at:
            out[i] = np.array(row.contents, dtype=np.float64)
    llama_cpp.llama_free(running)
    llama_cpp.llama_model_free(model)
    return np.array([out[i] for i in at])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("llama", type=Path, help="llama.cpp's source")
    parser.add_argument("out", type=Path)
    parser.add_argument("name", nargs="*", help="a case to make (default: all)")
    args = parser.parse_args()
    kept = {c["name"]: c for c in json.loads(args.out.read_text())["cases"]} if args.name else {}
    sys.path[:0] = [str(args.llama), str(args.llama / "gguf-py")]
    logging.disable(logging.WARNING)
    transformers.logging.set_verbosity_error()
    quiet = llama_cpp.llama_log_callback(lambda *_: None)
    llama_cpp.llama_log_set(quiet, ctypes.c_void_p(0))
    cases = []
    for name, kind, further, count, context in CASES:
        if args.name and name not in args.name:
            if name in kept:
                cases.append(kept[name])
            continue
        model = make_model(kind, further)
        tokens = [int(v) % VOCABULARY for v in numbers("tokens", count)]
        at = [count // 3, count - 1]
        with tempfile.TemporaryDirectory() as scratch:
            file = convert(name, model, Path(scratch))
            about = describe(file)
            theirs = by_llama_cpp(file, tokens, context, at)
        with torch.no_grad():
            exact = logits(name, model, tokens)[at].numpy()
        span = np.ptp(exact, axis=1).min()
        apart = np.abs(theirs - exact).max() / span
        bound = LLAMA_CPP_BOUND.get(name, BOUND)
        print(f"{name:16} logits over {span:.2f}, llama.cpp differs by {apart:.1e} of that")
        assert bound is None or apart <= bound
        rows = lambda a: [[float(f"{v:.8g}") for v in row] for row in a]
        cases.append({"name": name, **about, "tokens": count, "context": context, "at": at, "transformers": rows(exact),
                      "llama.cpp": rows(theirs[-1:])[0] if bound else None, "llama.cpp bound": bound})
    made = {"transformers": transformers.__version__, "torch": version("torch"), "llama-cpp-python": llama_cpp.__version__,
            "llama.cpp": "its source in llama-cpp-python"}
    text = json.dumps({"made with": made, "vocabulary": VOCABULARY, "cases": cases}, separators=(",", ":"))
    for before, after in [('{"name"', '\n{"name"'), ('],["', '],\n["'), (',"tensors"', ',\n"tensors"'),
                          (',"transformers"', ',\n"transformers"'), (',"llama.cpp":', ',\n"llama.cpp":')]:
        text = text.replace(before, after)
    args.out.write_text(text + "\n")


if __name__ == "__main__":
    main()
