# SPDX-License-Identifier: Apache-2.0
"""The pages and navigation of the documentation site. Maps links between Markdown files to links of the site.

prepare_site.py, finish_site.py and check_links.py use this module. A Markdown page that is not in a section below is listed
in the last section, so a new page requires no change here.
"""
from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from pathlib import Path

# The sections of the navigation: title and Markdown files (glob patterns), in order. The API follows the guides.
SECTIONS = [
    ("Guides", ["README.md", "docs/devices.md", "docs/kernels.md", "docs/arrays.md", "docs/tasks.md", "docs/training.md",
                "docs/machines.md", "docs/models.md", "docs/verification.md", "docs/packs.md", "docs/llm.md", "docs/serve.md", "docs/python.md", "docs/c.md", "docs/guarantees.md", "docs/glossary.md", "models/README.md",
                "docs/versions.md", "CHANGELOG.md"]),
    ("Examples", ["examples/README.md", "examples/*/README.md"]),
    ("Results", ["docs/performance.md", "benchmarks/results/*.md"]),
    ("For maintainers", ["CONTRIBUTING.md", "docs/map.md", "docs/decisions.md", "docs/dependencies.md", "SECURITY.md", "*.md",
                         "docs/*.md", "docs/*/*.md", "benchmarks/*.md", "models/*/*.md", "*/*.md"]),
]
# For the results, the navigation contains the first page and the list of files in this folder.
RESULTS_FOLDER = "benchmarks/results"
# The links on the front page: Markdown file and label.
START = [("docs/devices.md", "Choose a device"), ("docs/kernels.md", "Write a kernel"), ("docs/arrays.md", "Compute with arrays"),
         ("docs/tasks.md", "Run tasks on several devices"), ("docs/training.md", "Train a network"), ("docs/machines.md", "Train on several machines"),
         ("docs/llm.md", "Run a language model"), ("examples/README.md", "Browse the examples")]
SHORT_TITLES = {"README.md": "Overview", "benchmarks/gpu.md": "Testing on a GPU", "models/README.md": "The model in models/",
                "models/digits/README.md": "The digits in models/digits/"}

# Users include the headers in these folders only indirectly.
INTERNAL_FOLDERS = ("tessera/base/os/", "tessera/executor/", "tessera/ir/", "tessera/jinja/")

# The topics of the API: Doxygen group, title, description, and folders (or headers) of tessera/.
TOPICS = [
    ("basics", "Basics", "Element types, shapes and errors.", ["base", "tessera.h", "arrays.h", "kernels.h"]),
    ("devices", "Devices", "Finding and choosing devices, memory, queues, recorded work, and what ran where.", ["device"]),
    ("kernels", "Kernels", "The kernel language, buffers, launches, and tests, reports and packs of your own kernels.",
     ["kernel", "testing", "report", "pack"]),
    ("arrays", "Arrays", "Arrays, their functions, linear algebra, sparse matrices, Fourier transforms, files, and moving whole structures.",
     ["array", "fft", "linalg", "ops", "sparse"]),
    ("tasks", "Tasks", "Tasks, regions, scopes of devices, and arrays in tiles.", ["task"]),
    ("training", "Training", "Gradients, layers, losses, optimisers, trainers, compiled models, and proofs.", ["grad", "nn"]),
    ("machines", "Several processes", "Ranks of a launcher, collectives, and their errors.", ["dist"]),
    ("llm", "Language models", "Model files, tokenizers, sampling, generation and chats.", ["llm"]),
    ("c", "C", "The interface for C and for languages that call C.", ["c"]),
]


def topic_of(header: str) -> str:
    parts = header.split("/")
    for group, _, _, folders in TOPICS:
        if parts[1] in folders:
            return group
    raise SystemExit(f"{header}: the folder {parts[1]} is in no API topic; add it to TOPICS in tools/docs/pages.py")


def slug_of(file: str) -> str:
    """Returns the name of the page for a Markdown file, without ".html"."""
    if file == "README.md":
        return "index"
    name = file.removesuffix(".md").removeprefix("docs/")
    if name.endswith("/README"):
        return "folder_" + re.sub(r"[^a-z0-9]+", "_", name.removesuffix("/README").lower())
    slug = re.sub(r"[^a-z0-9]+", "_", name.lower())
    return f"page_{slug}"


FENCE = re.compile(r"^\s*(```+|~~~+)(.*)$")
CODE_SPAN = re.compile(r"(?<!`)(`+)(?!`)(.+?)(?<!`)\1(?!`)", re.S)
LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\]|!\[[^\]]*\]\([^)]*\))*)\]\(\s*<?([^)\s>]+)>?(\s+\"[^\"]*\")?\s*\)")
HEADING = re.compile(r"^(#{1,6})\s+(.*?)\s*#*\s*$")


def plain_text(markdown: str) -> str:
    """Returns the text of a heading without markup."""
    text = LINK.sub(lambda m: m[2], markdown)
    text = re.sub(r"`+([^`]*)`+", r"\1", text)
    return re.sub(r"(\*\*|__|(?<!\w)[*_](?=\S)|(?<=\S)[*_](?!\w))", "", text)


def github_anchor(text: str, taken: dict[str, int]) -> str:
    anchor = re.sub(r"[^\w\- ]", "", text.strip().lower()).replace(" ", "-")
    number = taken.get(anchor, 0)
    taken[anchor] = number + 1
    return f"{anchor}-{number}" if number else anchor


@dataclass
class Heading:
    line: int
    level: int
    text: str
    anchor: str


@dataclass
class Link:
    line: int
    target: str


@dataclass
class Page:
    file: str
    text: str
    headings: list[Heading] = field(default_factory=list)
    links: list[Link] = field(default_factory=list)

    @property
    def slug(self) -> str:
        return slug_of(self.file)

    @property
    def title(self) -> str:
        return self.headings[0].text if self.headings else self.file

    @property
    def short_title(self) -> str:
        return SHORT_TITLES.get(self.file, re.sub(r"\s*[:(].*", "", self.title))


def blocks(text: str):
    """Splits a Markdown text into fenced blocks and the text between them, as (is_code, first line, lines)."""
    lines = text.split("\n")
    begin, fence = 0, None
    for i, line in enumerate(lines):
        match = FENCE.match(line)
        if fence is None and match:
            if i > begin:
                yield False, begin + 1, lines[begin:i]
            begin, fence = i, match[1]
        elif fence is not None and match and match[1].startswith(fence[0]) and len(match[1]) >= len(fence) and not match[2].strip():
            yield True, begin + 1, lines[begin:i + 1]
            begin, fence = i + 1, None
    if begin < len(lines):
        yield fence is not None, begin + 1, lines[begin:]


def blank_code(text: str) -> str:
    """Returns the text with code spans overwritten, so that they contain no links. The length does not change."""
    return CODE_SPAN.sub(lambda m: re.sub(r"[^\n]", "x", m[0]), text)


def parse(root: Path, file: str) -> Page:
    page = Page(file, (root / file).read_text(encoding="utf-8"))
    taken: dict[str, int] = {}
    for is_code, first, lines in blocks(page.text):
        if is_code:
            continue
        for number, line in enumerate(lines, first):
            if match := HEADING.match(line):
                text = plain_text(match[2])
                page.headings.append(Heading(number, len(match[1]), text, github_anchor(text, taken)))
        text = "\n".join(lines)
        for match in LINK.finditer(blank_code(text)):
            line = first + text.count("\n", 0, match.start())
            page.links.append(Link(line, match[3]))
            for inner in LINK.finditer(match[2]):
                page.links.append(Link(line, inner[3]))
        for match in re.finditer(r'<(?:img|a)\b[^>]*?(?:src|href)="([^"]+)"', blank_code(text)):
            page.links.append(Link(first + text.count("\n", 0, match.start()), match[1]))
    return page


IGNORED = {"build", "out", ".git", ".cache", "node_modules", "shared"}


def markdown_files(root: Path) -> list[str]:
    found = []
    for folder, folders, files in os.walk(root):
        folders[:] = sorted(f for f in folders if f not in IGNORED and not f.startswith("."))
        found += [os.path.relpath(os.path.join(folder, f), root) for f in files if f.endswith(".md")]
    return sorted(found)


def sections(files: list[str]) -> list[tuple[str, list[str]]]:
    left, result = list(files), []
    for title, patterns in SECTIONS:
        chosen = []
        for pattern in patterns:
            expression = re.compile(re.escape(pattern).replace(r"\*", "[^/]*"))
            matching = [f for f in left if expression.fullmatch(f)]
            chosen += matching
            left = [f for f in left if f not in matching]
        result.append((title, chosen))
    result[-1][1].extend(left)
    return result


def resolve(page_file: str, target: str) -> tuple[str, str]:
    """Returns (path from the root, anchor) for a relative link in a Markdown file."""
    path, _, anchor = target.partition("#")
    if not path:
        return page_file, anchor
    return os.path.normpath(os.path.join(os.path.dirname(page_file), path)), anchor


def is_external(target: str) -> bool:
    return re.match(r"[a-z][a-z0-9+.-]*:", target) is not None


def source_page(path: str) -> str:
    """Returns the address of the page for a source file or folder."""
    return f"source/{path}.html"
