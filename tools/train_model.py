#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains the small language model that Tessera ships, and writes it as GGUF files.

The text is collected by corpus.py (the PostgreSQL manual of a Debian package), cut into tokens by bpe.py, learned by a
Llama-architecture model in PyTorch on the CPU, compared with the 3-gram model of ngram.py on held-out pages, and
written by gguf_writer.py in two forms: matrices in Q8_0, and matrices in f16.

The result depends on --seed and --steps, the package's version and the version of PyTorch (and, through rounding, on
--threads and the processor). --minutes only chooses --steps, by measuring the speed of the first steps.

Examples:
  tools/train_model.py --work /tmp/tessera-model --out models --minutes 50
  tools/train_model.py --work /tmp/tessera-model --out models --resume
  tools/train_model.py --work /tmp/tessera-model --text-only     # only writes the text, words and tokenizer
  tools/train_model.py --work /tmp/tessera-model --check models/*.gguf     # trains nothing: what are these worth?
"""
from __future__ import annotations

import argparse
import dataclasses
import hashlib
import json
import math
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

import bpe
import corpus
from gguf_writer import GgufWriter
from ngram import TrigramModel

NAME = "pgdocs-2m"


@dataclasses.dataclass(frozen=True)
class Shape:
    """The model's hyper-parameters. Every matrix row is a multiple of 32 long, as Q8_0 wants."""
    vocabulary: int = 2048
    width: int = 192
    layers: int = 5
    heads: int = 6
    kv_heads: int = 2
    head_size: int = 32
    feed_forward: int = 512
    context: int = 1024
    rope_base: float = 10000.0
    norm_epsilon: float = 1e-5


class Block(nn.Module):
    """One layer: grouped-query attention with rotary embedding of adjacent pairs, then SwiGLU."""

    def __init__(self, shape: Shape, dropout: float) -> None:
        super().__init__()
        self.shape = shape
        s = shape
        self.attn_norm = nn.RMSNorm(s.width, eps=s.norm_epsilon)
        self.qkv = nn.Linear(s.width, (s.heads + 2 * s.kv_heads) * s.head_size, bias=False)
        self.out = nn.Linear(s.heads * s.head_size, s.width, bias=False)
        self.ffn_norm = nn.RMSNorm(s.width, eps=s.norm_epsilon)
        self.gate_up = nn.Linear(s.width, 2 * s.feed_forward, bias=False)
        self.down = nn.Linear(s.feed_forward, s.width, bias=False)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        s = self.shape
        batch, length, _ = x.shape
        heads = self.qkv(self.attn_norm(x)).view(batch, length, -1, s.head_size).transpose(1, 2)
        q, k, v = heads.split([s.heads, s.kv_heads, s.kv_heads], dim=1)

        def rotate(t: torch.Tensor) -> torch.Tensor:
            even, odd = t[..., 0::2], t[..., 1::2]
            return torch.stack((even * cos - odd * sin, even * sin + odd * cos), -1).flatten(-2).to(v.dtype)

        group = s.heads // s.kv_heads
        mixed = F.scaled_dot_product_attention(rotate(q), rotate(k).repeat_interleave(group, 1),
                                               v.repeat_interleave(group, 1), is_causal=True)
        x = x + self.dropout(self.out(mixed.transpose(1, 2).reshape(batch, length, -1)))
        gate, up = self.gate_up(self.ffn_norm(x)).chunk(2, -1)
        return x + self.dropout(self.down(F.silu(gate) * up))


class Model(nn.Module):
    """The Llama architecture with tied embeddings."""

    def __init__(self, shape: Shape, dropout: float) -> None:
        super().__init__()
        self.shape = shape
        self.embedding = nn.Embedding(shape.vocabulary, shape.width)
        self.dropout = nn.Dropout(dropout)
        self.blocks = nn.ModuleList(Block(shape, dropout) for _ in range(shape.layers))
        self.norm = nn.RMSNorm(shape.width, eps=shape.norm_epsilon)
        exponents = torch.arange(0, shape.head_size, 2, dtype=torch.float64) / shape.head_size
        angles = torch.outer(torch.arange(shape.context, dtype=torch.float64), shape.rope_base ** -exponents)
        self.register_buffer("cos", angles.cos().float(), persistent=False)
        self.register_buffer("sin", angles.sin().float(), persistent=False)
        for name, weight in self.named_parameters():
            if weight.dim() == 2:
                deep = name.endswith(("out.weight", "down.weight"))
                nn.init.normal_(weight, std=0.02 / math.sqrt(2 * shape.layers) if deep else
                                0.02 if "embedding" in name else 1 / math.sqrt(weight.shape[1]))

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        """The logits after every position of `ids` [batch, length]."""
        length = ids.shape[1]
        x = self.dropout(self.embedding(ids))
        for block in self.blocks:
            x = block(x, self.cos[:length], self.sin[:length])
        return F.linear(self.norm(x), self.embedding.weight)

    def loss(self, ids: torch.Tensor) -> torch.Tensor:
        """The mean -ln P of ids[:, 1:]."""
        logits = self(ids[:, :-1])
        return F.cross_entropy(logits.float().flatten(0, 1), ids[:, 1:].flatten())


class Data:
    """The two token streams: documents after one another, each behind an end-of-text token."""

    def __init__(self, work: Path, vocabulary: int) -> None:
        folder, self.version = corpus.find_html(work)
        documents = corpus.collect(folder)
        training = [d for d in documents if not d.held_out]
        held_out = [d for d in documents if d.held_out]
        joined = "\n\n".join(d.text for d in training)
        (work / "training.txt").write_text(joined)
        (work / "held-out.txt").write_text("\n\n".join(d.text for d in held_out))
        self.files = "".join(f"{d.name}{' held-out' if d.held_out else ''}\n" for d in documents)
        self.words = sorted(set(corpus.words_of(joined)))
        self.sha256 = hashlib.sha256(joined.encode()).hexdigest()
        self.tokenizer = bpe.train(joined, vocabulary)
        self.training, starts = self._stream(training)
        self.held_out, _ = self._stream(held_out)
        self.starts = np.array(starts)
        self.held_out_bytes = sum(len(d.text.encode()) for d in held_out)
        print(f"text: {corpus.PACKAGE} {self.version}, {len(documents)} pages, training {len(joined)} bytes "
              f"(sha256 {self.sha256[:16]}), held out {len(held_out)} pages, {self.held_out_bytes} bytes")
        print(f"tokens: {vocabulary} kinds, training {len(self.training)} "
              f"({len(joined) / len(self.training):.2f} bytes each), held out {len(self.held_out)}; "
              f"{len(self.words)} different words", flush=True)

    def _stream(self, documents: list[corpus.Document]) -> tuple[list[int], list[int]]:
        """All tokens, and where the paragraphs start."""
        ids: list[int] = []
        starts: list[int] = []
        for document in documents:
            ids.append(self.tokenizer.end_of_text)
            for i, paragraph in enumerate(document.text.split("\n\n")):
                if i:
                    ids += self.tokenizer.encode("\n\n")
                starts.append(len(ids))
                ids += self.tokenizer.encode(paragraph)
        return ids + [self.tokenizer.end_of_text], starts

    def batch(self, seed: int, step: int, count: int, length: int) -> torch.Tensor:
        """`count` windows of length + 1 tokens. A quarter starts at a paragraph, behind an end-of-text token, so that
        the model learns to begin a text."""
        chance = np.random.default_rng([seed, step])
        stream = np.asarray(self.training)
        rows = []
        for i in range(count):
            if i % 4 == 0:
                at = int(chance.choice(self.starts[self.starts + length < len(stream)]))
                rows.append(np.concatenate(([self.tokenizer.end_of_text], stream[at:at + length])))
            else:
                at = int(chance.integers(len(stream) - length))
                rows.append(stream[at:at + length + 1])
        return torch.from_numpy(np.stack(rows))


def held_out_loss(logits_of: Callable[[torch.Tensor], torch.Tensor], tokens: list[int], context: int) -> float:
    """The sum of -ln P over all tokens but the first, where `logits_of` gives a row for each token of a window. Windows
    overlap by half, only the new half is counted, so every token but the first ones has at least half a context before
    it."""
    stream = torch.tensor(tokens)
    nats, done = 0.0, 1
    with torch.no_grad():
        while done < len(tokens):
            start = 0 if done == 1 else done - context // 2
            end = min(start + context, len(tokens) - 1)
            logits = logits_of(stream[start:end])[done - 1 - start:].double()
            nats += F.cross_entropy(logits, stream[done:end + 1], reduction="sum").item()
            done = end + 1
    return nats


def loss_of_model(model: Model, data: Data) -> float:
    model.eval()
    nats = held_out_loss(lambda window: model(window[None])[0], data.held_out, model.shape.context)
    model.train()
    return nats


def loss_of_file(path: Path, data: Data, context: int) -> float:
    """What a GGUF file is worth in llama.cpp, its weights as they are in the file."""
    from check_with_llama_cpp import load  # a package that training does without
    model = load(path, context)

    def logits_of(window: torch.Tensor) -> torch.Tensor:
        model.reset()
        model.eval(window.tolist())
        return torch.from_numpy(model.scores[:len(window)].copy())

    return held_out_loss(logits_of, data.held_out, context)


def sample(model: Model, tokenizer: bpe.Tokenizer, prompt: str, count: int, temperature: float, seed: int) -> str:
    """A continuation of `count` tokens; end-of-text tokens are never chosen."""
    model.eval()
    chance = torch.Generator().manual_seed(seed)
    ids = [tokenizer.end_of_text] + tokenizer.encode(prompt)
    first = len(ids)
    with torch.no_grad():
        for _ in range(count):
            logits = model(torch.tensor([ids[-model.shape.context:]]))[0, -1].double() / temperature
            logits[tokenizer.end_of_text] = -math.inf
            ids.append(int(torch.multinomial(logits.softmax(-1), 1, generator=chance)))
    model.train()
    return tokenizer.decode(ids[first:])


def export(model: Model, data: Data, out: Path) -> dict[str, int]:
    """Writes the Q8_0 and the f16 file; returns their sizes."""
    s = model.shape
    sizes = {}
    for kind, file_type in (("q8_0", 7), ("f16", 1)):
        g = GgufWriter()
        g.add("general.architecture", "str", "llama")
        g.add("general.name", "str", f"Tessera {NAME}")
        g.add("general.description", "str", "A toy model trained on the PostgreSQL manual; writes text that looks like it")
        g.add("general.license", "str", "PostgreSQL")
        g.add("general.size_label", "str", f"{sum(p.numel() for p in model.parameters()) / 1e6:.1f}M")
        g.add("general.file_type", "u32", file_type)
        g.add("general.quantization_version", "u32", 2)
        g.add("llama.vocab_size", "u32", s.vocabulary)
        g.add("llama.context_length", "u32", s.context)
        g.add("llama.embedding_length", "u32", s.width)
        g.add("llama.block_count", "u32", s.layers)
        g.add("llama.feed_forward_length", "u32", s.feed_forward)
        g.add("llama.attention.head_count", "u32", s.heads)
        g.add("llama.attention.head_count_kv", "u32", s.kv_heads)
        g.add("llama.attention.key_length", "u32", s.head_size)
        g.add("llama.attention.value_length", "u32", s.head_size)
        g.add("llama.attention.layer_norm_rms_epsilon", "f32", s.norm_epsilon)
        g.add("llama.rope.dimension_count", "u32", s.head_size)
        g.add("llama.rope.freq_base", "f32", s.rope_base)
        t = data.tokenizer
        g.add("tokenizer.ggml.model", "str", "gpt2")
        g.add("tokenizer.ggml.pre", "str", "gpt-2")
        g.add_array("tokenizer.ggml.tokens", "str", t.tokens)
        g.add_array("tokenizer.ggml.token_type", "i32", [3 if i == t.end_of_text else 1 for i in range(s.vocabulary)])
        g.add_array("tokenizer.ggml.merges", "str", [f"{a} {b}" for a, b in t.merges])
        g.add("tokenizer.ggml.bos_token_id", "u32", t.end_of_text)
        g.add("tokenizer.ggml.eos_token_id", "u32", t.end_of_text)
        g.add("tokenizer.ggml.add_bos_token", "bool", True)

        def tensor(name: str, weight: torch.Tensor) -> None:
            g.add_tensor(name + ".weight", weight.detach().numpy(), kind if weight.dim() == 2 else "f32")

        tensor("token_embd", model.embedding.weight)
        for i, b in enumerate(model.blocks):
            q, k, v = b.qkv.weight.split([s.heads * s.head_size, s.kv_heads * s.head_size, s.kv_heads * s.head_size])
            gate, up = b.gate_up.weight.chunk(2)
            for name, weight in (("attn_norm", b.attn_norm.weight), ("attn_q", q), ("attn_k", k), ("attn_v", v),
                                 ("attn_output", b.out.weight), ("ffn_norm", b.ffn_norm.weight), ("ffn_gate", gate),
                                 ("ffn_up", up), ("ffn_down", b.down.weight)):
                tensor(f"blk.{i}.{name}", weight)
        tensor("output_norm", model.norm.weight)
        path = out / f"{NAME}-{kind}.gguf"
        sizes[path.name] = g.write(path)
    return sizes


def write_words(words: list[str], path: Path) -> None:
    """The words of the training text in lower case, one a line, sorted."""
    path.write_text("".join(w + "\n" for w in words))


def compare(name: str, ours: float, theirs: float, data: Data) -> bool:
    """Prints two sums of nats; whether ours is the better one."""
    for of, nats in ((name, ours), ("3-gram model", theirs)):
        print(f"held out, {of + ':':<12} {nats / (len(data.held_out) - 1):.4f} nats per token, "
              f"{nats / data.held_out_bytes:.4f} nats per byte, {nats / math.log(2) / data.held_out_bytes:.4f} bits per byte")
    print(f"{name} beats the 3-gram model" if ours < theirs else f"{name.upper()} DOES NOT BEAT THE 3-GRAM MODEL", flush=True)
    return ours < theirs


def report(model: Model, data: Data, trigrams: TrigramModel) -> None:
    """Prints the held-out loss of both models and the share of real words in samples."""
    compare("this model", loss_of_model(model, data), trigrams.loss(data.held_out), data)
    known = set(data.words)
    for seed, prompt in enumerate(("The query planner", "A transaction", "If the server", "Note that")):
        text = sample(model, data.tokenizer, prompt, 500, 0.8, seed)
        words = corpus.words_of(prompt + text)
        print(f"words of 500 tokens at temperature 0.8, seed {seed}: "
              f"{100 * sum(w in known for w in words) / len(words):.2f} % of {len(words)} occur in the training text")
        print("  | " + (prompt + text)[:400].replace("\n", "\n  | "), flush=True)


def learning_rate(step: int, steps: int, peak: float, warmup: int) -> float:
    """Linear warm-up, then a cosine down to 2 % of the peak."""
    if step < warmup:
        return peak * (step + 1) / warmup
    progress = min((step - warmup) / max(steps - warmup, 1), 1.0)
    return peak * (0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * progress)))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, required=True, help="folder for the text and the checkpoint")
    parser.add_argument("--out", type=Path, default=Path("models"), help="folder for the GGUF files (default: models)")
    parser.add_argument("--minutes", type=float, default=50, help="time budget; chooses --steps (default: 50)")
    parser.add_argument("--steps", type=int, help="number of steps, for an exact repetition of a run")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--batch", type=int, default=4096, help="tokens per step (default: 4096)")
    parser.add_argument("--learning-rate", type=float, default=3e-3)
    parser.add_argument("--dropout", type=float, default=0.05)
    parser.add_argument("--long-share", type=float, default=0.4,
                        help="share of the steps, the last ones, on windows of the full context (default: 0.4); "
                             "the others use windows of 256 tokens")
    parser.add_argument("--export-minutes", type=float, default=8, help="minutes between two checkpoints (default: 8)")
    parser.add_argument("--resume", action="store_true", help="go on from the checkpoint in --work")
    parser.add_argument("--no-compile", action="store_true", help="do not use torch.compile (which needs a C++ compiler)")
    parser.add_argument("--text-only", action="store_true", help="stop after writing text, words and tokenizer")
    parser.add_argument("--check", type=Path, nargs="+", metavar="FILE",
                        help="train nothing and write nothing but the text: print the held-out loss of these GGUF files in "
                             "llama.cpp, and fail if one does not beat the 3-gram model")
    options = parser.parse_args()

    torch.set_num_threads(options.threads)
    torch.manual_seed(options.seed)
    options.work.mkdir(parents=True, exist_ok=True)
    shape = Shape()
    data = Data(options.work, shape.vocabulary)
    if options.check:
        theirs = TrigramModel(data.training, shape.vocabulary).loss(data.held_out)
        beaten = [compare(path.name, loss_of_file(path, data, shape.context), theirs, data) for path in options.check]
        return 0 if all(beaten) else 1
    options.out.mkdir(parents=True, exist_ok=True)
    write_words(data.words, options.out / "words.txt")
    (options.out / "training-files.txt").write_text(f"# pages of {corpus.PACKAGE} {data.version}\n{data.files}")
    if options.text_only:
        return 0
    trigrams = TrigramModel(data.training, shape.vocabulary)
    theirs = trigrams.loss(data.held_out)
    print(f"3-gram model, held out: {theirs / (len(data.held_out) - 1):.4f} nats per token", flush=True)

    model = Model(shape, options.dropout)
    matrices = [p for p in model.parameters() if p.dim() == 2]
    norms = [p for p in model.parameters() if p.dim() == 1]
    optimizer = torch.optim.AdamW([{"params": matrices, "weight_decay": 0.1}, {"params": norms, "weight_decay": 0.0}],
                                  lr=options.learning_rate, betas=(0.9, 0.95), fused=True)
    print(f"model: {sum(p.numel() for p in model.parameters())} parameters, {dataclasses.asdict(shape)}")
    checkpoint = options.work / "checkpoint.pt"
    step, steps, spent = 0, options.steps, 0.0
    if options.resume and checkpoint.exists():
        state = torch.load(checkpoint, weights_only=True)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        step, spent = state["step"], state["spent"]
        steps = options.steps or state["steps"]
        print(f"resumed at step {step} of {steps}")

    loss_of = model.loss if options.no_compile else torch.compile(model.loss, dynamic=False)
    speeds: list[float] = []
    started = last_export = last_line = time.monotonic()
    recent: list[float] = []

    def save() -> None:
        torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step, "steps": steps,
                    "spent": spent + time.monotonic() - started}, checkpoint.with_suffix(".part"))
        os.replace(checkpoint.with_suffix(".part"), checkpoint)
        sizes = export(model, data, options.out)
        ours = loss_of_model(model, data)
        print(f"step {step}: held out {ours / (len(data.held_out) - 1):.4f} nats per token "
              f"(3-gram model {theirs / (len(data.held_out) - 1):.4f}); wrote {sizes}", flush=True)

    while steps is None or step < steps:
        rate = learning_rate(step, steps or 1000, options.learning_rate, 100)
        for group in optimizer.param_groups:
            group["lr"] = rate
        long = steps is not None and step >= (1 - options.long_share) * steps
        length = shape.context if long else 256
        torch.manual_seed(options.seed * 1_000_003 + step)  # for dropout: a resumed run repeats the unbroken one
        ids = data.batch(options.seed, step, options.batch // length, length)
        begin = time.monotonic()
        with torch.autocast("cpu", torch.bfloat16):
            loss = loss_of(ids)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        now = time.monotonic()
        step += 1
        recent.append(loss.item())
        speeds = (speeds + [options.batch / (now - begin)])[-200:]
        if steps is None and step == 60:
            speed = float(np.median(speeds[20:]))
            left = options.minutes * 60 - (now - started) - 60  # a minute for compiling again and the last report
            steps = max(step + int(0.92 * left * speed / options.batch), 200)
            print(f"{speed:.0f} tokens/s: {steps} steps fit {options.minutes} minutes; repeat with --steps {steps}", flush=True)
        if now - last_line > 20 or step == steps:
            speed = float(np.median(speeds))
            eta = (steps - step) * options.batch / speed / 60 if steps else float("nan")
            print(f"step {step}/{steps}  loss {np.mean(recent):.4f}  rate {rate:.2e}  {speed:.0f} tokens/s  "
                  f"{(now - started + spent) / 60:.1f} min, {eta:.1f} min to go", flush=True)
            last_line, recent = now, []
        if now - last_export > options.export_minutes * 60:
            save()
            last_export = time.monotonic()
    save()
    report(model, data, trigrams)
    (options.work / "run.json").write_text(json.dumps({
        "package": corpus.PACKAGE, "version": data.version, "training_sha256": data.sha256, "steps": steps,
        "seed": options.seed, "torch": torch.__version__, "shape": dataclasses.asdict(shape)}, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
