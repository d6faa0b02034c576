#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares `tessera` with transformers and tokenizers on folders as downloaded from the Hugging Face hub.

  tools/check_hub_folders.py build/release/bin/tessera               # all families and tokenizers
  tools/check_hub_folders.py build/release/bin/tessera --only Qwen3
  tools/check_hub_folders.py --write tests/data/hub_tokenizers.json  # the tokenizers and ids for tests/hub/

For each family, save_pretrained writes a small model with random weights and a tokenizer in the form of the family's
tokenizer.json, which is trained on the documents of this repository. Greedy tokens of 20 prompts must be equal to those of
transformers in f32, up to near-ties, and the ids of 300 texts must be equal to those of tokenizers. For encoders, the embeddings of 20
texts are compared.
"""
from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import tempfile
import unicodedata
from pathlib import Path

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

ROOT = Path(__file__).resolve().parent.parent
DOCUMENTS = ["README.md", "docs/kernels.md", "docs/arrays.md"]
GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
CASED = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
UPPER, LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"


def llama3(digits: str) -> str:
    return CASED + r"|[^\r\n\p{L}\p{N}]?\p{L}+|" + digits + r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"


TEKKEN = (r"[^\r\n\p{L}\p{N}]?" + UPPER + "*" + LOWER + r"+|[^\r\n\p{L}\p{N}]?" + UPPER + "+" + LOWER +
          r"*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
GPT4O = (r"[^\r\n\p{L}\p{N}]?" + UPPER + "*" + LOWER + "+" + CASED + r"?|[^\r\n\p{L}\p{N}]?" + UPPER + "+" + LOWER + "*" + CASED +
         r"?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
PARTS = [" ", "  ", "    ", "\n", "\n\n", "\r\n", "\t", "the", " The", "quick", " kernel", "HTTP", "CamelCase", "snake_case", "it's", "We'LL", "don't",
         "I'M", "1", "12", "123", "1234567", "3.14", "½", "Ⅷ", "٣٤٥", ",", ".", "?!", "...", "://", "[]{}", "=>", "/*", "`", "é", "naïve", "Straße", "Привет",
         "Ελλάδα", "日本語", "漢字", "。", "한국어", "你好", "مرحبا", "हिन्दी", "👩\u200d👩\u200d👧", "🦊", "\u00a0", "\u3000", "—", "\x1b", "Z", "_", "▁", "<0x41>",
         "<|end|>", " <|end|> ", "<s>", "</s>", "<|user|>\n", "[INST]", "<tool>", "ꙮ", "𝔘"]


def texts(count: int) -> list[str]:
    rng = random.Random(20261129)
    out = ["", " ", "  ", "a", " a", "\n", "Hello, world!", "x = 1234567 + y", "The cat's 3 kittens, aren't they?", " two  spaces ", "日本語のテキスト",
           "x \u00a0<|end|>\u3000 y"]
    while len(out) < count:
        out.append("".join(rng.choice(PARTS) + (" " if rng.random() < 0.3 else "") for _ in range(rng.randrange(1, 14))))
    return out[:count]


def corpus() -> list[str]:
    return [line for name in DOCUMENTS for line in (ROOT / name).read_text(encoding="utf-8").split("\n")]


def byte_level(pattern: str | None, size: int, *, digits=False, whole=False, begin=False, nfc=False) -> Tokenizer:
    """GPT-2's kind. The control tokens follow the vocabulary, as in Llama 3 and Qwen 2."""
    steps = [pre_tokenizers.Digits(individual_digits=True)] if digits else []
    if pattern is not None:
        steps.append(pre_tokenizers.Split(Regex(pattern), "isolated"))
    steps.append(pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=pattern is None))
    tokenizer = Tokenizer(models.BPE(ignore_merges=whole))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(steps)
    if nfc:
        tokenizer.normalizer = normalizers.NFC()
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator(corpus(), trainers.BpeTrainer(
        vocab_size=size - 4, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False))
    tokenizer.add_special_tokens(["<s>", "</s>", AddedToken("<|end|>", special=True, lstrip=digits, rstrip=digits, normalized=False)])
    tokenizer.add_tokens(["<tool>"])
    if begin:
        tokenizer.post_processor = processors.Sequence([processors.ByteLevel(trim_offsets=False), processors.TemplateProcessing(
            single="<s> $A", pair="<s> $A <s>:1 $B:1", special_tokens=[("<s>", tokenizer.token_to_id("<s>"))])])
    return tokenizer


def spaced(kind: str, size: int) -> Tokenizer:
    """SentencePiece's kind: "prepend" as in Llama 2 and Mistral, "first" as in later versions, "never" as in Gemma."""
    fixed = ["<unk>", "<s>", "</s>", "<|end|>", "<|user|>"] + [f"<0x{b:02X}>" for b in range(256)]
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    # The vocabulary is trained with words as pieces. Merges across words are not needed for the comparison.
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(replacement="▁", prepend_scheme="always", split=True)
    tokenizer.train_from_iterator(corpus(), trainers.BpeTrainer(
        vocab_size=size, special_tokens=fixed, show_progress=False, limit_alphabet=90))
    made = json.loads(tokenizer.to_str())
    made["added_tokens"] = []
    tokenizer = Tokenizer.from_str(json.dumps(made))
    tokenizer.pre_tokenizer = None
    tokenizer.add_special_tokens([AddedToken(t, special=True, normalized=False, rstrip=t == "<|user|>") for t in fixed[:5]])
    tokenizer.add_tokens([AddedToken("[INST]", normalized=False)])
    replace = normalizers.Replace(" ", "▁")
    if kind == "prepend":
        tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), replace])
    elif kind == "never":
        tokenizer.normalizer = replace
        tokenizer.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    else:
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(replacement="▁", prepend_scheme=kind, split=False)
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A", pair="<s> $A <s>:1 $B:1", special_tokens=[("<s>", 1)])
    tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    return tokenizer


TOKENIZERS = {
    "llama3": lambda size: byte_level(llama3(r"\p{N}{1,3}"), size, whole=True, begin=True),
    "qwen2": lambda size: byte_level(llama3(r"\p{N}"), size, nfc=True),
    "gpt2": lambda size: byte_level(None, size),
    "smollm": lambda size: byte_level(None, size, digits=True),
    "qwen35": lambda size: byte_level(llama3(r"\p{N}").replace(r"]?\p{L}+", r"]?[\p{L}\p{M}]+").replace(r"[^\s\p{L}\p{N}]", r"[^\s\p{L}\p{M}\p{N}]"),
                                      size, nfc=True),
    "dbrx": lambda size: byte_level(llama3(r"\p{N}{1,3}"), size),
    "gpt4o": lambda size: byte_level(GPT4O, size),
    "tekken": lambda size: byte_level(TEKKEN, size, whole=True, begin=True),
    "llama2": lambda size: spaced("prepend", size),
    "metaspace": lambda size: spaced("first", size),
    "always": lambda size: spaced("always", size),
    "gemma": lambda size: spaced("never", size),
}
SIZES = dict(vocab_size=640, hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
             max_position_embeddings=256, bos_token_id=1, eos_token_id=2, pad_token_id=None, initializer_range=0.3)
LONG = dict(rope_type="longrope", rope_theta=10000.0, short_factor=[1.0, 1.25, 1.5, 2.0, 2.5, 3.0], long_factor=[1.1, 2.5, 6.0, 7.0, 8.0, 9.0])
YARN = dict(rope_type="yarn", rope_theta=1e4, factor=4.0, original_max_position_embeddings=32)
SCALES = dict(embedding_multiplier=2.5, residual_multiplier=0.3, attention_multiplier=0.2, logits_scaling=3.0)
EXPERTS = dict(num_local_experts=4, num_experts=4, num_experts_per_tok=2)
HYBRID = dict(SCALES, mamba_n_heads=8, mamba_d_head=16, layer_types=["full_attention"] * 2, shared_intermediate_size=48)
DELTA = dict(num_hidden_layers=4, head_dim=32, linear_num_key_heads=2, linear_num_value_heads=4, linear_key_head_dim=16, linear_value_head_dim=16)
SECTIONS = dict(rope_type="default", rope_theta=1e4, mrope_section=[3, 3, 2])
SHARED = dict(num_experts=4, num_experts_per_tok=2, moe_intermediate_size=32, shared_expert_intermediate_size=48)
TURNS = ["sliding_attention", "full_attention"]
GEMMA4 = dict(head_dim=32, global_head_dim=64, sliding_window=8, final_logit_softcapping=30.0, hidden_size_per_layer_input=0,
              vocab_size_per_layer_input=640, pad_token_id=0, rope_parameters=None, tie_word_embeddings=False)
OSS = dict(EXPERTS, head_dim=32, sliding_window=8, intermediate_size=64, rope_parameters=dict(YARN, beta_fast=8.0, beta_slow=1.0, truncate=False))
# The columns are class, tokenizer, differences from SIZES, and further differences: bf16, sharded, experts in mxfp4, joined (the
# experts of a layer are stored together), or images (the text part of a model of images).
MODELS = [
    ("Llama", "llama2", {}, ""),
    ("Llama", "llama3", dict(head_dim=32, attention_bias=True, mlp_bias=True, rope_parameters=dict(
        rope_type="llama3", rope_theta=5e3, factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=64)), "sharded"),
    ("Mistral", "metaspace", dict(sliding_window=None), "bf16"),
    ("Ministral3", "tekken", dict(head_dim=32, rope_parameters=dict(YARN, mscale=1.0, mscale_all_dim=1.0, llama_4_scaling_beta=0.5)), ""),
    ("Mistral3", "tekken", dict(model_type="ministral3", head_dim=32, rope_parameters=dict(
        YARN, mscale=1.0, mscale_all_dim=1.0, llama_4_scaling_beta=0.1)), "images"),
    ("Mistral3", "tekken", dict(model_type="mistral", head_dim=32, sliding_window=None), "images"),
    ("Qwen2", "qwen2", dict(tie_word_embeddings=True, rope_parameters=YARN), "sharded"),
    ("Qwen3", "qwen2", dict(head_dim=32), ""),
    ("Qwen3Moe", "qwen2", dict(head_dim=32, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=32, norm_topk_prob=True,
                               mlp_only_layers=[0]), "sharded"),
    ("Qwen2VL", "qwen2", dict(rope_parameters=dict(SECTIONS, mrope_section=[4, 2, 2])), "images"),
    ("Qwen2_5_VL", "qwen2", dict(rope_parameters=dict(SECTIONS, mrope_section=[4, 2, 2]), tie_word_embeddings=True), "images"),
    ("Qwen3VL", "qwen2", dict(head_dim=16, rope_parameters=SECTIONS), "images"),
    ("Qwen3Next", "qwen2", dict(DELTA, **SHARED), "sharded"),
    ("Mixtral", "llama2", dict(num_local_experts=4, num_experts_per_tok=2, intermediate_size=64), ""),
    ("SmolLM3", "smollm", dict(num_hidden_layers=5), ""),
    ("Phi3", "metaspace", dict(partial_rotary_factor=0.75, original_max_position_embeddings=128, rope_parameters=dict(
        LONG, partial_rotary_factor=0.75)), ""),
    ("Gemma", "gemma", dict(head_dim=32, tie_word_embeddings=False), "bf16"),
    ("Gemma2", "gemma", dict(head_dim=32, query_pre_attn_scalar=32, sliding_window=8, tie_word_embeddings=False), ""),
    ("Gemma3", "gemma", dict(head_dim=32, query_pre_attn_scalar=32, sliding_window=8, num_hidden_layers=7, tie_word_embeddings=False, rope_parameters=dict(
        full_attention=dict(rope_type="linear", factor=8.0, rope_theta=1e5), sliding_attention=dict(rope_type="default", rope_theta=1e4))), ""),
    ("Gemma3", "gemma", dict(head_dim=32, query_pre_attn_scalar=32, sliding_window=8), "images"),
    ("Gemma4", "gemma", dict(GEMMA4, num_hidden_layers=4, layer_types=TURNS * 2, num_global_key_value_heads=1, attention_k_eq_v=True), "bf16"),
    ("Gemma4", "gemma", dict(GEMMA4, num_hidden_layers=6, layer_types=TURNS * 3, num_kv_shared_layers=2, use_double_wide_mlp=True,
                             hidden_size_per_layer_input=16), "sharded"),
    ("Gemma4", "gemma", dict(GEMMA4, layer_types=TURNS, enable_moe_block=True, num_experts=4, top_k_experts=2, moe_intermediate_size=32), ""),
    ("Gemma4", "gemma", dict(GEMMA4, layer_types=TURNS, hidden_size_per_layer_input=16, tie_word_embeddings=True), "images"),
    ("Qwen2Moe", "qwen2", dict(num_experts=4, num_experts_per_tok=2, moe_intermediate_size=32, shared_expert_intermediate_size=48), ""),
    ("Granite", "smollm", SCALES, "bf16"),
    ("GraniteMoe", "smollm", dict(SCALES, **EXPERTS, intermediate_size=64), ""),
    ("GraniteMoeShared", "smollm", dict(SCALES, **EXPERTS, intermediate_size=64, shared_intermediate_size=48), "sharded"),
    ("GraniteMoeHybrid", "dbrx", dict(HYBRID, num_local_experts=0, num_experts_per_tok=0, position_embedding_type="rope"), ""),
    ("GraniteMoeHybrid", "dbrx", dict(HYBRID, **EXPERTS, intermediate_size=64), ""),
    ("Olmo2", "dbrx", dict(num_key_value_heads=4), "bf16"),
    ("Olmo3", "dbrx", dict(num_hidden_layers=5, sliding_window=8, rope_parameters=dict(
        full_attention=YARN, sliding_attention=dict(rope_type="default", rope_theta=1e4))), ""),
    ("Olmoe", "gpt2", dict(EXPERTS, num_key_value_heads=4, intermediate_size=64), "sharded"),
    ("Glm", "dbrx", dict(head_dim=16), ""),
    ("Glm4", "dbrx", dict(head_dim=32), "bf16"),
    ("Exaone4", "gpt2", dict(num_hidden_layers=5, sliding_window=8), ""),
    ("Ernie4_5", "llama2", dict(head_dim=32), ""),
    ("Cohere", "smollm", dict(tie_word_embeddings=True, logit_scale=0.3), ""),
    ("Cohere2", "smollm", dict(num_hidden_layers=5, sliding_window=8, tie_word_embeddings=True), ""),
    ("Lfm2", "llama3", dict(num_hidden_layers=4, layer_types=["conv", "full_attention", "conv", "conv"], block_multiple_of=32,
                            tie_word_embeddings=True), ""),
    ("Lfm2Moe", "llama3", dict(num_hidden_layers=4, layer_types=["conv", "full_attention", "conv", "conv"], num_dense_layers=1, num_experts=4,
                               num_experts_per_tok=2, moe_intermediate_size=32, routed_scaling_factor=1.5), ""),
    ("Qwen3_5", "qwen35", dict(DELTA, rope_parameters=dict(SECTIONS, partial_rotary_factor=0.5)), ""),
    ("Qwen3_5", "qwen35", dict(DELTA, rope_parameters=dict(SECTIONS, partial_rotary_factor=0.5), tie_word_embeddings=True), "images"),
    ("Qwen3_5Moe", "qwen35", dict(DELTA, **SHARED, rope_parameters=dict(SECTIONS, partial_rotary_factor=0.5)), "sharded"),
    ("Qwen3_5Moe", "qwen35", dict(DELTA, **SHARED), "joined images"),
    ("GptOss", "gpt4o", OSS, ""),
    ("GptOss", "gpt4o", OSS, "mxfp4"),
]
# Small parts for images, which are not run.
SQUARE = dict(hidden_size=32, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2)
BLOCKS = dict(depth=1, hidden_size=32, intermediate_size=32, num_heads=2, out_hidden_size=64, num_position_embeddings=16)
IMAGES = {"Gemma3": dict(SQUARE, image_size=28), "Mistral3": dict(SQUARE, head_dim=16, image_size=28),
          "Gemma4": dict(SQUARE, num_key_value_heads=2, head_dim=16, position_embedding_size=16),
          "Qwen2VL": dict(depth=1, embed_dim=32, hidden_size=64, num_heads=2), "Qwen2_5_VL": BLOCKS, "Qwen3VL": dict(BLOCKS, deepstack_visual_indexes=[0])}
ENCODERS = ("Bert", "XLMRoberta", "NomicBert")
TEXT_CONFIG = ("Gemma3", "Gemma4", "Qwen3_5", "Qwen3_5Moe")
NEAR_TIE = 1e-4  # a fraction of the range of the logits


def ends_of(tokenizer: Tokenizer) -> list[int]:
    return [2] + [tokenizer.token_to_id(t) for t in ("</s>", "<|end|>")]


def round_to_mxfp4(w):
    """Returns the blocks and factors of a matrix (experts, rows, columns), and their values."""
    import torch

    sizes = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6])
    parts = w.reshape(*w.shape[:-1], -1, 32)
    exponents = torch.ceil(torch.log2(parts.abs().amax(-1) / 6)).clamp(-100, 100)
    scaled = parts / 2.0 ** exponents[..., None]
    index = (scaled.abs()[..., None] - sizes).abs().argmin(-1)
    codes = (index + 8 * (scaled < 0)).to(torch.uint8)
    values = torch.where(scaled < 0, -1.0, 1.0) * sizes[index] * 2.0 ** exponents[..., None]
    return codes[..., 0::2] | codes[..., 1::2] << 4, (exponents + 127).to(torch.uint8), values.reshape(w.shape)


def round_activations(x):
    """Rounds blocks of 32 numbers to 8 bits, as kernels do before they multiply by quantised weights."""
    import torch

    parts = x.reshape(*x.shape[:-1], -1, 32)
    largest = parts.abs().amax(-1, keepdim=True).clamp(min=1e-30)
    return (torch.round(parts * (127 / largest)) * (largest / 127)).reshape(x.shape)


def store_experts_as_mxfp4(folder: Path, model) -> None:
    """Rounds the experts of the model and their inputs, and stores the experts as in the published folders of gpt-oss."""
    import safetensors.torch
    import torch

    file = folder / "model.safetensors"
    tensors = safetensors.torch.load_file(file)
    with torch.no_grad():
        for name, p in model.named_parameters():
            if name.endswith(("gate_up_proj", "down_proj")):
                blocks, factors, values = round_to_mxfp4(p.transpose(1, 2))
                p.copy_(values.transpose(1, 2))
                del tensors[name]
                tensors[name + "_blocks"], tensors[name + "_scales"] = blocks.contiguous(), factors
    safetensors.torch.save_file(tensors, file, metadata={"format": "pt"})
    for layer in model.model.layers:
        experts, gate = layer.mlp.experts, layer.mlp.experts._apply_gate
        experts.register_forward_pre_hook(lambda _, given, named: ((round_activations(given[0]), *given[1:]), named), with_kwargs=True)
        experts._apply_gate = lambda gate_up, gate=gate: round_activations(gate(gate_up))
    config = json.loads((folder / "config.json").read_text())
    config["quantization_config"] = {"quant_method": "mxfp4"}
    (folder / "config.json").write_text(json.dumps(config))


def join_experts(folder: Path) -> None:
    """Stores the experts of each layer as two tensors, as in the published folders of Qwen 3.5."""
    import safetensors.torch
    import torch

    file = folder / "model.safetensors"
    tensors = safetensors.torch.load_file(file)
    for down in [name for name in tensors if name.endswith(".experts.0.down_proj.weight")]:
        stem = down.removesuffix("0.down_proj.weight")
        experts = [[tensors.pop(f"{stem}{e}.{part}_proj.weight") for part in ("gate", "up", "down")] for e in range(4)]
        tensors[stem + "gate_up_proj"] = torch.stack([torch.cat(e[:2]) for e in experts])
        tensors[stem + "down_proj"] = torch.stack([e[2] for e in experts])
    safetensors.torch.save_file(tensors, file, metadata={"format": "pt"})


def make_model(kind: str, further: dict, sees: bool):
    import transformers

    sizes = {**SIZES, **further}
    if not sees:
        config = getattr(transformers, kind + ("TextConfig" if kind in TEXT_CONFIG else "Config"))(**sizes)
        return getattr(transformers, kind + "ForCausalLM")(config).eval()
    config = getattr(transformers, kind + "Config")(text_config=sizes, vision_config=IMAGES.get(kind, BLOCKS),
                                                    tie_word_embeddings=sizes.get("tie_word_embeddings", kind.startswith("Gemma")))
    return getattr(transformers, kind + "ForConditionalGeneration")(config).eval()


def make_folder(folder: Path, kind: str, tokenizer: str, further: dict, how: str):
    import torch
    import transformers

    transformers.utils.logging.disable_progress_bar()
    torch.manual_seed(20261129)
    model = make_model(kind, further, "images" in how)
    with torch.no_grad():
        for name, p in (*model.named_parameters(), *model.named_buffers()):
            if name.endswith((".bias", "norm.weight", "norm_1.weight", "norm_2.weight", "scale", "layer_scalar", "expert_bias")):
                p.add_(torch.randn_like(p) / 4)
    if how == "bf16":
        model = model.to(torch.bfloat16)
    saved = TOKENIZERS[tokenizer](SIZES["vocab_size"] - 8)
    model.generation_config.eos_token_id = ends_of(saved)
    model.save_pretrained(folder, max_shard_size="100KB" if how == "sharded" else "1GB")
    saved.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps({"bos_token": "<s>", "eos_token": {"content": "</s>"}}))
    if "joined" in how:
        join_experts(folder)
    if how == "mxfp4":
        store_experts_as_mxfp4(folder, model)
        return model, saved
    return type(model).from_pretrained(folder, dtype=torch.float32).eval(), saved


def tessera(program: str, *arguments: str, text: str = "") -> str:
    ran = subprocess.run([program, *arguments], input=text.encode(), stdout=subprocess.PIPE, check=True)
    return ran.stdout.decode()


def check_greedy(program: str, folder: Path, model, tokenizer: Tokenizer, prompts: int, count: int) -> bool:
    import torch

    equal = ties = 0
    for prompt in [t for t in texts(100) if t.strip()][:prompts]:
        ids = tokenizer.encode(prompt).ids or [1]
        with torch.no_grad():
            out = model.generate(torch.tensor([ids]), attention_mask=torch.ones(1, len(ids)), max_new_tokens=count, do_sample=False,
                                 return_dict_in_generate=True, output_logits=True, pad_token_id=0)
        want = out.sequences[0, len(ids):].tolist()
        want = want[:next((i for i, t in enumerate(want) if t in ends_of(tokenizer)), len(want))]
        got = [int(v) for v in tessera(program, "generate", str(folder), "--ids", "-p", " ".join(map(str, ids)), "-n", str(count), "--temperature", "0",
                                       "--cache", "f32", "--quiet", "--device", "cpu").split()]
        if got == want:
            equal += 1
            continue
        at = next((i for i, (a, b) in enumerate(zip(got, want)) if a != b), min(len(got), len(want)))
        best = out.logits[at][0].double().sort(descending=True).values if at < len(out.logits) else [1, 0]
        share = float((best[0] - best[1]) / (best[0] - best[-1]))
        ties += share < NEAR_TIE
        print(f"    differs at token {at}, gap {share:.1e} of the range: {got} instead of {want}")
    print(f"  greedy: {equal} of {prompts} equal, {ties} differ after a near-tie")
    return equal + ties == prompts


def check_tokens(program: str, folder: Path, tokenizer: Tokenizer, count: int) -> bool:
    wrong = 0
    decomposed = [unicodedata.normalize("NFD", t) for t in texts(count)] if tokenizer.normalizer else []
    for text in texts(count) + decomposed[:20]:
        want = tokenizer.encode(text).ids
        got = [int(v) for v in tessera(program, "tokenize", str(folder), "-", "--ids", "--special", text=text).split()]
        if got != want:
            wrong += 1
            if wrong <= 5:
                print(f"    {text!r}: {got} instead of {want}")
    print(f"  tokens: {wrong} of {count + len(decomposed[:20])} texts differ")
    return wrong == 0


def word_pieces(size: int) -> Tokenizer:
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.train_from_iterator(corpus(), trainers.WordPieceTrainer(
        vocab_size=size, special_tokens=["[PAD]", "[UNK]", "[CLS]", "[SEP]"], show_progress=False))
    tokenizer.post_processor = processors.TemplateProcessing(single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)])
    return tokenizer


def check_embeddings(program: str, folder: Path, kind: str, count: int) -> bool:
    """Compares the means of the states of texts with those in double precision."""
    import torch
    import transformers

    torch.manual_seed(20261129)
    sizes = dict(vocab_size=640, hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4, pad_token_id=0)
    model = getattr(transformers, kind + "Model")(getattr(transformers, kind + "Config")(**sizes, initializer_range=0.3)).eval()
    model.save_pretrained(folder)
    tokenizer = word_pieces(640)
    tokenizer.save(str(folder / "tokenizer.json"))
    lines = [t for t in texts(300) if t.strip() and t.isprintable()][:count]
    made = tessera(program, "embed", str(folder), "-f", "-", "--pooling", "mean", "--no-normalize", "--json", "--quiet", "--device", "cpu",
                   text="\n".join(lines) + "\n")
    worst = 0.0
    for text, line in zip(lines, made.splitlines(), strict=True):
        with torch.no_grad():
            want = model.double()(torch.tensor([tokenizer.encode(text).ids])).last_hidden_state[0].mean(0)
        got = torch.tensor(json.loads(line)["embedding"], dtype=torch.float64)
        worst = max(worst, float((got - want).abs().max() / want.abs().max()))
    print(f"  embeddings of {len(lines)} texts: differ by at most {worst:.1e} of the largest element")
    return worst < 1e-5


def write_cases(path: Path) -> None:
    cases = []
    for name, size in [("llama3", 300), ("qwen2", 290), ("smollm", 290), ("llama2", 400), ("metaspace", 400), ("always", 400), ("gemma", 400)]:
        tokenizer = TOKENIZERS[name](size)
        cases.append({"name": name, "tokenizer": json.loads(tokenizer.to_str()), "ids": [tokenizer.encode(t).ids for t in texts(40)]})
    body = ",\n".join(json.dumps(c, ensure_ascii=False, separators=(",", ":")) for c in cases)
    path.write_text('{"texts":' + json.dumps(texts(40), ensure_ascii=False, separators=(",", ":")) + ',"cases":[\n' + body + "\n]}\n", encoding="utf-8")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", nargs="?", help="the program tessera")
    parser.add_argument("--write", type=Path, help="only write the tokenizers for the tests to this file")
    parser.add_argument("--only", help="only the families whose class begins with this text")
    parser.add_argument("--prompts", type=int, default=20)
    parser.add_argument("--texts", type=int, default=300)
    parser.add_argument("-n", type=int, default=16, help="tokens for each prompt (default: 16)")
    options = parser.parse_args()
    if options.write:
        write_cases(options.write)
        return 0
    right, checked = True, set()
    for kind, tokenizer, further, how in MODELS:
        if options.only and not kind.startswith(options.only):
            continue
        print(f"{kind}, tokenizer {tokenizer}{', ' + how if how else ''}")
        with tempfile.TemporaryDirectory() as scratch:
            folder = Path(scratch) / kind
            model, saved = make_folder(folder, kind, tokenizer, further, how)
            right &= check_greedy(options.program, folder, model, saved, options.prompts, options.n)
            if tokenizer not in checked:
                checked.add(tokenizer)
                right &= check_tokens(options.program, folder, saved, options.texts)
    for kind in ENCODERS:
        if options.only and not kind.startswith(options.only):
            continue
        print(f"{kind}, tokenizer word pieces")
        with tempfile.TemporaryDirectory() as scratch:
            right &= check_embeddings(options.program, Path(scratch) / kind, kind, options.prompts)
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())
