#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Renders the digits of free font families into models/digits/: a greyscale PNG and a table of its rows.

usage: tools/render_digits.py [--work FOLDER] [--out models/digits] [--check]

For development. The fonts are in Debian packages, which are downloaded into the work folder (`apt-get download`) but not
installed. It is an error if the copyright file of a package does not contain the licence. Requires Pillow, numpy and fonttools
(tools/requirements.txt). The same packages produce identical files.

  --check  check the files in the out folder instead of writing them. Classifies the digits of the held-out families by
           their nearest neighbours in the training families, and lists pairs of similar families across the split.
"""
import argparse
import csv
import gzip
import re
import subprocess
import sys
from pathlib import Path

import numpy as np

CELL = 32  # pixels per side; digits have at most 28, so that rotated and scaled digits still fit
HEIGHT = 24  # height of the tallest digit of a family
MOST = 28  # maximum width and height of a digit
FINE = 8  # supersampling: each pixel is the mean of FINE x FINE samples

# Text that a copyright file must contain for each licence.
LICENCES = {
    "OFL-1.1": r"open font license|OFL-1\.1|sil-1\.1",
    "Apache-2.0": r"apache",
    "MIT": r"permission is hereby granted, free of charge",
    "BSD-3-Clause": r"redistribution and use in source and binary forms",
    "Bitstream-Vera": r"bitstream",
    "GPL-2.0-or-later WITH Font-exception-2.0": r"embed",
    "GUST-Font-License": r"gust",
    "ParaType-Free-Font-License": r"paratype",
    "public-domain": r"public[ -]domain",
}
OFL, APACHE, MIT, BSD, VERA, GPL, GUST, PARATYPE, PUBLIC = LICENCES

# Family, package, licence. Families with the same outlines are listed once, and families of one design system are in the
# same part of the split, so that held-out digits have not been seen in training.
TRAIN = {
    "sans": [
        ("DejaVu Sans", "fonts-dejavu-core", VERA),
        ("Liberation Sans", "fonts-liberation2", OFL),
        ("TeX Gyre Heros", "fonts-texgyre", GUST),
        ("TeX Gyre Adventor", "fonts-texgyre", GUST),
        ("Open Sans", "fonts-open-sans", APACHE),
        ("Lato", "fonts-lato", OFL),
        ("Cantarell", "fonts-cantarell", OFL),
        ("Inter", "fonts-inter", OFL),
        ("Karla", "fonts-karla", OFL),
        ("Quicksand", "fonts-quicksand", OFL),
        ("Dosis", "fonts-dosis", OFL),
        ("Comfortaa", "fonts-comfortaa", OFL),
        ("Play", "fonts-play", OFL),
        ("Jura", "fonts-jura", OFL),
        ("B612", "fonts-b612", OFL),
        ("PT Sans", "fonts-paratype", PARATYPE),
        ("Oxygen-Sans", "fonts-oxygen", OFL),
        ("Go", "fonts-go", BSD),
        ("Tuffy", "fonts-tuffy", PUBLIC),
        ("Gillius ADF", "fonts-adf-gillius", GPL),
        ("Ikarius ADF Std", "fonts-adf-ikarius", GPL),
        ("Sora", "fonts-sora", OFL),
        ("Millimetre", "fonts-millimetre", OFL),
        ("National Park", "fonts-national-park", OFL),
        ("Averia Sans GWF", "fonts-averia-sans-gwf", OFL),
        ("Allerta", "fonts-allerta", OFL),
        ("Routed Gothic", "fonts-routed-gothic", OFL),
        ("Yanone Kaffeesatz", "fonts-yanone-kaffeesatz", OFL),
        ("Linux Biolinum O", "fonts-linuxlibertine", OFL),
        ("Latin Modern Sans", "fonts-lmodern", GUST),
        ("Junction", "fonts-junction", OFL),
        ("League Spartan", "fonts-league-spartan", OFL),
        ("GFS Neohellenic", "fonts-gfs-neohellenic", OFL),
    ],
    "serif": [
        ("DejaVu Serif", "fonts-dejavu-core", VERA),
        ("Liberation Serif", "fonts-liberation2", OFL),
        ("TeX Gyre Pagella", "fonts-texgyre", GUST),
        ("TeX Gyre Bonum", "fonts-texgyre", GUST),
        ("Gentium Plus", "fonts-sil-gentiumplus", OFL),
        ("Linux Libertine O", "fonts-linuxlibertine", OFL),
        ("Old Standard TT", "fonts-oldstandard", OFL),
        ("PT Serif", "fonts-paratype", PARATYPE),
        ("Noto Serif", "fonts-noto-core", OFL),
        ("Cardo", "fonts-cardo", OFL),
        ("Latin Modern Roman", "fonts-lmodern", GUST),
        ("STIXGeneral", "fonts-stix", OFL),
        ("Accanthis ADF Std", "fonts-adf-accanthis", GPL),
        ("Tribun ADF Std", "fonts-adf-tribun", GPL),
        ("Berenis ADF Pro", "fonts-adf-berenis", GPL),
        ("Averia Serif GWF", "fonts-averia-serif-gwf", OFL),
        ("Junicode Two Beta", "fonts-junicode", OFL),
        ("GFS Didot", "fonts-gfs-didot", OFL),
        ("GFS Artemisia", "fonts-gfs-artemisia", OFL),
        ("Quattrocento", "fonts-quattrocento", OFL),
        ("Yrsa", "fonts-yrsa-rasa", OFL),
        ("Arapey", "fonts-arapey", OFL),
        ("Caslon", "fonts-georgewilliams", OFL),
    ],
    "mono": [
        ("DejaVu Sans Mono", "fonts-dejavu-core", VERA),
        ("Liberation Mono", "fonts-liberation2", OFL),
        ("Latin Modern Mono", "fonts-lmodern", GUST),
        ("TeX Gyre Cursor", "fonts-texgyre", GUST),
        ("Courier Prime Code", "fonts-courier-prime", OFL),
        ("Inconsolata", "fonts-inconsolata", OFL),
        ("Fira Code", "fonts-firacode", OFL),
        ("B612 Mono", "fonts-b612", OFL),
        ("Go Mono", "fonts-go", BSD),
        ("PT Mono", "fonts-paratype", PARATYPE),
        ("Oxygen Mono", "fonts-oxygen", OFL),
        ("Fantasque Sans Mono", "fonts-fantasque-sans", OFL),
        ("Hermit", "fonts-hermit", OFL),
        ("Agave", "fonts-agave", MIT),
        ("IBM 3270", "fonts-3270", BSD),
        ("M PLUS 1 Code", "fonts-mplus", OFL),
        ("Noto Sans Mono", "fonts-noto-mono", OFL),
        ("Compagnon", "fonts-compagnon", OFL),
    ],
}
HELD_OUT = {
    "sans": [
        ("Cabin", "fonts-cabin", OFL),
        ("Roboto", "fonts-roboto-unhinted", APACHE),
        ("Manrope", "fonts-manrope", OFL),
        ("Universalis ADF Std", "fonts-adf-universalis", GPL),
        ("Clear Sans", "fonts-clear-sans", APACHE),
        ("Andika", "fonts-sil-andika", OFL),
    ],
    "serif": [
        ("Charis SIL", "fonts-sil-charis", OFL),
        ("Prociono", "fonts-prociono", PUBLIC),
        ("Roboto Slab", "fonts-roboto-slab", APACHE),
        ("Caladea", "fonts-crosextra-caladea", APACHE),
        ("Baskervald ADF Std", "fonts-adf-baskervald", GPL),
        ("TeX Gyre Schola", "fonts-texgyre", GUST),
    ],
    "mono": [
        ("JetBrains Mono", "fonts-jetbrains-mono", APACHE),
        ("Anonymous Pro", "fonts-anonymous-pro", OFL),
        ("mononoki", "fonts-mononoki", OFL),
        ("League Mono", "fonts-league-mono", OFL),
        ("Monoid", "fonts-monoid", OFL),
    ],
}

# The names of the four styles, in order of preference.
STYLES = {
    "regular": ["regular", "book", "roman", "medium", "standard", "mono", "10regular", "sansbook"],
    "bold": ["bold", "demibold", "semibold", "demi", "heavy", "10bold", "sansbold"],
    "italic": ["italic", "oblique", "mediumitalic", "10italic", "10oblique"],
    "bold italic": ["bolditalic", "boldoblique", "demibolditalic", "demioblique", "10bolditalic", "10boldoblique"],
}


def run(*command, cwd=None):
    return subprocess.run(command, cwd=cwd, check=True, capture_output=True, text=True).stdout


def unpack(package, work):
    """Returns the folder with the files of a package, and the version of the package."""
    debs = work / "packages"
    debs.mkdir(parents=True, exist_ok=True)
    if not list(debs.glob(f"{package}_*.deb")):
        run("apt-get", "download", package, cwd=debs)
    deb = sorted(debs.glob(f"{package}_*.deb"))[-1]
    folder = work / "unpacked" / package
    if not folder.exists():
        folder.mkdir(parents=True)
        run("dpkg-deb", "-x", str(deb), str(folder))
    return folder, run("dpkg-deb", "-f", str(deb), "Version").strip()


def copyright_text(folder, package):
    path = folder / "usr/share/doc" / package
    if (path / "copyright.gz").exists():
        return gzip.decompress((path / "copyright.gz").read_bytes()).decode(errors="replace")
    return (path / "copyright").read_text(errors="replace")


def faces(folder):
    """Returns {family: {style: path}} for fonts that have all digits. Styles are in lower case without blanks."""
    from fontTools.ttLib import TTFont

    found = {}
    for path in sorted(folder.rglob("*")):
        if path.suffix.lower() not in (".ttf", ".otf") or path.is_symlink():
            continue
        font = TTFont(path, lazy=True)
        names = font["name"]
        family = (names.getDebugName(16) or names.getDebugName(1) or "").strip()
        style = re.sub(r"[\s-]+", "", names.getDebugName(17) or names.getDebugName(2) or "").lower()
        if all(ord(d) in (font.getBestCmap() or {}) for d in "0123456789"):
            found.setdefault(family, {}).setdefault(style, path)
    return found


def render(path):
    """Returns the ten digits of a font as a (10, CELL, CELL) array of bytes. They are white on black and centred in their
    cells. The tallest digit is scaled to HEIGHT pixels."""
    from PIL import Image, ImageDraw, ImageFont

    def ink(digit, font):
        side = CELL * FINE * 3
        image = Image.new("L", (side, side), 0)
        ImageDraw.Draw(image).text((side // 3, side // 3), digit, font=font, fill=255)
        return image.crop(image.getbbox())

    def font_of(size):
        return ImageFont.truetype(str(path), size, layout_engine=ImageFont.Layout.BASIC)

    trial = 24 * FINE
    sizes = [ink(d, font_of(trial)).size for d in "0123456789"]
    scale = min(HEIGHT * FINE / max(h for _, h in sizes), MOST * FINE / max(w for w, _ in sizes))
    font = font_of(round(trial * scale))
    cells = []
    for digit in "0123456789":
        glyph = ink(digit, font)
        cell = Image.new("L", (CELL * FINE, CELL * FINE), 0)
        cell.paste(glyph, ((cell.width - glyph.width) // 2, (cell.height - glyph.height) // 2))
        cells.append(np.asarray(cell.resize((CELL, CELL), Image.Resampling.BOX)))
    return np.stack(cells)


def make(work, out):
    from PIL import Image

    rows, table = [], []
    for split, families in (("train", TRAIN), ("held out", HELD_OUT)):
        for kind, members in families.items():
            for family, package, licence in members:
                folder, version = unpack(package, work)
                if not re.search(LICENCES[licence], copyright_text(folder, package), re.IGNORECASE):
                    sys.exit(f"{package}: its copyright file does not contain the licence {licence}")
                found = faces(folder).get(family)
                if not found:
                    sys.exit(f"{package} has no family {family} with digits, only {sorted(faces(folder))}")
                seen = set()
                for style, names in STYLES.items():
                    path = next((found[n] for n in names if n in found), None)
                    if path is None or path in seen:
                        continue
                    seen.add(path)
                    rows.append(render(path))
                    table.append([family, style, kind, split, licence, package, version])
                if not seen:
                    sys.exit(f"{family}: none of its styles is known: {sorted(found)}")
    atlas = np.concatenate([np.concatenate(list(row), axis=1) for row in rows])
    out.mkdir(parents=True, exist_ok=True)
    Image.fromarray(atlas).save(out / "digits.png", optimize=True)
    with open(out / "digits.csv", "w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["family", "style", "class", "split", "licence", "package", "version"])
        writer.writerows(table)
    print(f"{len(table)} rows, {atlas.shape[1]} x {atlas.shape[0]} pixels, {(out / 'digits.png').stat().st_size} bytes")


def check(out):
    from PIL import Image

    with open(out / "digits.csv", newline="") as file:
        table = list(csv.DictReader(file))
    atlas = np.asarray(Image.open(out / "digits.png")).astype(np.float32) / 255
    glyphs = atlas.reshape(len(table), CELL, 10, CELL).transpose(0, 2, 1, 3).reshape(len(table) * 10, -1)
    labels = np.tile(np.arange(10), len(table))
    row = np.repeat(np.arange(len(table)), 10)
    train = np.array([t["split"] == "train" for t in table])[row]
    for split in ("train", "held out"):
        of = [t for t in table if t["split"] == split]
        kinds = {k: len({t["family"] for t in of if t["class"] == k}) for k in TRAIN}
        print(f"{split}: {len(of)} rows of {len({t['family'] for t in of})} families {kinds}")
    a, b = glyphs[~train], glyphs[train]
    distance = (a * a).sum(1)[:, None] - 2 * a @ b.T + (b * b).sum(1)[None]
    right = labels[train][distance.argmin(1)] == labels[~train]
    print(f"nearest neighbour on held-out families: {right.mean():.4f}")
    for kind in TRAIN:
        of = np.array([table[r]["class"] == kind for r in row[~train]])
        print(f"  {kind}: {right[of].mean():.4f}")
    for i in np.flatnonzero(~right):
        t, n = table[row[~train][i]], table[row[train][distance[i].argmin()]]
        print(f"  {labels[~train][i]} of {t['family']} {t['style']} looks like "
              f"{labels[train][distance[i].argmin()]} of {n['family']} {n['style']}")
    # Finds families in different parts of the split that look almost the same, by the mean distance of their digits.
    per_row = np.zeros((int((~train).sum()) // 10, int(train.sum()) // 10))
    for digit in range(10):
        per_row += distance[digit::10, digit::10] / (a * a).sum(1)[digit::10, None] / 10
    for i, j in sorted(np.ndindex(per_row.shape), key=lambda p: per_row[p])[:8]:
        h, t = [x for x in table if x["split"] != "train"][i], [x for x in table if x["split"] == "train"][j]
        print(f"alike ({per_row[i, j]:.3f}): {h['family']} {h['style']} and {t['family']} {t['style']}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, default=Path("/tmp/tessera-digits"))
    parser.add_argument("--out", type=Path, default=Path(__file__).resolve().parent.parent / "models/digits")
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    if options.check:
        check(options.out)
    else:
        make(options.work, options.out)


if __name__ == "__main__":
    main()
