#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Prepares the input of Doxygen: copies of the public headers, the Markdown pages in Doxygen's dialect, the topics of the API,
the frame of each page, and a Doxyfile. See script/docs.

The headers are listed in TESSERA_PUBLIC_HEADERS. Headers that they include are added, except headers with "Internal" in their
opening comment. Line numbers are preserved.
"""
from __future__ import annotations

import argparse
import html
import re
import shutil
from pathlib import Path

import pages

HERE = Path(__file__).resolve().parent


def public_headers(root: Path) -> list[str]:
    text = (root / "cmake/tessera_install.cmake").read_text(encoding="utf-8")
    queue = re.search(r"set\(TESSERA_PUBLIC_HEADERS\s([^)]*)\)", text)[1].split()
    found: set[str] = set()
    while queue:
        header = queue.pop()
        if header in found:
            continue
        found.add(header)
        queue += re.findall(r"^[ \t]*#[ \t]*include[ \t]*[<\"](tessera/[^>\"]*)[>\"]", (root / header).read_text(encoding="utf-8"), re.M)
    return sorted(found)


def is_internal(root: Path, header: str) -> bool:
    opening = (root / header).read_text(encoding="utf-8").split("#pragma once")[0]
    return header.startswith(pages.INTERNAL_FOLDERS) or re.search(r"\bInternal\b", opening) is not None


WORD_AT_BEGIN = re.compile(r"(?:(?<=^)|(?<=[.:] ))(?=[A-Z][a-z]+[ ,])")


def escape_docstrings(lines: list[str]) -> list[str]:
    """Escapes Doxygen's special characters in docstrings outside of code spans, which may contain line breaks. Also prevents
    links from the first word of a sentence to a class with the same name."""
    out, in_code = [], False
    for line in lines:
        match = re.match(r"(.*?///<? ?)(.*)$", line)
        if not match or match[2].startswith(("@{", "@}", "/")):
            out.append(line)
            in_code = False
            continue
        if match[1].strip() != "///":
            in_code = False
        if match[2].startswith("  "):  # code is indented by at least two spaces
            opened = out[-1].rstrip().endswith(" @endcode")
            if opened:
                out[-1] = out[-1].removesuffix(" @endcode")
            else:
                out[-1] += " @code{.cpp}"
            out.append(line + " @endcode")
            continue
        text = match[2]
        if in_code and text.startswith(("+ ", "- ", "* ")):  # Doxygen would start a list here
            out[-1] += " " + text[0]
            text = text[2:]
        made = []
        for i, part in enumerate(text.split("`")):
            if i:
                in_code = not in_code
            if not in_code:
                part = re.sub(r"[\\@<>#%]", lambda m: "\\" + m[0], part)
                part = WORD_AT_BEGIN.sub("%", part)
            made.append(part)
        out.append(match[1] + "`".join(made))
    return out


def add_to_topic(lines: list[str], topic: str, header: str) -> None:
    """Opens the group of the topic in each namespace of the header. Uses empty lines, so that line numbers are preserved."""
    for i, line in enumerate(lines):
        if match := re.match(r"(inline )?namespace tessera(::(?!detail)\w+)* \{$", line):
            at = i if not lines[i + 1] else i - 1
            if lines[at + 1 if at == i else at]:
                raise SystemExit(f"{header}:{i + 1}: no empty line before or after the beginning of the namespace")
            lines[at:at + 2] = [f"{match[0]} /** @addtogroup {topic}", "@{ */"]
        elif re.match(r"\}  // namespace tessera(::(?!detail)\w+)*$", line):
            lines[i] = "/** @} */ }"


def prepare_header(root: Path, to: Path, header: str) -> None:
    lines = (root / header).read_text(encoding="utf-8").split("\n")
    lines = escape_docstrings(lines)
    add_to_topic(lines, pages.topic_of(header), header)
    target = to / header
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text("\n".join(lines) + "\n", encoding="utf-8")


class PageWriter:
    """Writes Markdown in Doxygen's dialect: with anchors at headings, links to pages of the site, and escaped commands."""

    def __init__(self, root: Path, all_pages: dict[str, pages.Page]) -> None:
        self.root = root
        self.all_pages = all_pages
        self.sources: set[str] = set()  # files and folders that need a page on the site
        self.images: set[str] = set()

    def link(self, page: pages.Page, target: str) -> str:
        if pages.is_external(target):
            return target
        path, anchor = pages.resolve(page.file, target)
        if path not in self.all_pages and f"{path}/README.md" in self.all_pages:
            path = f"{path}/README.md"
        if path in self.all_pages:
            slug = pages.slug_of(path)
            return f"{slug}.html" + (f"#{slug}_{anchor}" if anchor else "")
        self.sources.add(path)
        return pages.source_page(path) + (f"#{anchor}" if anchor else "")

    def image(self, page: pages.Page, target: str, text: str) -> str:
        if pages.is_external(target):
            return f'<img src="{target}" alt="{html.escape(text)}"/>'
        path, _ = pages.resolve(page.file, target)
        self.images.add(path)
        return f'<img src="images/{Path(path).name}" alt="{html.escape(text)}"/>'

    def inline(self, page: pages.Page, text: str, heading: bool = False) -> str:
        """Converts text outside of fenced code: protects code spans and links, then escapes the rest."""
        kept: list[str] = []

        def keep(replacement: str) -> str:
            kept.append(replacement)
            return f"\x01{len(kept) - 1}\x02"

        def code(match: re.Match) -> str:
            return keep(code_span(match[2]))

        def link(match: re.Match) -> str:
            if match[1]:
                return keep(self.image(page, match[3], match[2]))
            inner = pages.LINK.sub(link, match[2])
            return keep(f'<a href="{self.link(page, match[3])}">') + inner + keep("</a>")

        text = pages.CODE_SPAN.sub(code, text)
        text = re.sub(r"<!--.*?-->", "", text, flags=re.S)
        text = pages.LINK.sub(link, text)
        text = re.sub(r'<img\b[^>]*?src="([^"]+)"[^>]*>', lambda m: keep(self.image(page, m[1], "".join(re.findall(r'alt="([^"]*)"', m[0])))), text)
        text = re.sub(r"</?(?:br|sub|sup|kbd)\s*/?>", lambda m: keep(m[0]), text)
        text = re.sub(r"^(>\s*)\[!(\w+)\]", lambda m: f"{m[1]}**{m[2].capitalize()}.**", text, flags=re.M)
        text = re.sub(r"<(https?://[^>\s]+)>", lambda m: keep(f'<a href="{m[1]}">{m[1]}</a>'), text)
        text = re.sub(r"(?m)^(\s*)(>\s)", lambda m: m[1] + keep(m[2]), text)  # quoted text
        text = re.sub(r"\\([\\`*_{}\[\]()#+\-.!|<>])", lambda m: keep(m[0]), text)
        text = re.sub(r"[\\@<>]|#(?=\w)", lambda m: "\\" + m[0], text)
        if heading:
            return self.restored(text, kept)
        # Prevents links from ordinary words that are also names of classes.
        text = re.sub(r"(?<![\w%])([A-Za-z_]\w*(?=\(\)|::)|[A-Z]\w+)", lambda m: keep("%") + m[1] if m[1] in self.names else m[1], text)
        return self.restored(text, kept)

    @staticmethod
    def restored(text: str, kept: list[str]) -> str:
        while "\x01" in text:
            text = re.sub("\x01(\\d+)\x02", lambda m: kept[int(m[1])], text)
        return text

    names: set[str] = set()

    def write(self, page: pages.Page) -> str:
        headings = {h.line: h for h in page.headings}
        out: list[str] = []
        for is_code, first, lines in pages.blocks(page.text):
            if is_code:
                out += fenced(lines)
                continue
            plain: list[str] = []

            def flush() -> None:
                if plain:
                    out.extend(self.tables(page, plain))
                    plain.clear()

            for number, line in enumerate(lines, first):
                heading = headings.get(number)
                if heading is None:
                    plain.append(line)
                    continue
                flush()
                text = self.inline(page, pages.HEADING.match(line)[2], heading=True)
                anchor = page.slug if heading is page.headings[0] else f"{page.slug}_{heading.anchor}"
                out.append(f"{'#' * heading.level} {text}" + (f" {{#{anchor}}}" if anchor != "index" else ""))
            flush()
        return "\n".join(out).lstrip() + "\n"

    def tables(self, page: pages.Page, lines: list[str]) -> list[str]:
        """Converts tables to HTML, because tables on GitHub may have an empty header."""
        out: list[str] = []
        text: list[str] = []
        i = 0

        def flush() -> None:
            if text:
                out.extend(self.inline(page, "\n".join(text)).split("\n"))
                text.clear()

        while i < len(lines):
            if i + 1 < len(lines) and "|" in lines[i] and re.match(r"^\s*\|?\s*:?-+:?\s*(\|\s*:?-+:?\s*)*\|?\s*$", lines[i + 1]) and "|" in lines[i + 1]:
                flush()
                rows = [lines[i]]
                aligned = [("right" if c.strip().endswith(":") and not c.strip().startswith(":") else
                            "center" if c.strip().endswith(":") else "") for c in cells(lines[i + 1])]
                i += 2
                while i < len(lines) and "|" in lines[i]:
                    rows.append(lines[i])
                    i += 1
                out.append(self.table(page, rows, aligned))
                out.append("")
            else:
                text.append(lines[i])
                i += 1
        flush()
        return out

    def table(self, page: pages.Page, rows: list[str], aligned: list[str]) -> str:
        def row(line: str, tag: str) -> str:
            made = []
            for i, cell in enumerate(cells(line)):
                align = aligned[i] if i < len(aligned) else ""
                made.append(f'<{tag}{f" align={chr(34)}{align}{chr(34)}" if align else ""}>{self.inline(page, cell.strip())}</{tag}>')
            return "<tr>" + "".join(made) + "</tr>"

        head = row(rows[0], "th") if any(c.strip() for c in cells(rows[0])) else ""
        return '\n<table class="markdownTable">\n' + head + "\n".join(row(r, "td") for r in rows[1:]) + "\n</table>\n"


def cells(line: str) -> list[str]:
    line = line.strip().removeprefix("|")
    blanked = pages.blank_code(line)
    made, begin = [], 0
    for i, c in enumerate(blanked):
        if c == "|" and (i == 0 or blanked[i - 1] != "\\"):
            made.append(line[begin:i])
            begin = i + 1
    if line[begin:].strip():
        made.append(line[begin:])
    return [c.replace("\\|", "|") for c in made]


def code_span(text: str) -> str:
    return "`" + re.sub(r"\s*\n\s*", " ", text).strip() + "`" if "`" not in text else f"``{text}``"


def fenced(lines: list[str]) -> list[str]:
    """Returns a fenced block for Doxygen, which highlights only C++."""
    match = pages.FENCE.match(lines[0])
    indent = lines[0][:len(lines[0]) - len(lines[0].lstrip())]
    language = match[2].strip().split(" ")[0]
    kind = ".cpp" if language in ("cpp", "c++", "c") else ".unparsed"
    fence = "~" * 8
    return [f"{indent}{fence}{{{kind}}}"] + lines[1:-1] + [f"{indent}{fence}"]


def topics_file(headers: list[str]) -> str:
    used = {pages.topic_of(h) for h in headers}
    text = ["/** @file */"]
    for group, title, brief, _ in pages.TOPICS:
        if group in used:
            text.append(f"/** @defgroup {group} {title}\n    {brief} */")
    return "\n".join(text) + "\n"


def navigation(all_pages: dict[str, pages.Page]) -> str:
    out: list[str] = []
    for title, files in pages.sections(list(all_pages)):
        shown = files[:1] if title == "Results" else files
        out.append(f'<section><h2>{title}</h2><ul>')
        out += [f'<li><a href="$relpath^{all_pages[f].slug}.html">{html.escape(all_pages[f].short_title)}</a></li>' for f in shown]
        if title == "Results" and any(f.startswith(pages.RESULTS_FOLDER) for f in files):
            out.append(f'<li><a href="$relpath^{pages.source_page(pages.RESULTS_FOLDER)}">All measurements</a></li>')
        out.append("</ul></section>")
        if title == "Guides":
            out.append("<section><h2>API</h2><ul>")
            out += [f'<li><a href="$relpath^group__{group}.html">{name}</a></li>' for group, name, _, _ in pages.TOPICS]
            out.append('<li><a href="$relpath^classes.html">All classes</a></li></ul></section>')
    return "\n".join(out)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("root", type=Path, help="the repository's root folder")
    parser.add_argument("work", type=Path, help="the folder to write into")
    options = parser.parse_args()
    root, work = options.root.resolve(), options.work.resolve()
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)

    headers = [h for h in public_headers(root) if not is_internal(root, h)]
    for header in headers:
        prepare_header(root, work / "headers", header)
    (work / "headers/topics.dox").write_text(topics_file(headers), encoding="utf-8")

    all_pages = {file: pages.parse(root, file) for file in pages.markdown_files(root)}
    writer = PageWriter(root, all_pages)
    declared = re.compile(r"^\s*(?:class|struct|enum class|enum|using)\s+(?:\[\[\w+\]\]\s*)?(\w+)", re.M)
    writer.names = {n for h in headers for n in declared.findall((root / h).read_text(encoding="utf-8"))}
    (work / "pages").mkdir()
    for page in all_pages.values():
        (work / "pages" / f"{page.slug}.md").write_text(writer.write(page), encoding="utf-8")
    (work / "images").mkdir()
    for image in sorted(writer.images):
        shutil.copy(root / image, work / "images" / Path(image).name)
    sources = writer.sources | set(headers) | ({pages.RESULTS_FOLDER} if (root / pages.RESULTS_FOLDER).is_dir() else set())
    (work / "sources.txt").write_text("\n".join(sorted(sources)) + "\n", encoding="utf-8")

    version = re.search(r"project\(tessera VERSION ([\d.]+)", (root / "CMakeLists.txt").read_text(encoding="utf-8"))[1]
    frame = (HERE / "frame.html").read_text(encoding="utf-8").replace("@NAVIGATION@", navigation(all_pages)).replace("@VERSION@", version)
    header, footer = frame.split("<!-- CONTENTS -->")
    (work / "header.html").write_text(header, encoding="utf-8")
    (work / "footer.html").write_text(footer, encoding="utf-8")
    doxyfile = (HERE / "Doxyfile").read_text(encoding="utf-8").replace("@WORK@", str(work)).replace("@HERE@", str(HERE)).replace("@VERSION@", version)
    (work / "Doxyfile").write_text(doxyfile, encoding="utf-8")
    print(f"{len(all_pages)} pages, {len(headers)} public headers")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
