#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes tests/data/tokenizer_cases.json: two small vocabularies, and 300 texts tokenized with them by reference tokenizers.

usage: make_tokenizer_cases.py tests/data/tokenizer_cases.json

Byte-level BPE uses Hugging Face's `tokenizers`, with the regular expressions from the tokenizer.json of each family. The
"llama" vocabulary is trained and applied by `sentencepiece`. The tokens of a text are stored as the CRC-32 of their ids,
joined by blanks. Requires `tokenizers` and `sentencepiece` (tools/requirements.txt).
"""
import io
import json
import pathlib
import random
import sys
import zlib

import sentencepiece
from tokenizers import Regex, Tokenizer, models, pre_tokenizers, trainers

CONTRACTIONS = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
UPPER, LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"


def llama3(digits):
    return (CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|" + digits +
            r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")


def o200k(suffix, digits):
    return (r"[^\r\n\p{L}\p{N}]?" + UPPER + "*" + LOWER + "+" + suffix + r"|[^\r\n\p{L}\p{N}]?" + UPPER + "+" + LOWER +
            "*" + suffix + "|" + digits + r"| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")


FAMILIES = {
    "gpt-2": [GPT2],
    "llama-bpe": [llama3(r"\p{N}{1,3}")],
    "qwen2": [llama3(r"\p{N}")],
    "qwen35": [llama3(r"\p{N}").replace(r"]?\p{L}+", r"]?[\p{L}\p{M}]+").replace(r"[^\s\p{L}\p{N}]", r"[^\s\p{L}\p{M}\p{N}]")],
    "tekken": [o200k("", r"\p{N}")],
    "gpt-4o": [o200k(CONTRACTIONS + "?", r"\p{N}{1,3}")],
    "smollm": [r"\p{N}", GPT2],
    "deepseek-coder": [r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", "[一-龥ࠀ-一가-\ud7ff]+", r"\p{N}"],
    "deepseek-v3": [r"\p{N}{1,3}", "[一-龥\u3040-ゟ゠-ヿ]+",
                    r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*"""
                    r"""|\s*[\r\n]+|\s+(?!\S)|\s+"""],
}
PARTS = [" ", "  ", "    ", "\n", "\n\n", "\r\n", "\t", " \n ", "the", " The", "quick", " brown", "fox", "HTTP", "CamelCase", "snake_case", "ALLCAPSthen",
         "it's", "We'LL", "don't", "I'M", "'s", " 's", "1", "12", "123", "1234567", "3.14", "-2e10", "½", "Ⅷ", "²", "٣٤٥", ",", ".", "!", "?!", "...", "://", "()", "[]{}", "=>",
         "+=", "/*", "*/", "//", "\\n", "$", "€", "`", "~", "^", "|", "é", "e\u0301", "naïve", "Straße", "ÀÉÎ", "Ünïted", "ёж", "Привет", "мир", "Ελλάδα", "日本語", "のテキスト", "漢字", "、", "。", "カタカナ",
         "한국어", "中文", "你好", "مرحبا", "שלום", "हिन्दी", "ไทย", "👩\u200d👩\u200d👧", "🦊", "🇨🇭", "\u00a0", "\u3000", "\u200b", "‘x’", "—", "«»", "\x00", "\x1b", "a", "Z", "_", "<s>", "<0x41>", "▁", "▁▁"]
DOCUMENTS = ["README.md", "docs/kernels.md", "docs/arrays.md"]
UNTRAINED = ["ÿ", "ꙮ", "𝔘", "\u0378", "ƻ", "ʔ"]


def texts():
    rng = random.Random(20261123)
    out = ["", " ", "  ", "a", " a", "\n", "Hello, world!", "x = 1234567 + y", "The cat's 3 kittens, aren't they?", "日本語のテキスト、漢字。"]
    while len(out) < 300:
        out.append("".join(rng.choice(UNTRAINED if rng.random() < 0.02 else PARTS) + (" " if rng.random() < 0.3 else "")
                           for _ in range(rng.randrange(1, 14))))
    return out


def crc(ids):
    return zlib.crc32(" ".join(map(str, ids)).encode())


def byte_level(corpus):
    def with_pieces(tokenizer, patterns):
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
            [pre_tokenizers.Split(Regex(p), "isolated") for p in patterns] +
            [pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
        return tokenizer

    trained = with_pieces(Tokenizer(models.BPE()), FAMILIES["llama-bpe"])
    trained.train_from_iterator(corpus, trainers.BpeTrainer(
        vocab_size=700, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False))
    model = json.loads(trained.to_str())["model"]
    out = {"tokens": sorted(model["vocab"], key=model["vocab"].get), "merges": [" ".join(m) for m in model["merges"]],
           "families": {}}
    for name, patterns in FAMILIES.items():
        whole = name in ("llama-bpe", "tekken")
        tokenizer = with_pieces(Tokenizer(models.BPE(vocab=model["vocab"], merges=[tuple(m) for m in model["merges"]],
                                                     ignore_merges=whole)), patterns)
        out["families"][name] = [crc(tokenizer.encode(t).ids) for t in texts()]
    return out


def sentence_piece(corpus, prefix):
    file = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(corpus), model_writer=file, vocab_size=800, model_type="bpe", byte_fallback=True,
        normalization_rule_name="identity", remove_extra_whitespaces=False, add_dummy_prefix=prefix, character_coverage=0.98,
        user_defined_symbols=["<tool>", "[INST]"], split_digits=True, allow_whitespace_only_pieces=True, minloglevel=2)
    sp = sentencepiece.SentencePieceProcessor(model_proto=file.getvalue())
    kinds = [2 if sp.is_unknown(i) else 3 if sp.is_control(i) else 6 if sp.is_byte(i) else
             4 if sp.id_to_piece(i) in ("<tool>", "[INST]") else 1 for i in range(sp.vocab_size())]
    return {"add_space_prefix": prefix, "tokens": [sp.id_to_piece(i) for i in range(sp.vocab_size())],
            "scores": [sp.get_score(i) for i in range(sp.vocab_size())], "types": kinds,
            "ids": [crc(sp.encode(t)) for t in texts()], "decoded": [sp.decode(sp.encode(t)) for t in texts()]}


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    root = pathlib.Path(__file__).resolve().parent.parent
    corpus = [line for name in DOCUMENTS for line in (root / name).read_text(encoding="utf-8").split("\n")]
    rng = random.Random(1)
    corpus += ["".join(rng.choice(PARTS) for _ in range(12)).replace("\x00", "") for _ in range(2000)]
    out = {"texts": texts(), "gpt2": byte_level(corpus), "llama": [sentence_piece(corpus, True), sentence_piece(corpus, False)]}
    with open(sys.argv[1], "w", encoding="utf-8") as file:
        json.dump(out, file, ensure_ascii=False, separators=(",", ":"))
        file.write("\n")


main()
