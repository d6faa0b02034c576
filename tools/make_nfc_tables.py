#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes tessera/llm/nfc_tables.cpp from the Unicode data of this Python, and prints the figures of tests/tokenizer/nfc_test.cpp.

usage: make_nfc_tables.py tessera/llm/nfc_tables.cpp
"""
import sys
import unicodedata
import zlib
from pathlib import Path

CODES = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]
HEAD = """// SPDX-License-Identifier: Apache-2.0
// Made by tools/make_nfc_tables.py from the data of Unicode {version}.
#include "tessera/llm/nfc_tables.h"

// clang-format off
namespace tessera {{

"""


def rows(name: str, kind: str, entries: list[str]) -> str:
    lines = [f"static constexpr {kind} {name}_rows[] = {{\n"]
    for i in range(0, len(entries), 6):
        lines.append(" ".join(entries[i:i + 6]) + "\n")
    return "".join(lines) + f"}};\nconst std::span<const {kind}> {name} = {name}_rows;\n"


def tables() -> str:
    decompositions, classes = [], []
    for code in CODES:
        if (at := unicodedata.combining(chr(code))) != 0:
            if classes and classes[-1][1] == code - 1 and classes[-1][2] == at:
                classes[-1][1] = code
            else:
                classes.append([code, code, at])
        parts = unicodedata.decomposition(chr(code)).split()
        if not parts or parts[0].startswith("<"):
            continue
        first, second = (int(p, 16) for p in (*parts, "0")[:2])
        composes = len(parts) == 2 and unicodedata.normalize("NFC", chr(first) + chr(second)) == chr(code)
        decompositions.append(f"{{0x{code:x},0x{first:x},0x{second:x},{int(composes)}}},")
    return (HEAD.format(version=unicodedata.unidata_version) + rows("nfc_decompositions", "NfcDecomposition", decompositions) +
            rows("nfc_classes", "NfcClass", [f"{{0x{a:x},0x{b:x},{c}}}," for a, b, c in classes]) + "\n}  // namespace tessera\n")


def main() -> None:
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    Path(sys.argv[1]).write_text(tables())
    # All characters, each in a line of its own, and each next to the others, so that they are reordered and combined.
    for text in ("\n".join(map(chr, CODES)), "".join(map(chr, CODES)), "".join(map(chr, reversed(CODES)))):
        print(f"{zlib.crc32(unicodedata.normalize('NFC', text).encode()):#x}")


main()
