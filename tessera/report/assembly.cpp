// SPDX-License-Identifier: Apache-2.0
#include "tessera/report/assembly.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <map>
#include <string>
#include <utility>

namespace tessera::reporting {

namespace {

std::string_view trimmed(std::string_view text) {
  const auto begin = text.find_first_not_of(" \t");
  if (begin == text.npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t\r") + 1 - begin);
}

/// Calls `use` with each line of the text.
template <class F>
void for_each_line(std::string_view text, F&& use) {
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    use(text.substr(at, end - at));
    at = end + 1;
  }
}

/// Replaces the names of labels by the indices of their instructions.
class Labels {
 public:
  void define(std::string_view name, std::size_t index) { places_[std::string(name)] = index; }
  void jump(std::size_t instruction, std::string_view name) { jumps_.emplace_back(instruction, name); }
  void resolve(std::vector<Instruction>& code) const {
    for (const auto& [from, name] : jumps_)
      if (const auto to = places_.find(name); to != places_.end() && to->second < code.size())
        code[from].target = to->second;
  }

 private:
  std::map<std::string, std::size_t, std::less<>> places_;
  std::vector<std::pair<std::size_t, std::string>> jumps_;
};

/// Returns whether `modifiers` ("E.128.CONSTANT") contains `word` between dots.
bool has_modifier(std::string_view modifiers, std::string_view word) {
  for (std::size_t at = modifiers.find(word); at != modifiers.npos; at = modifiers.find(word, at + 1)) {
    const std::size_t end = at + word.size();
    if ((at == 0 || modifiers[at - 1] == '.') && (end == modifiers.size() || modifiers[end] == '.')) return true;
  }
  return false;
}

std::uint32_t sass_bytes(std::string_view modifiers) {
  for (const auto& [word, bytes] :
       {std::pair{"U8", 1u}, {"S8", 1u}, {"U16", 2u}, {"S16", 2u}, {"64", 8u}, {"128", 16u}, {"256", 32u}})
    if (has_modifier(modifiers, word)) return bytes;
  return 4;
}

/// Returns the product of the numbers in "16816" (16 x 8 x 16), the shape of a matrix instruction. Those of tf32
/// ("1688.F32.TF32") take twice the time.
std::uint32_t sass_multiply_adds(std::string_view modifiers) {
  for (const auto& [shape, count] :
       {std::pair{"16832", 16 * 8 * 32}, {"16816", 16 * 8 * 16}, {"1688", 16 * 8 * 8}, {"884", 8 * 8 * 4}})
    if (modifiers.starts_with(shape))
      return static_cast<std::uint32_t>(count) * (modifiers.find("TF32") == modifiers.npos ? 1 : 2);
  return 0;
}

/// Returns the last hexadecimal number in a comment of this line: "/* 0x000fe20000000800 */".
std::optional<std::uint64_t> encoding_in(std::string_view line) {
  const std::size_t at = line.rfind("/* 0x");
  if (at == line.npos) return std::nullopt;
  const std::string_view digits = line.substr(at + 5);
  std::uint64_t value = 0;
  if (std::from_chars(digits.data(), digits.data() + digits.size(), value, 16).ec != std::errc()) return std::nullopt;
  return value;
}

}  // namespace

std::vector<Instruction> parse_sass(std::string_view text) {
  std::vector<Instruction> code;
  Labels labels;
  bool expects_control = false;
  for_each_line(text, [&](std::string_view line) {
    const std::string_view words = trimmed(line);
    if (words.starts_with(".L_") && words.ends_with(':')) {
      labels.define(words.substr(0, words.size() - 1), code.size());
      return;
    }
    if (expects_control && words.starts_with("/* 0x")) {
      const std::uint64_t control = encoding_in(words).value_or(0);
      code.back().barrier = control >> 46 & 7, code.back().wait_mask = control >> 52 & 63;
      expects_control = false;
      return;
    }
    const std::size_t end = words.starts_with("/*") ? words.find("*/") : words.npos;
    if (end == words.npos || !encoding_in(words)) return;
    std::string_view rest = trimmed(words.substr(end + 2));
    const bool predicated = rest.starts_with("@");
    if (predicated) rest = trimmed(rest.substr(std::min(rest.find(' '), rest.size())));
    const std::string_view opcode = rest.substr(0, rest.find_first_of(" ;"));
    const std::size_t dot = opcode.find('.');
    const std::string_view name = opcode.substr(0, dot), modifiers = dot == opcode.npos ? "" : opcode.substr(dot + 1);
    Instruction& i = code.emplace_back();
    expects_control = true;
    if (name == "LDGSTS")
      i.kind = Instruction::Kind::copy, i.bytes = sass_bytes(modifiers);
    else if (name == "LDGDEPBAR")
      i.kind = Instruction::Kind::commit;
    else if (name == "DEPBAR") {
      if (const std::size_t comma = rest.find(','); comma != rest.npos)
        i.groups =
            static_cast<std::uint32_t>(std::strtoul(std::string(trimmed(rest.substr(comma + 1))).c_str(), nullptr, 0));
    } else if (name == "LDS" || name == "STS")
      i.kind = Instruction::Kind::shared, i.bytes = sass_bytes(modifiers);
    else if (name == "LDSM")
      i.kind = Instruction::Kind::shared, i.bytes = modifiers.ends_with(".4") ? 16 : modifiers.ends_with(".2") ? 8 : 4;
    else if (name == "LDG" || name == "LD")
      i.kind = Instruction::Kind::load, i.bytes = sass_bytes(modifiers);
    else if (name == "STG" || name == "ST")
      i.kind = Instruction::Kind::store, i.bytes = sass_bytes(modifiers);
    else if (name == "HMMA" || name == "IMMA" || name == "DMMA" || name == "HGMMA" || name == "IGMMA")
      i.kind = Instruction::Kind::matrix, i.multiply_adds = sass_multiply_adds(modifiers);
    else if (name == "EXIT" && !predicated)
      i.kind = Instruction::Kind::end;
    else if (name == "BRA")
      if (const std::size_t label = rest.find("`("); label != rest.npos)
        labels.jump(code.size() - 1, rest.substr(label + 2, rest.find(')', label) - label - 2));
  });
  labels.resolve(code);
  return code;
}

std::vector<Instruction> parse_amdgcn(std::string_view text) {
  std::vector<Instruction> code;
  Labels labels;
  for_each_line(text, [&](std::string_view line) {
    std::string_view words = trimmed(line.substr(0, line.find(';')));
    if (words.ends_with(':')) {
      labels.define(words.substr(0, words.size() - 1), code.size());
      return;
    }
    if (words.empty() || words[0] == '.' || words.starts_with("//")) return;
    const std::string_view opcode = words.substr(0, words.find_first_of(" \t"));
    const std::string_view operands = trimmed(words.substr(opcode.size()));
    Instruction& i = code.emplace_back();
    const auto width = [&](std::string_view prefix) -> std::uint32_t {
      const std::string_view type = opcode.substr(prefix.size());
      if (type.starts_with("dwordx4") || type.starts_with("b128")) return 16;
      if (type.starts_with("dwordx3") || type.starts_with("b96")) return 12;
      if (type.starts_with("dwordx2") || type.starts_with("b64")) return 8;
      if (type.starts_with("dword") || type.starts_with("b32")) return 4;
      return type.find("short") != type.npos || type.find("16") != type.npos ? 2 : 1;
    };
    i.barrier = Instruction::no_barrier;
    for (const std::string_view space : {"global_", "flat_", "buffer_"}) {
      if (!opcode.starts_with(space)) continue;
      const std::string load = std::string(space) + "load_", store = std::string(space) + "store_";
      if (opcode.starts_with(load)) i.kind = Instruction::Kind::load, i.bytes = width(load);
      if (opcode.starts_with(store)) i.kind = Instruction::Kind::store, i.bytes = width(store);
    }
    if (opcode.starts_with("v_mfma") || opcode.starts_with("v_wmma"))
      i.kind = Instruction::Kind::matrix,
      i.multiply_adds = opcode.find("16x16x8") != opcode.npos       ? 16 * 16 * 8
                        : opcode.find("16x16x4_f32") != opcode.npos ? 16 * 16 * 4 * 8  // the names of gfx94x
                        : opcode.find("16x16x4f32") != opcode.npos  ? 16 * 16 * 4 * 4
                                                                    : 16 * 16 * 16;
    for (const std::string_view shared : {"ds_read", "ds_write", "ds_load", "ds_store"})
      if (opcode.starts_with(shared)) {  // ds_read_b64, ds_read2st64_b32, ds_load_2addr_stride64_b32
        const std::size_t type = opcode.rfind("_b");
        const bool two = opcode.find('2', shared.size()) < std::min(type, opcode.size());
        i.kind = Instruction::Kind::shared;
        i.bytes = (type == opcode.npos ? 4 : width(opcode.substr(0, type + 1))) * (two ? 2 : 1);
      }
    if (opcode == "s_endpgm") i.kind = Instruction::Kind::end;
    if (opcode == "s_waitcnt") {
      const std::size_t at = operands.find("vmcnt(");
      if (at != operands.npos) i.waits = static_cast<std::uint32_t>(std::atoi(operands.data() + at + 6));
    }
    if (opcode == "s_branch" || opcode.starts_with("s_cbranch")) labels.jump(code.size() - 1, operands);
  });
  labels.resolve(code);
  return code;
}

namespace {

struct Loop {
  std::size_t first, last;              // instructions, inclusive
  std::uint32_t bytes = 0;              // loads and copies outside of nested loops
  LoadPattern::MatrixLoop matrix = {};  // instructions outside of nested loops
};
bool loads(const Instruction& i) { return i.kind == Instruction::Kind::load || i.kind == Instruction::Kind::copy; }

std::vector<Loop> loops_of(const std::vector<Instruction>& code) {
  std::map<std::size_t, std::size_t> by_head;  // several jumps to one head are one loop
  for (std::size_t i = 0; i < code.size(); ++i)
    if (code[i].target && *code[i].target <= i) by_head[*code[i].target] = i;
  std::vector<Loop> loops;
  for (const auto& [first, last] : by_head) loops.push_back({first, last});
  for (std::size_t i = 0; i < code.size(); ++i) {
    Loop* innermost = nullptr;
    for (Loop& loop : loops)
      if (loop.first <= i && i <= loop.last &&
          (innermost == nullptr || loop.last - loop.first < innermost->last - innermost->first))
        innermost = &loop;
    if (innermost == nullptr) continue;
    if (loads(code[i])) innermost->bytes += code[i].bytes;
    LoadPattern::MatrixLoop& m = innermost->matrix;
    ++m.instructions;
    m.matrix += code[i].kind == Instruction::Kind::matrix, m.multiply_adds += code[i].multiply_adds;
    if (code[i].kind == Instruction::Kind::shared || code[i].kind == Instruction::Kind::copy)
      m.shared_bytes += code[i].bytes;
  }
  return loops;
}

/// The loads that a thread has issued and not yet waited for.
class Outstanding {
 public:
  void issue(const Instruction& load) {
    const bool copy = load.kind == Instruction::Kind::copy;  // the barrier of a copy is that of its addresses
    loads_.push_back({copy ? Instruction::no_barrier : load.barrier, load.bytes, copy, group_}), bytes_ += load.bytes;
  }
  void commit() { ++group_; }
  /// Removes the loads that the instruction waits for. Returns whether there were any.
  bool wait(const Instruction& i) {
    const std::uint32_t before = bytes_;
    if (i.wait_mask != 0)
      std::erase_if(loads_, [&](const Load& l) {
        const bool waits = l.barrier < 6 && (i.wait_mask >> l.barrier & 1) != 0;
        if (waits) bytes_ -= l.bytes;
        return waits;
      });
    if (i.groups)
      std::erase_if(loads_, [&](const Load& l) {
        const bool waits = l.copy && l.group + *i.groups < group_;
        if (waits) bytes_ -= l.bytes;
        return waits;
      });
    if (i.waits)
      while (loads_.size() > *i.waits) bytes_ -= loads_.front().bytes, loads_.erase(loads_.begin());
    return bytes_ != before;
  }
  std::uint32_t bytes() const { return bytes_; }

 private:
  struct Load {
    std::uint32_t barrier, bytes;
    bool copy;
    std::uint32_t group;
  };
  std::vector<Load> loads_;
  std::uint32_t bytes_ = 0, group_ = 0;
};

/// Returns the pattern of instructions `first` to `last`. A loop is traversed twice, so that loads for the next
/// iteration are outstanding when the second traversal starts, or more often if it copies several iterations ahead.
LoadPattern pattern_of(const std::vector<Instruction>& code, std::size_t first, std::size_t last, bool loop) {
  LoadPattern pattern;
  pattern.loop = loop;
  pattern.instructions = static_cast<std::uint32_t>(last - first + 1);
  Outstanding outstanding;
  const auto is_copy = [](const Instruction& i) { return i.kind == Instruction::Kind::copy; };
  const bool copies = std::any_of(code.begin() + static_cast<std::ptrdiff_t>(first),
                                  code.begin() + static_cast<std::ptrdiff_t>(last) + 1, is_copy);
  for (int round = loop ? (copies ? -8 : 0) : 1; round < 2; ++round) {
    bool waited = true;
    pattern.groups = pattern.bytes = 0;
    for (std::size_t at = first; at <= last; ++at) {
      const Instruction& i = code[at];
      const std::uint32_t requested = outstanding.bytes();
      if (outstanding.wait(i)) {
        waited = true;
        pattern.bytes_in_flight = std::max(pattern.bytes_in_flight, requested);
      }
      if (i.kind == Instruction::Kind::commit) outstanding.commit();
      if (!loads(i)) continue;
      outstanding.issue(i);
      if (waited) ++pattern.groups;
      waited = false;
      pattern.bytes += i.bytes;
      pattern.widest = std::max(pattern.widest, i.bytes);
      pattern.narrowest = pattern.narrowest == 0 ? i.bytes : std::min(pattern.narrowest, i.bytes);
    }
  }
  pattern.bytes_in_flight = std::max(pattern.bytes_in_flight, outstanding.bytes());
  return pattern;
}

}  // namespace

LoadPattern load_pattern(const std::vector<Instruction>& code) {
  if (code.empty()) return {};
  LoadPattern pattern;
  const std::vector<Loop> loops = loops_of(code);
  const auto most = std::ranges::max_element(loops, {}, &Loop::bytes);
  if (most != loops.end() && most->bytes != 0) {
    pattern = pattern_of(code, most->first, most->last, true);
    pattern.innermost = std::ranges::none_of(loops, [&](const Loop& l) {
      return l.first >= most->first && l.last <= most->last && (l.first != most->first || l.last != most->last);
    });
  } else {  // the best path between two ends of a thread; others handle the ends of rows
    for (std::size_t first = 0, at = 0; at < code.size(); ++at) {
      if (code[at].kind != Instruction::Kind::end && at + 1 != code.size()) continue;
      const LoadPattern path = pattern_of(code, first, at, false);
      if (first == 0 || std::pair(path.bytes, path.bytes_in_flight) > std::pair(pattern.bytes, pattern.bytes_in_flight))
        pattern = path;
      first = at + 1;
    }
  }
  if (const auto busiest = std::ranges::max_element(loops, {}, [](const Loop& l) { return l.matrix.matrix; });
      busiest != loops.end() && busiest->matrix.matrix != 0)
    pattern.matrix = busiest->matrix;
  for (const Instruction& i : code) {
    if (i.kind == Instruction::Kind::store) pattern.widest_store = std::max(pattern.widest_store, i.bytes);
    if (i.kind == Instruction::Kind::matrix) ++pattern.matrix_instructions;
  }
  return pattern;
}

}  // namespace tessera::reporting
