#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes small embedding models and the embeddings that transformers computes, for tests/embedding/embedding_model_test.cpp.

  tools/make_embedding_cases.py LLAMA tests/data/embeddings.json

LLAMA is the source of llama.cpp. As in make_architecture_cases.py, a formula computes the weights from their names in GGUF
files, and llama.cpp's converter writes the metadata and the shapes. The embeddings are those of transformers in float64, each
text alone, pooled and normalised by sentence-transformers. Requires transformers, sentence-transformers, torch, numpy and
llama-cpp-python.
"""
from __future__ import annotations

import argparse
import json
import logging
import re
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path

import numpy as np
import torch
import transformers
from make_architecture_cases import VOCABULARY, describe, numbers, weights
from safetensors.torch import save_file

SIZES = dict(vocab_size=VOCABULARY, hidden_size=32, intermediate_size=64, num_hidden_layers=3, num_attention_heads=4)
LENGTHS = [5, 1, 40, 16, 17, 64, 100, 2]
# The columns are name, class, differences from SIZES, pooling.
CASES = [
    ("BERT", "Bert", dict(max_position_embeddings=128, pad_token_id=0), "cls"),
    ("XLM-R", "XLMRoberta", dict(max_position_embeddings=130, pad_token_id=1, type_vocab_size=1, layer_norm_eps=1e-5), "mean"),
    ("Nomic Embed", "NomicBert", dict(head_dim=8, max_position_embeddings=2048,
                                      rope_parameters=dict(rope_type="default", rope_theta=1000.0)), "mean"),
    ("Qwen 3 Embedding", "Qwen3", dict(num_key_value_heads=2, head_dim=16, max_position_embeddings=512,
                                       tie_word_embeddings=True,
                                       rope_parameters=dict(rope_type="default", rope_theta=1e6)), "lasttoken"),
]
MODES = {"mean": "mean", "cls": "cls", "lasttoken": "last"}
NAMES = {"embeddings.word_embeddings": "token_embd", "embeddings.position_embeddings": "position_embd",
         "embeddings.token_type_embeddings": "token_types", "embeddings.LayerNorm": "token_embd_norm",
         "attention.self.query": "attn_q", "attention.self.key": "attn_k", "attention.self.value": "attn_v",
         "attention.output.dense": "attn_output", "attention.output.LayerNorm": "attn_output_norm",
         "intermediate.dense": "ffn_up", "output.dense": "ffn_down", "output.LayerNorm": "layer_output_norm",
         "embed_tokens": "token_embd", "norm": "output_norm", "input_layernorm": "attn_norm",
         "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
         "self_attn.o_proj": "attn_output", "self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm",
         "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down",
         "post_mlp_layernorm": "layer_output_norm"}
# The names in the published files of Nomic Embed, which transformers has renamed.
PUBLISHED = {"embeddings.LayerNorm": "emb_ln", "self_attn.o_proj": "attn.out_proj", "mlp.up_proj": "mlp.fc11",
             "mlp.gate_proj": "mlp.fc12", "mlp.down_proj": "mlp.fc2", "post_attention_layernorm": "norm1",
             "post_mlp_layernorm": "norm2"}


def parameter(name: str, kind: str, shape: tuple[int, ...]) -> np.ndarray | None:
    stem, what = name.rsplit(".", 1)
    layer = re.fullmatch(r"(?:encoder\.layer|layers)\.(\d+)\.(.*)", stem)
    part = layer[2] if layer else stem
    if part.startswith("pooler."):
        return None
    prefix = f"blk.{layer[1]}." if layer else ""
    if part == "post_attention_layernorm":
        known = "attn_output_norm" if kind == "NomicBert" else "ffn_norm"
    else:
        known = NAMES[part]
    if kind == "NomicBert" and known in ("attn_q", "attn_k", "attn_v"):
        rows = weights(f"{prefix}attn_qkv.weight", (3 * shape[0], shape[1]))
        return np.split(rows, 3)[("attn_q", "attn_k", "attn_v").index(known)]
    if kind == "XLMRoberta" and known == "position_embd":  # the converter removes the positions of padding
        return np.concatenate([np.zeros((2, shape[1]), np.float32), weights("position_embd.weight", (shape[0] - 2, shape[1]))])
    return weights(f"{prefix}{known}.{what}", shape)


def make_model(kind: str, further: dict) -> torch.nn.Module:
    config = getattr(transformers, kind + "Config")(**{**SIZES, **further})
    config._attn_implementation = "eager"
    config.architectures = [kind + "Model"]
    model = getattr(transformers, kind + "Model")(config).eval()
    with torch.no_grad():
        for name, p in model.named_parameters():
            w = parameter(name, kind, tuple(p.shape))
            if w is not None:
                p.copy_(torch.from_numpy(np.ascontiguousarray(w)))
    return model


def save_nomic(model: torch.nn.Module, folder: Path) -> None:
    c = model.config
    state, out = model.state_dict(), {}
    for name, value in state.items():
        layer = re.fullmatch(r"layers\.(\d+)\.(.*)\.(\w+)", name)
        stem, what = (layer[2], layer[3]) if layer else name.rsplit(".", 1)
        prefix = f"encoder.layers.{layer[1]}." if layer else ""
        if stem in ("self_attn.k_proj", "self_attn.v_proj"):
            continue
        if stem == "self_attn.q_proj":
            stem = "attn.Wqkv"
            value = torch.cat([state[f"layers.{layer[1]}.self_attn.{p}_proj.weight"] for p in "qkv"])
        out[f"{prefix}{PUBLISHED.get(stem, stem)}.{what}"] = value.contiguous()
    save_file(out, folder / "model.safetensors", metadata={"format": "pt"})
    config = c.to_dict() | dict(architectures=["NomicBertModel"], model_type="nomic_bert", vocab_size=c.vocab_size, n_embd=c.hidden_size,
                  n_inner=c.intermediate_size, n_head=c.num_attention_heads, n_layer=c.num_hidden_layers, n_positions=8192,
                  max_trained_positions=2048, rotary_emb_base=c.rope_parameters["rope_theta"], type_vocab_size=2,
                  activation_function="swiglu", causal=False, qkv_proj_bias=False, mlp_fc1_bias=False, mlp_fc2_bias=False,
                  prenorm=False, rotary_emb_fraction=1.0, rotary_emb_interleaved=False, rotary_emb_scale_base=None,
                  layer_norm_epsilon=c.layer_norm_eps)
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "tokenizer.json").write_text(json.dumps({"model": {"type": "WordPiece"}}))


def convert(kind: str, model: torch.nn.Module, pooling: str, folder: Path) -> Path:
    import gguf
    from conversion import get_model_class

    if kind == "NomicBert":
        save_nomic(model, folder)
    else:
        model.save_pretrained(folder)
    (folder / "modules.json").write_text(json.dumps([{"type": "sentence_transformers.models.Pooling", "path": "1_Pooling"}]))
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling" / "config.json").write_text(json.dumps({"pooling_mode": pooling}))
    base = get_model_class("Qwen3ForCausalLM" if kind == "Qwen3" else kind + "Model")

    class WithoutVocabulary(base):
        model_arch = base.model_arch

        def set_vocab(self):
            self.gguf_writer.add_tokenizer_model("no_vocab")

    out = folder / "model.gguf"
    WithoutVocabulary(folder, gguf.LlamaFileType.ALL_F32, out, model_name="tiny").write()
    return out


def texts() -> list[list[int]]:
    """The first ids belong to special tokens, such as the padding, whose positions transformers does not count."""
    return [[int(v) % (VOCABULARY - 4) + 4 for v in numbers(f"text {i}", n)] for i, n in enumerate(LENGTHS)]


def main() -> None:
    from sentence_transformers.sentence_transformer.modules import Pooling

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("llama", type=Path, help="llama.cpp's source")
    parser.add_argument("out", type=Path)
    args = parser.parse_args()
    sys.path[:0] = [str(args.llama), str(args.llama / "gguf-py")]
    logging.disable(logging.WARNING)
    transformers.logging.set_verbosity_error()
    cases = []
    for name, kind, further, pooling in CASES:
        model = make_model(kind, further)
        with tempfile.TemporaryDirectory() as scratch:
            about = describe(convert(kind, model, pooling, Path(scratch)))
        model = model.double()
        embeddings = {}
        for mode in MODES:
            pool = Pooling(SIZES["hidden_size"], pooling_mode=mode)
            rows = []
            for text in texts():
                with torch.no_grad():
                    states = model(input_ids=torch.tensor([text])).last_hidden_state
                pooled = pool({"token_embeddings": states, "attention_mask": torch.ones(1, len(text), dtype=torch.long)})
                row = torch.nn.functional.normalize(pooled["sentence_embedding"], dim=1)[0]
                rows.append([float(f"{v:.8g}") for v in row])
            embeddings[MODES[mode]] = rows
        cases.append({"name": name, **about, "pooling": MODES[pooling], "embeddings": embeddings})
        print(f"{name}: {about['keys'][0][2]}")
    made = {n: version(n) for n in ("transformers", "sentence-transformers", "torch")}
    text = json.dumps({"made with": made, "vocabulary": VOCABULARY, "lengths": LENGTHS, "cases": cases}, separators=(",", ":"))
    for before in ('{"name"', '"tensors"', '"pooling":', '"mean":', '"cls":', '"last":'):
        text = text.replace(before, "\n" + before)
    args.out.write_text(text + "\n")


if __name__ == "__main__":
    main()
