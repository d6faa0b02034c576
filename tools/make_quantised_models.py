#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes small random models quantised by llama-quantize, and llama.cpp's logits for them, for tests/ops/weight_formats_test.cpp.

  LLAMA_CPP_LIB_PATH=LLAMA/build/bin tools/make_quantised_models.py LLAMA/build/bin/llama-quantize tests/data

writes tests/data/quantised-NAME.gguf and tests/data/quantised-logits.json. Requires gguf, numpy and llama-cpp-python. The K
types require rows of at least 256 elements. With rows of 32 elements, llama-quantize uses other types instead.
"""
from __future__ import annotations

import argparse
import ctypes
import json
import subprocess
import tempfile
from pathlib import Path

import gguf
import llama_cpp
import numpy as np

WIDTH, HEAD, HIDDEN, VOCABULARY = 256, 16, 32, 32
# The name, the type for llama-quantize, and further arguments. "all" has a matrix of each type.
MODELS = [
    ("q4_0", "Q4_0", []),
    ("q4_k_m", "Q4_K_M", []),
    ("all", "Q4_K_M", ["--token-embedding-type", "q4_0", "--tensor-type", "attn_q=q4_k", "--tensor-type", "attn_k=q5_k",
                       "--tensor-type", "attn_v=q6_k", "--tensor-type", "attn_output=q5_0", "--tensor-type", "ffn_gate=q4_1",
                       "--tensor-type", "ffn_up=q5_1", "--tensor-type", "ffn_down=iq4_nl"]),
]
TOKENS = [(7 * i + 3) % VOCABULARY for i in range(12)]


def write_f32(path: Path) -> None:
    random = np.random.default_rng(22)
    w = gguf.GGUFWriter(str(path), "llama")
    w.add_context_length(64)
    w.add_embedding_length(WIDTH)
    w.add_block_count(1)
    w.add_feed_forward_length(HIDDEN)
    w.add_head_count(2)
    w.add_head_count_kv(1)
    w.add_key_length(HEAD)
    w.add_value_length(HEAD)
    w.add_rope_dimension_count(HEAD)
    w.add_layer_norm_rms_eps(1e-5)
    w.add_vocab_size(VOCABULARY)
    w.add_tokenizer_model("gpt2")
    w.add_tokenizer_pre("gpt-2")
    w.add_token_list([chr(97 + i) if i < 26 else chr(39 + i) for i in range(VOCABULARY)])
    w.add_token_types([1] * VOCABULARY)
    w.add_token_merges(["a b"])

    def matrix(name: str, rows: int, columns: int, gain: float = 0.5) -> None:
        w.add_tensor(name, (random.standard_normal((rows, columns)) * gain / np.sqrt(columns)).astype(np.float32))

    def vector(name: str) -> None:
        w.add_tensor(name, random.uniform(0.8, 1.2, WIDTH).astype(np.float32))

    matrix("token_embd.weight", VOCABULARY, WIDTH, 1)
    vector("blk.0.attn_norm.weight")
    matrix("blk.0.attn_q.weight", 2 * HEAD, WIDTH)
    matrix("blk.0.attn_k.weight", HEAD, WIDTH)
    matrix("blk.0.attn_v.weight", HEAD, WIDTH)
    matrix("blk.0.attn_output.weight", WIDTH, 2 * HEAD)
    vector("blk.0.ffn_norm.weight")
    matrix("blk.0.ffn_gate.weight", HIDDEN, WIDTH)
    matrix("blk.0.ffn_up.weight", HIDDEN, WIDTH)
    matrix("blk.0.ffn_down.weight", WIDTH, HIDDEN)
    vector("output_norm.weight")
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


def logits(path: Path) -> np.ndarray:
    """Returns the logits of all tokens, with f32 caches."""
    parameters = llama_cpp.llama_model_default_params()
    parameters.n_gpu_layers = 0
    parameters.use_extra_bufts = False
    model = llama_cpp.llama_model_load_from_file(str(path).encode(), parameters)
    how = llama_cpp.llama_context_default_params()
    how.n_ctx, how.n_threads, how.n_threads_batch = 64, 1, 1
    how.type_k = how.type_v = llama_cpp.GGML_TYPE_F32
    context = llama_cpp.llama_init_from_model(model, how)
    out = []
    for token in TOKENS:
        one = (llama_cpp.llama_token * 1)(token)
        assert llama_cpp.llama_decode(context, llama_cpp.llama_batch_get_one(one, 1)) == 0
        row = ctypes.cast(llama_cpp.llama_get_logits_ith(context, -1), ctypes.POINTER(ctypes.c_float * VOCABULARY))
        out.append(np.array(row.contents, dtype=np.float64))
    llama_cpp.llama_free(context)
    llama_cpp.llama_model_free(model)
    return np.array(out)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("quantize", type=Path, help="llama.cpp's llama-quantize")
    parser.add_argument("folder", type=Path, help="folder for the files")
    args = parser.parse_args()
    cases = []
    with tempfile.TemporaryDirectory() as scratch:
        whole = Path(scratch) / "f32.gguf"
        write_f32(whole)
        for name, kind, further in MODELS:
            file = args.folder / f"quantised-{name}.gguf"
            subprocess.run([args.quantize, *further, whole, file, kind, "1"], check=True, stdout=subprocess.DEVNULL,
                           stderr=subprocess.DEVNULL)
            types = {t.name: t.tensor_type.name for t in gguf.GGUFReader(file).tensors}
            print(file, file.stat().st_size, types)
            cases.append({"file": file.name, "types": sorted(set(types.values())),
                          "logits": [[round(float(v), 6) for v in row] for row in logits(file)]})
    figures = {"llama-cpp-python": llama_cpp.__version__, "gguf": __import__("importlib.metadata").metadata.version("gguf"),
               "tokens": TOKENS, "models": cases}
    text = json.dumps(figures, separators=(",", ":")).replace('{"file"', '\n{"file"').replace("],[", "],\n[")
    (args.folder / "quantised-logits.json").write_text(text + "\n")


if __name__ == "__main__":
    main()
