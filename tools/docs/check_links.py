#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks the links of the Markdown files (with GitHub's anchors) and of the generated site.

Prints `file:line: link: what is wrong` for each dead link. Links to other sites are not checked. The exit status is 0 if
every link is valid, and 1 otherwise.

  check_links.py --markdown ROOT
  check_links.py --html FOLDER
"""
from __future__ import annotations

import argparse
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

import pages


def check_markdown(root: Path) -> tuple[list[str], int]:
    parsed = {file: pages.parse(root, file) for file in pages.markdown_files(root)}
    dead, count = [], 0
    for page in parsed.values():
        for link in page.links:
            if pages.is_external(link.target):
                continue
            count += 1
            path, anchor = pages.resolve(page.file, unquote(link.target))
            where = f"{page.file}:{link.line}: {link.target}: "
            if path.startswith("../") or not (root / path).exists():
                dead.append(where + "no such file")
            elif anchor and path in parsed and anchor not in (h.anchor for h in parsed[path].headings):
                dead.append(where + f"{path} has no heading for this anchor")
            elif anchor and path not in parsed and not anchor.startswith("L"):
                dead.append(where + "anchors of source files are line numbers, such as #L10")
    return dead, count


class Document(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[tuple[int, str]] = []
        self.ids: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name in ("id", "name") and value and tag != "meta":
                self.ids.add(value)
            elif name in ("href", "src") and value is not None:
                self.links.append((self.getpos()[0], value))


def check_html(root: Path) -> tuple[list[str], int]:
    documents = {file: Document(file.read_text(encoding="utf-8")) for file in sorted(root.rglob("*.html"))}
    dead, count = [], 0
    for file, document in documents.items():
        for line, link in document.links:
            if pages.is_external(link) and not link.startswith("javascript:"):
                continue
            count += 1
            where = f"{file.relative_to(root)}:{line}: {link}: "
            path, _, anchor = link.partition("#")
            target = (file.parent / unquote(path)).resolve() if path else file.resolve()
            if link.startswith("javascript:"):
                dead.append(where + "needs a script")
            elif not target.is_file():
                dead.append(where + "no such page")
            elif anchor and target in documents and unquote(anchor) not in documents[target].ids:
                dead.append(where + "the page has no such anchor")
    return dead, count


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    group = parser.add_mutually_exclusive_group(required=True)
    group.add_argument("--markdown", type=Path, metavar="ROOT", help="the repository's root folder")
    group.add_argument("--html", type=Path, metavar="FOLDER", help="the folder of the generated site")
    options = parser.parse_args()
    dead, count = check_markdown(options.markdown.resolve()) if options.markdown else check_html(options.html.resolve())
    for text in dead:
        print(text)
    print(f"{len(dead)} of {count} links are dead (above)" if dead else f"{count} links are valid",
          file=sys.stderr if dead else sys.stdout)
    return 1 if dead else 0


if __name__ == "__main__":
    sys.exit(main())
