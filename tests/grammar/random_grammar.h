// SPDX-License-Identifier: Apache-2.0
// Random grammars, texts that match them, and a slow matcher that shares no code with the library.
#pragma once

#include <algorithm>
#include <cstdio>
#include <map>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace tessera::test {

class RandomGrammar {
 public:
  explicit RandomGrammar(std::mt19937_64& random) : random_(random), rules_(2 + random() % 3) {
    for (std::size_t i = 0; i < rules_.size(); ++i) rules_[i] = make(i, 3, false);
  }

  std::string gbnf() const {
    std::string out;
    for (std::size_t i = 0; i < rules_.size(); ++i) out += name(i) + " ::= " + text_of(rules_[i]) + "\n";
    return out;
  }

  /// Returns a text that matches, or a long part of one.
  std::u32string sample() {
    std::u32string out;
    sample(rules_[0], out, 0);
    return out;
  }

  bool matches(const std::u32string& text) {
    known_.clear();
    return ends(rules_[0], text, 0).contains(text.size());
  }

 private:
  struct Part {
    enum Kind { literal, any, in, not_in, sequence, choice, repeat, rule } kind;
    std::u32string chars = {};  // of a literal, or the pairs of a class
    std::vector<Part> parts = {};
    int min = 0, max = 0;  // -1: unlimited
    std::size_t index = 0;
  };

  std::size_t below(std::size_t n) { return random_() % n; }
  char32_t letter() { return U"abcé中😀\"\\]"[below(9)]; }
  static std::string name(std::size_t i) { return i == 0 ? "root" : "rule-" + std::to_string(i); }

  /// `after_char` is true if a character precedes the part in the rule, so that recursion is not left recursion.
  Part make(std::size_t self, int depth, bool after_char) {
    const std::size_t kind = below(depth > 0 ? 9 : 4);
    if (kind == 0) return {.kind = Part::any};
    if (kind == 1) {
      char32_t a = letter(), b = letter();
      if (a > b) std::swap(a, b);
      return {.kind = below(3) ? Part::in : Part::not_in, .chars = {a, b}};
    }
    if (kind < 4) {
      Part p{.kind = Part::literal};
      for (std::size_t n = below(3); n > 0; --n) p.chars += letter();
      return p;
    }
    if (kind == 4 && (after_char || self + 1 < rules_.size()))
      return {.kind = Part::rule,
              .index = after_char ? below(rules_.size()) : self + 1 + below(rules_.size() - self - 1)};
    if (kind == 5) {
      Part p{.kind = Part::repeat, .min = static_cast<int>(below(3))};
      p.max = below(2) ? -1 : p.min + static_cast<int>(below(3));
      p.parts.push_back(make(self, depth - 1, after_char));
      return p;
    }
    Part p{.kind = kind < 7 ? Part::choice : Part::sequence};
    for (std::size_t n = 1 + below(3); n > 0; --n) {
      const bool read = p.kind == Part::sequence && !p.parts.empty() && p.parts[0].kind == Part::in;
      p.parts.push_back(make(self, depth - 1, after_char || read));
    }
    return p;
  }

  static std::string escape(char32_t c) {
    char text[16];
    std::snprintf(text, sizeof text, c < 0x10000 ? "\\u%04X" : "\\U%08X", static_cast<unsigned>(c));
    return c < 0x80 && c != '"' && c != '\\' && c != ']' ? std::string(1, static_cast<char>(c)) : text;
  }
  static std::string text_of(const Part& p) {
    std::string out;
    switch (p.kind) {
      case Part::any: return ".";
      case Part::rule: return name(p.index);
      case Part::literal:
        for (const char32_t c : p.chars) out += escape(c);
        return "\"" + out + "\"";
      case Part::in:
      case Part::not_in: return (p.kind == Part::in ? "[" : "[^") + escape(p.chars[0]) + "-" + escape(p.chars[1]) + "]";
      case Part::repeat:
        out = "(" + text_of(p.parts[0]) + ")";
        if (p.max < 0) return out + (p.min == 0 ? "*" : p.min == 1 ? "+" : "{" + std::to_string(p.min) + ",}");
        return out + "{" + std::to_string(p.min) + "," + std::to_string(p.max) + "}";
      default:
        for (const Part& part : p.parts)
          out += (out.empty() ? "" : p.kind == Part::choice ? " | " : " ") + text_of(part);
        return "(" + out + ")";
    }
  }

  void sample(const Part& p, std::u32string& out, int depth) {
    if (depth > 40 || out.size() > 60) return;
    switch (p.kind) {
      case Part::any: out += letter(); break;
      case Part::literal: out += p.chars; break;
      case Part::in: out += below(2) ? p.chars[0] : p.chars[1]; break;
      case Part::not_in: out += p.chars[1] + 1; break;
      case Part::rule: sample(rules_[p.index], out, depth + 1); break;
      case Part::choice: sample(p.parts[below(p.parts.size())], out, depth + 1); break;
      case Part::sequence:
        for (const Part& part : p.parts) sample(part, out, depth + 1);
        break;
      case Part::repeat: {
        const auto more = static_cast<int>(below(3));
        for (int n = p.max < 0 ? p.min + more : std::min(p.max, p.min + more); n > 0; --n)
          sample(p.parts[0], out, depth + 1);
      }
    }
  }

  using Ends = std::set<std::size_t>;
  /// Returns where the part can end if it begins at `at`.
  const Ends& ends(const Part& p, const std::u32string& text, std::size_t at) {
    const auto key = std::pair(&p, at);
    if (const auto found = known_.find(key); found != known_.end()) return found->second;
    Ends out = compute_ends(p, text, at);
    return known_[key] = std::move(out);
  }
  Ends after_all(const Part& p, const std::u32string& text, const Ends& begins) {
    Ends out;
    for (const std::size_t begin : begins) out.merge(Ends(ends(p, text, begin)));
    return out;
  }
  Ends compute_ends(const Part& p, const std::u32string& text, std::size_t at) {
    const auto character = [&](bool good) { return good ? Ends{at + 1} : Ends{}; };
    switch (p.kind) {
      case Part::any: return character(at < text.size());
      case Part::in: return character(at < text.size() && text[at] >= p.chars[0] && text[at] <= p.chars[1]);
      case Part::not_in: return character(at < text.size() && (text[at] < p.chars[0] || text[at] > p.chars[1]));
      case Part::literal: return text.compare(at, p.chars.size(), p.chars) == 0 ? Ends{at + p.chars.size()} : Ends{};
      case Part::rule: return ends(rules_[p.index], text, at);
      case Part::choice: {
        Ends out;
        for (const Part& part : p.parts) out.merge(Ends(ends(part, text, at)));
        return out;
      }
      case Part::sequence: {
        Ends now{at};
        for (const Part& part : p.parts) now = after_all(part, text, now);
        return now;
      }
      default: {
        Ends now{at}, out;
        for (int n = 0; p.max < 0 || n <= p.max; ++n) {
          const std::size_t before = out.size();
          if (n >= p.min) out.insert(now.begin(), now.end());
          if (now.empty() || (p.max < 0 && n > p.min && out.size() == before)) break;
          now = after_all(p.parts[0], text, now);
        }
        return out;
      }
    }
  }

  std::mt19937_64& random_;
  std::vector<Part> rules_;
  std::map<std::pair<const Part*, std::size_t>, Ends> known_;
};

}  // namespace tessera::test
