# SPDX-License-Identifier: Apache-2.0
"""Byte-level byte-pair encoding as GPT-2 does it: training, encoding, decoding.

Text is cut into pieces by GPT-2's expression; inside a piece, bytes are joined pair by pair in the order in which the
pairs were learned. Each byte is written as one printable character (`BYTE_TO_CHAR`), the form that GGUF files use.
"""
from __future__ import annotations

import collections
from dataclasses import dataclass, field

import regex

PIECES = regex.compile(r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+")
END_OF_TEXT = "<|endoftext|>"


def _byte_to_char() -> list[str]:
    """GPT-2's table: printable Latin-1 bytes stand for themselves, the others for code points from 256 on."""
    printable = set(range(0x21, 0x7F)) | set(range(0xA1, 0xAD)) | set(range(0xAE, 0x100))
    table, spare = [], 256
    for byte in range(256):
        if byte in printable:
            table.append(chr(byte))
        else:
            table.append(chr(spare))
            spare += 1
    return table


BYTE_TO_CHAR = _byte_to_char()
CHAR_TO_BYTE = {c: b for b, c in enumerate(BYTE_TO_CHAR)}


def _joined(symbols: tuple[str, ...], left: str, right: str) -> tuple[str, ...]:
    """`symbols` with each adjacent `left right` joined, from the left."""
    out: list[str] = []
    i = 0
    while i < len(symbols):
        if i + 1 < len(symbols) and symbols[i] == left and symbols[i + 1] == right:
            out.append(left + right)
            i += 2
        else:
            out.append(symbols[i])
            i += 1
    return tuple(out)


@dataclass
class Tokenizer:
    """The vocabulary (256 bytes, then one token per merge, then `<|endoftext|>`) and the merges in order."""
    merges: list[tuple[str, str]]
    _cache: dict[str, list[int]] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        self.tokens = list(BYTE_TO_CHAR) + [a + b for a, b in self.merges] + [END_OF_TEXT]
        self.end_of_text = len(self.tokens) - 1
        self._ids = {t: i for i, t in enumerate(self.tokens)}
        self._ranks = {m: i for i, m in enumerate(self.merges)}
        if len(self._ids) != len(self.tokens):
            raise ValueError("two merges make the same token")

    def encode(self, text: str) -> list[int]:
        """The token ids of a text, without begin or end tokens."""
        ids: list[int] = []
        for piece in PIECES.findall(text):
            known = self._cache.get(piece)
            if known is None:
                known = self._cache[piece] = self._encode_piece(piece)
            ids += known
        return ids

    def _encode_piece(self, piece: str) -> list[int]:
        symbols = tuple(BYTE_TO_CHAR[b] for b in piece.encode())
        while len(symbols) > 1:
            best = min(zip(symbols, symbols[1:]), key=lambda pair: self._ranks.get(pair, len(self._ranks)))
            if best not in self._ranks:
                break
            symbols = _joined(symbols, *best)
        return [self._ids[s] for s in symbols]

    def decode(self, ids: list[int]) -> str:
        """The text of token ids; `<|endoftext|>` reads as nothing, broken UTF-8 as replacement characters."""
        chars = "".join(self.tokens[i] for i in ids if i != self.end_of_text)
        return bytes(CHAR_TO_BYTE[c] for c in chars).decode("utf-8", errors="replace")


def train(text: str, vocabulary: int) -> Tokenizer:
    """Learns merges from `text` until there are `vocabulary` tokens. Ties go to the alphabetically first pair."""
    words = [(tuple(BYTE_TO_CHAR[b] for b in piece.encode()), n)
             for piece, n in sorted(collections.Counter(PIECES.findall(text)).items())]
    symbols = [w for w, _ in words]
    counts = [n for _, n in words]
    pairs: collections.Counter[tuple[str, str]] = collections.Counter()
    places: dict[tuple[str, str], set[int]] = collections.defaultdict(set)
    for i, word in enumerate(symbols):
        for pair in zip(word, word[1:]):
            pairs[pair] += counts[i]
            places[pair].add(i)

    merges: list[tuple[str, str]] = []
    made = set(BYTE_TO_CHAR)
    while len(merges) < vocabulary - 257:
        candidates = [p for p, n in pairs.items() if n > 1 and p[0] + p[1] not in made]
        if not candidates:
            raise ValueError(f"the text is too small for {vocabulary} tokens")
        best = min(candidates, key=lambda p: (-pairs[p], p))
        merges.append(best)
        made.add(best[0] + best[1])
        for i in sorted(places.pop(best)):
            word = symbols[i]
            for pair in zip(word, word[1:]):
                pairs[pair] -= counts[i]
            symbols[i] = word = _joined(word, *best)
            for pair in zip(word, word[1:]):
                pairs[pair] += counts[i]
                places[pair].add(i)
        pairs = +pairs
    return Tokenizer(merges)
