// SPDX-License-Identifier: Apache-2.0
// Scripts of the documentation site: navigation on small screens, headings of the page, and search. Works with file: URLs too.
"use strict";
(function () {
  const root = document.currentScript.dataset.root;

  const menu = document.querySelector("button.menu");
  const nav = document.querySelector("nav.pages");
  menu.addEventListener("click", () => {
    const open = nav.classList.toggle("open");
    menu.setAttribute("aria-expanded", open);
  });
  const current = nav.querySelector("[aria-current]");
  if (current && current.offsetParent) nav.scrollTop = current.offsetTop - nav.clientHeight / 2;

  // Builds the list of headings on this page.
  const toc = document.querySelector("aside.toc");
  const headings = [...document.querySelectorAll("main .textblock > h2, main .textblock > h3, main h2.groupheader")]
      .map((h) => ({ h, a: h.querySelector("a[id]") }))
      .filter((e) => e.a && e.h.textContent.trim());
  if (headings.length > 1) {
    const list = document.createElement("ul");
    for (const { h, a } of headings) {
      const link = document.createElement("a");
      link.href = "#" + a.id;
      link.textContent = h.textContent.trim();
      const item = document.createElement("li");
      item.className = h.tagName.toLowerCase();
      item.append(link);
      list.append(item);
    }
    const title = document.createElement("h2");
    title.textContent = "On this page";
    toc.append(title, list);
  }

  // Search.
  const form = document.querySelector("form.search");
  const input = form.querySelector("input");
  const hits = form.querySelector(".hits");
  let chosen = -1;

  function load(then) {
    if (window.tesseraIndex) return then();
    const script = document.createElement("script");
    script.src = root + "search.js";
    script.onload = then;
    document.head.append(script);
  }
  const weights = { page: 0, topic: 0, class: 1, struct: 1, concept: 1, function: 1, enumeration: 1, type: 1, example: 2, section: 2, enumerator: 4, variable: 3, macro: 3 };
  // Returns a score (smaller is better), or none if a word is missing.
  function score([name, kind, brief, url, topic], words) {
    const full = name.toLowerCase();
    const parts = full.split("::");
    const last = parts.at(-1);
    let sum = (weights[kind] ?? 3) + full.length / 50 + 3 * (parts.length - 1);
    for (const word of words) {
      if (last === word || full === word) sum += 0;
      else if (last.startsWith(word)) sum += 4;
      else if (full.split(/[^a-z0-9]+/).some((part) => part.startsWith(word))) sum += 8;
      else if (full.includes(word)) sum += 14;
      else if (topic?.toLowerCase().includes(word)) sum += 8;
      else if (brief.toLowerCase().includes(word)) sum += 30;
      else return null;
    }
    return sum;
  }
  function show() {
    const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
    chosen = -1;
    hits.replaceChildren();
    hits.hidden = words.length === 0;
    if (hits.hidden || !window.tesseraIndex) return;
    const found = window.tesseraIndex
        .map((entry) => ({ entry, score: score(entry, words) }))
        .filter((e) => e.score !== null)
        .sort((a, b) => a.score - b.score)
        .slice(0, 30);
    for (const { entry: [name, kind, brief, url] } of found) {
      const link = document.createElement("a");
      link.href = root + url;
      link.setAttribute("role", "option");
      const title = document.createElement("b");
      title.textContent = name;
      const label = document.createElement("i");
      label.textContent = kind;
      const text = document.createElement("span");
      text.textContent = brief;
      link.append(title, label, text);
      hits.append(link);
    }
    if (found.length === 0) hits.textContent = "Nothing found.";
  }
  input.addEventListener("focus", () => load(show));
  input.addEventListener("input", () => load(show));
  input.addEventListener("keydown", (event) => {
    const links = [...hits.querySelectorAll("a")];
    if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      chosen = Math.max(0, Math.min(links.length - 1, chosen + (event.key === "ArrowDown" ? 1 : -1)));
      links.forEach((l, i) => l.classList.toggle("chosen", i === chosen));
      links[chosen]?.scrollIntoView({ block: "nearest" });
      event.preventDefault();
    } else if (event.key === "Escape") {
      input.value = "";
      show();
    }
  });
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    const link = hits.querySelectorAll("a")[Math.max(chosen, 0)];
    if (link) location.href = link.href;
  });
  document.addEventListener("keydown", (event) => {
    if (event.key === "/" && document.activeElement !== input) {
      input.focus();
      event.preventDefault();
    }
  });
  document.addEventListener("click", (event) => {
    if (!form.contains(event.target)) hits.hidden = true;
  });
  const asked = new URLSearchParams(location.search).get("q");
  if (asked) {
    input.value = asked;
    load(show);
  }
})();
