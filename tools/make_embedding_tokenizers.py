#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes tests/data/embedding_tokenizers.json: small WordPiece and Unigram vocabularies, and texts tokenized by other tokenizers.

usage: make_embedding_tokenizers.py tests/data/embedding_tokenizers.json

WordPiece is trained and applied by Hugging Face's `tokenizers`, with the normalizer and the pre-tokenizer of BERT. Unigram is
trained and applied by `sentencepiece`; this script also applies it with `tokenizers`, as XLM-R's fast tokenizer does, and
prints how many texts differ (that normalizer does not replace parts of a grapheme). The texts are those of
tests/data/tokenizer_cases.json, and more. Tokens are stored as the CRC-32 of their ids, joined by blanks. Requires
`tokenizers`, `sentencepiece` and `protobuf` (tools/requirements.txt).
"""
import base64
import io
import json
import pathlib
import random
import sys
import tempfile
import zlib

import sentencepiece
from sentencepiece import sentencepiece_model_pb2
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

LONG = "".join(chr(97 + (7 * i + i * i // 5) % 26) for i in range(101))  # WordPiece knows no words of more than 100 characters
PARTS = ["the", "The", "QUICK", "brown", "fox", "it's", "co-operate", "naïve", "Straße", "ÀÉÎ", "e\u0301", "İstanbul", "ΣΊΣΥΦΟΣ",
         "Ёлка", "Київ", "ﬁnal", "ﬂow", "Ａｂｃ", "１２", "ｶﾞ", "ガ", "①", "㎏", "½", "…", "日本語", "漢字", "中文", "豈", "한국어", "가",
         "हिन्दी", "ไทย", "مرحبا", "שָׁלוֹם", "₤5", "3.14", "x=y+z", "a_b", "$", "€", "^", "`", "~", "|", "<tag>", "©", "→", "🦊", "🇨🇭",
         "\u00a0", "\u3000", "\u200b", "\u00ad", "\ufeff", "\x01", "\x7f", "\t", "\n", "  ", "Ⓐ", "ʼn", "Ǆ", "ß", "𝔘", "ꙮ",
         LONG[:99], LONG[:100], LONG, "unaffable", "embeddings"]
RULES = {"ﬁ": "fi", "ﬂ": "fl", "Ａ": "A", "ｂ": "b", "ｃ": "c", "１": "1", "２": "2", "ｶﾞ": "ガ", "ｶ": "カ", "①": "1", "㎏": "kg",
         "½": "1/2", "…": "...", "\u00a0": " ", "\u3000": " ", "\t": " ", "\n": " ", "\u200b": " ", "\u00ad": "", "\ufeff": "",
         "\x01": "", "\x7f": "", "e\u0301": "é", "Ⓐ": "A"}


def texts(root):
    rng = random.Random(20261130)
    out = json.loads((root / "tests/data/tokenizer_cases.json").read_text(encoding="utf-8"))["texts"]
    while len(out) < 600:
        out.append("".join(rng.choice(PARTS) + (" " if rng.random() < 0.5 else "") for _ in range(rng.randrange(1, 12))))
    return out


def crc(ids):
    return zlib.crc32(" ".join(map(str, ids)).encode())


def word_piece(corpus, given, lowercase, strips):
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=lowercase, strip_accents=strips)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    corpus = [t.replace("\u2581", "") for t in corpus]  # in GGUF files, it is the mark of words
    tokenizer.train_from_iterator(corpus, trainers.WordPieceTrainer(vocab_size=1200, special_tokens=special, show_progress=False))
    vocabulary = tokenizer.get_vocab()
    plain = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))  # without parsing "[CLS]" in texts
    plain.normalizer, plain.pre_tokenizer = tokenizer.normalizer, tokenizer.pre_tokenizer
    plain.decoder = decoders.WordPiece(cleanup=False)
    tokens = sorted(vocabulary, key=vocabulary.get)
    as_gguf = [t if t in special else t[2:] if t.startswith("##") else "\u2581" + t for t in tokens]
    return {"lowercase": lowercase, "strip_accents": strips, "tokens": as_gguf, "types": [3 if t in special else 1 for t in tokens],
            "ids": [crc(plain.encode(t).ids) for t in given]}


def unigram(corpus, given, spaces):
    file = io.BytesIO()
    rules = tempfile.NamedTemporaryFile("w", suffix=".tsv", encoding="utf-8")
    rules.write("".join(f"{' '.join(f'{ord(c):X}' for c in a)}\t{' '.join(f'{ord(c):X}' for c in b)}\n"
                             for a, b in RULES.items()))
    rules.flush()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(corpus), model_writer=file, vocab_size=1000, model_type="unigram", normalization_rule_tsv=rules.name,
        remove_extra_whitespaces=spaces, add_dummy_prefix=spaces, character_coverage=0.98, bos_id=0, pad_id=1, eos_id=2, unk_id=3,
        minloglevel=2)
    sp = sentencepiece.SentencePieceProcessor(model_proto=file.getvalue())
    proto = sentencepiece_model_pb2.ModelProto()
    proto.ParseFromString(file.getvalue())
    count = sp.vocab_size()
    tokens, scores = [sp.id_to_piece(i) for i in range(count)], [sp.get_score(i) for i in range(count)]
    charsmap = proto.normalizer_spec.precompiled_charsmap
    ids = [sp.encode(t) for t in given]
    if spaces:
        fast = Tokenizer(models.Unigram(list(zip(tokens, scores)), unk_id=3, byte_fallback=False))
        fast.normalizer = normalizers.Sequence([normalizers.Precompiled(charsmap), normalizers.Replace(" {2,}", " ")])
        fast.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()])
        differ = [t for t, i in zip(given, ids) if fast.encode(t, add_special_tokens=False).ids != i]
        print(f"{len(differ)} of {len(given)} texts differ in tokenizers, such as {differ[:3]}")
    kinds = [2 if sp.is_unknown(i) else 3 if sp.is_control(i) else 1 for i in range(count)]
    return {"spaces": spaces, "tokens": tokens, "scores": scores, "types": kinds,
            "charsmap": base64.b64encode(charsmap).decode(), "ids": [crc(i) for i in ids]}


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    root = pathlib.Path(__file__).resolve().parent.parent
    given = texts(root)
    rng = random.Random(1)
    corpus = [line for line in (root / "docs/arrays.md").read_text(encoding="utf-8").split("\n")] + given[:450]
    rng.shuffle(corpus)
    corpus = [t.replace("\x00", "") for t in corpus]
    out = {"texts": given[300:], "bert": [word_piece(corpus, given, True, None), word_piece(corpus, given, False, False),
                                         word_piece(corpus, given, True, False)],
           "t5": [unigram(corpus, given, True), unigram(corpus, given, False)]}
    with open(sys.argv[1], "w", encoding="utf-8") as file:
        json.dump(out, file, ensure_ascii=False, separators=(",", ":"))
        file.write("\n")


main()
