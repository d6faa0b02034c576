#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes a text for training a small language model: the prose of the PostgreSQL manual in Debian's package.

usage: tools/corpus.py --work FOLDER [--words FILE] TEXT

Uses the installed package, or downloads it into FOLDER. TEXT is the input of `tessera train lm`. With --words, also writes
the distinct words, one per line, for tools/check_words.py.

The manual is written in good English. Its licence, the PostgreSQL licence, permits anyone to use, copy, modify and distribute
"this software and its documentation". The Debian package is `postgresql-doc-15`.

A model with two million parameters cannot learn every rare identifier of a reference manual, so the text is reduced to prose
that such a model can learn:

* whole pages that are lists rather than prose (release notes, key word lists, index, ...) are left out;
* only `<p>` paragraphs outside tables and listings are kept;
* a sentence is dropped if it contains characters of code (`$ \\ @ [ ] ...`) or a word that occurs fewer than
  `MIN_WORD_COUNT` times in the whole text; a paragraph that loses most of its text is dropped entirely.

Each page is one document; documents are separated by `<|endoftext|>`.
"""
from __future__ import annotations

import argparse
import collections
import html
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

PACKAGE = "postgresql-doc-15"
INSTALLED = Path("/usr/share/doc") / PACKAGE / "html"

# Pages without running prose: names of people, key words, error codes, names of supported features.
SKIPPED_PAGES = re.compile(
    r"^(release|bookindex|biblio|index|legalnotice|acknowledgments|sql-keywords|features|unsupported-features|errcodes"
    r"|external-|docguide|contrib-|glossary|acronyms|color|git|appendix|preface|admin$|internals$|server-programming$)"
)
MIN_WORD_COUNT = 3

WORD = re.compile(r"[A-Za-z]+(?:'[A-Za-z]+)?")
_ALLOWED = re.compile(r"^[A-Za-z0-9 ,.;:()'\"/?!%_=*<>+-]*$")
_SENTENCE_END = re.compile(r"(?<![ (]e\.g\.)(?<![ (]i\.e\.)(?<=[.!?])\s+(?=[A-Z\"(])")
_REPLACED = str.maketrans({"\u201c": '"', "\u201d": '"', "\u2018": "'", "\u2019": "'", "\u00a0": " ", "\u2013": "-",
                           "\u2026": "..."})


@dataclass(frozen=True)
class Document:
    """One page of the manual: its file name, and its paragraphs separated by empty lines."""
    name: str
    text: str


def words_of(text: str) -> list[str]:
    """Returns the words of a text in lower case. Words are ASCII letters and may contain an apostrophe as in "doesn't"."""
    return [w.lower() for w in WORD.findall(text)]


def find_html(work: Path) -> tuple[Path, str]:
    """Returns the folder of the pages and the package version. Downloads the package to `work` if it is not installed."""
    if INSTALLED.is_dir():
        version = subprocess.run(["dpkg-query", "-W", "-f", "${Version}", PACKAGE], check=True, capture_output=True,
                                 text=True).stdout
        return INSTALLED, version
    folder = work / PACKAGE
    if not folder.is_dir():
        work.mkdir(parents=True, exist_ok=True)
        subprocess.run(["apt-get", "download", PACKAGE], check=True, cwd=work, capture_output=True)
        (package,) = work.glob(PACKAGE + "_*.deb")
        subprocess.run(["dpkg-deb", "-x", str(package), str(folder)], check=True)
    (package,) = work.glob(PACKAGE + "_*.deb")
    version = subprocess.run(["dpkg-deb", "-f", str(package), "Version"], check=True, capture_output=True,
                             text=True).stdout.strip()
    return folder / INSTALLED.relative_to("/"), version


def _paragraphs(page: str) -> list[str]:
    """Returns the text of each prose paragraph of an HTML page."""
    page = re.sub(r"<(table|pre|dt)\b.*?</\1>", " ", page, flags=re.S)
    found = []
    for raw in re.findall(r"<p(?: [^>]*)?>(.*?)</p>", page, re.S):
        text = html.unescape(re.sub(r"<[^>]+>", "", raw)).translate(_REPLACED)
        text = re.sub(r"\s*\u2014\s*", " - ", text)
        text = re.sub(r"\s*\((?:see|See|described in|discussed in)\b[^()]*\)", "", text)  # references to other sections
        text = " ".join(text.split())
        if text:
            found.append(text)
    return found


def _plain(sentence: str) -> bool:
    """Returns true for prose: the sentence has a capital at the start, a full stop at the end, and almost no code."""
    return (len(sentence) > 15 and sentence[-1] in ".!?\")" and (sentence[0].isupper() or sentence[0] in "\"(")
            and bool(_ALLOWED.match(sentence)) and sentence.count("(") == sentence.count(")")
            and sentence.count('"') % 2 == 0)


def collect(folder: Path) -> list[Document]:
    """Returns the cleaned documents of the manual in `folder`, ordered by file name."""
    pages: list[tuple[str, list[list[str]]]] = []
    sizes: list[list[int]] = []
    for path in sorted(folder.glob("*.html"), key=lambda p: p.name):
        if SKIPPED_PAGES.match(path.stem):
            continue
        paragraphs = _paragraphs(path.read_text(encoding="utf-8"))
        sizes.append([len(p) for p in paragraphs])
        pages.append((path.name, [[s for s in _SENTENCE_END.split(p) if _plain(s)] for p in paragraphs]))

    while True:  # removing a sentence makes other words rarer, so this is repeated until nothing changes
        counts = collections.Counter(w for _, ps in pages for p in ps for s in p for w in words_of(s))
        changed = False
        for _, paragraphs in pages:
            for i, sentences in enumerate(paragraphs):
                kept = [s for s in sentences if all(counts[w] >= MIN_WORD_COUNT for w in words_of(s))]
                changed |= len(kept) != len(sentences)
                paragraphs[i] = kept
        if not changed:
            break

    documents = []
    seen: set[str] = set()
    for (name, paragraphs), lengths in zip(pages, sizes):
        kept_paragraphs = []
        for sentences, length in zip(paragraphs, lengths):
            text = " ".join(sentences)
            if len(text) >= 0.5 * length and len(text) >= 60 and text not in seen:
                seen.add(text)
                kept_paragraphs.append(text)
        if kept_paragraphs:
            documents.append(Document(name, "\n\n".join(kept_paragraphs)))
    return documents


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, required=True, help="folder for the package if it is not installed")
    parser.add_argument("--words", type=Path, help="write the distinct words of the text to this file")
    parser.add_argument("text", type=Path)
    options = parser.parse_args()
    folder, version = find_html(options.work)
    documents = collect(folder)
    text = "\n<|endoftext|>\n".join(d.text for d in documents) + "\n"
    options.text.write_text(text)
    if options.words:
        words = sorted({w for d in documents for w in words_of(d.text)})
        options.words.write_text("".join(w + "\n" for w in words))
    print(f"{PACKAGE} {version}: {len(documents)} pages, {len(text.encode())} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
