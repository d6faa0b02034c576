#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Reads Doxygen's XML output and lists public symbols without a docstring, as `file:line: kind name`.

Everything that Doxygen finds in the public headers needs a docstring, except:
  - private and protected members, and members of the namespaces that script/docs excludes (detail, ir, executor, os);
  - defaulted and deleted functions, destructors, and copy and move operations;
  - macros that the header undefines, and friend declarations of classes;
  - an overload if another one of the same name in the same scope and header has a docstring, and members of a specialisation of a
    template that has one;
  - the member types that the standard library requires of containers and iterators (value_type, ...);
  - declarations on the same source line (also from one macro), if one of them has a docstring.

Exit status: 0 if nothing is missing, 1 otherwise.
"""
from __future__ import annotations

import argparse
import re
import sys
import xml.etree.ElementTree as ET
from dataclasses import dataclass
from pathlib import Path


@dataclass
class Symbol:
    file: str
    line: int
    kind: str
    name: str  # qualified
    shown: str  # with arguments
    documented: bool


STANDARD_TYPES = {"value_type", "size_type", "difference_type", "reference", "const_reference", "iterator", "const_iterator",
                  "reverse_iterator", "const_reverse_iterator", "iterator_concept", "iterator_category"}


def documented(element: ET.Element) -> bool:
    return any("".join(part.itertext()).strip() for tag in ("briefdescription", "detaileddescription")
               if (part := element.find(tag)) is not None)


def without_arguments(name: str) -> str:
    """Returns the name without template arguments, because a specialisation shares the docstring of its template."""
    scope, separator, last = name.rpartition("::operator")
    if not separator:
        scope, last = name, ""
    while "<" in scope:
        shorter = re.sub(r"\s*<[^<>]*>", "", scope)
        if shorter == scope:
            break
        scope = shorter
    return scope + separator + last


def in_specialisation(name: str) -> str | None:
    """Returns the template if the member belongs to an explicit specialisation of it."""
    scope = name.rpartition("::operator")[0] or name.rpartition("::")[0]
    return without_arguments(scope) if "<" in scope else None


def is_special(member: ET.Element, scope: str) -> bool:
    """Returns true if the language defines what the function does."""
    name = member.findtext("name") or ""
    arguments = member.findtext("argsstring") or ""
    if name.startswith("~") or re.search(r"=\s*(default|delete)\s*$", arguments):
        return True
    own = re.sub(r"<.*>", "", scope).rsplit("::", 1)[-1]
    parameters = [re.sub(r"\b(const|tessera::)\b|[&\s]|<.*>", "", "".join(p.find("type").itertext()))
                  for p in member.findall("param") if p.find("type") is not None]
    return name in (own, "operator=") and parameters == [own]


def is_specialisation(symbol: Symbol, templates: set[str]) -> bool:
    return "<" in symbol.name and symbol.kind != "function" and without_arguments(symbol.name) in templates


class Sources:
    """Reads the lines of headers, for information that is missing from Doxygen's XML."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.lines: dict[str, list[str]] = {}

    def of(self, file: str) -> list[str]:
        if file not in self.lines:
            self.lines[file] = (self.root / file).read_text(encoding="utf-8").splitlines()
        return self.lines[file]

    def line_of(self, word: str, file: str, first: int) -> int:
        """Returns the first line from `first` on that contains the word outside of comments."""
        for number, text in enumerate(self.of(file)[first - 1:], first):
            if re.search(rf"\b{re.escape(word)}\b", text.split("//")[0]) and not (number == first and "enum" in text and "{" not in text):
                return number
        return first

    def undefines(self, file: str, macro: str) -> bool:
        return any(re.match(rf"\s*#\s*undef\s+{macro}\b", text) for text in self.of(file))


def symbols(folder: Path, sources: Sources) -> list[Symbol]:
    found: dict[str, Symbol] = {}
    compounds = [c for file in sorted(folder.glob("*.xml")) for c in ET.parse(file).getroot().findall("compounddef")]
    closed = {c.findtext("compoundname") for c in compounds if c.get("prot", "public") != "public"}
    for compound in compounds:
        scope = compound.findtext("compoundname") or ""
        kind = compound.get("kind") or ""
        if kind == "page" or scope == "std" or scope.startswith("std::") or "@" in scope:
            continue
        if any(scope == c or scope.startswith(c + "::") for c in closed):
            continue
        place = compound.find("location")
        if kind in ("class", "struct", "union", "concept") and compound.get("prot", "public") == "public" and place is not None:
            found[compound.get("id")] = Symbol(place.get("file"), int(place.get("line")), kind, scope, scope, documented(compound))
        for member in compound.iter("memberdef"):
            add_member(found, member, scope, sources)
    return list(found.values())


def add_member(found: dict[str, Symbol], member: ET.Element, scope: str, sources: Sources) -> None:
    place = member.find("location")
    kind = member.get("kind")
    name = member.findtext("qualifiedname") or member.findtext("name")
    if member.get("prot") != "public" or place is None or name.startswith("std::") or "@" in name:
        return
    if kind == "variable" and name.endswith("_"):  # private members of an anonymous union
        return
    file, line = place.get("file"), int(place.get("line"))
    arguments = member.findtext("argsstring") or ""
    if kind == "typedef" and member.findtext("name") in STANDARD_TYPES:
        return
    if kind == "define":
        if sources.undefines(file, name):
            return
    elif kind == "friend" and (member.findtext("type") or "").split()[:1] in (["class"], ["struct"], ["friend"]):
        return
    elif kind in ("function", "friend") and is_special(member, scope):
        return
    found[member.get("id")] = Symbol(file, line, kind, name, name + arguments, documented(member))
    for value in member.findall("enumvalue"):
        word = value.findtext("name")
        found[value.get("id")] = Symbol(file, sources.line_of(word, file, line), "enumerator", f"{name}::{word}", f"{name}::{word}",
                                        documented(value))


def missing(all_symbols: list[Symbol]) -> list[Symbol]:
    templates = {s.name for s in all_symbols if s.documented}
    names = {(s.file, without_arguments(s.name)) for s in all_symbols if s.documented}
    lines = {(s.file, s.line) for s in all_symbols if s.documented}
    left = [s for s in all_symbols
            if not s.documented and (s.file, s.line) not in lines and (s.file, without_arguments(s.name)) not in names
            and in_specialisation(s.name) not in templates and not is_specialisation(s, templates)]
    return sorted(left, key=lambda s: (s.file, s.line, s.shown))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("xml", type=Path, help="the folder of Doxygen's XML output")
    parser.add_argument("--root", type=Path, default=Path("."), help="the folder that its file names are relative to")
    options = parser.parse_args()
    all_symbols = symbols(options.xml, Sources(options.root))
    if not all_symbols:
        print(f"{options.xml}: no symbols; was Doxygen run with GENERATE_XML?", file=sys.stderr)
        return 1
    left = missing(all_symbols)
    for s in left:
        print(f"{s.file}:{s.line}: {s.kind} {s.shown} has no docstring")
    print(f"{len(all_symbols) - len(left)} of {len(all_symbols)} public symbols have a docstring"
          + (f"; {len(left)} have none (above)" if left else ""), file=sys.stderr if left else sys.stdout)
    return 1 if left else 0


if __name__ == "__main__":
    sys.exit(main())
