// SPDX-License-Identifier: Apache-2.0
#include "tessera/ir/parse.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <optional>

#include "tessera/base/error.h"
#include "tessera/ir/builder.h"
#include "tessera/ir/semantics.h"

namespace tessera::ir {

namespace {

/// Returns the kind with this name.
template <class K>
std::optional<K> kind_named(std::string_view name) {
  for (int k = 0; k < static_cast<int>(K::count_); ++k)
    if (name_of(static_cast<K>(k)) == name) return static_cast<K>(k);
  return {};
}

/// For a number that no float can represent: true if it is too small, false if it is too large.
bool underflows(std::string_view number) {
  const std::size_t e = std::min(number.find_first_of("eE"), number.size());
  const std::string_view digits = number.substr(0, e);
  const auto first = static_cast<std::int64_t>(digits.find_first_of("123456789"));
  const auto point = static_cast<std::int64_t>(std::min(digits.find('.'), digits.size()));
  std::string_view power = number.substr(std::min(e + 1, number.size()));
  if (power.starts_with('+')) power.remove_prefix(1);
  std::int64_t exponent = 0;
  if (std::from_chars(power.data(), power.data() + power.size(), exponent).ec == std::errc::result_out_of_range)
    return power.starts_with('-');
  return exponent < first - point;
}

bool is_word(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_'; }

class Parser {
 public:
  explicit Parser(std::string_view text) {
    int number = 0;
    while (!text.empty()) {
      const std::size_t end = text.find('\n');
      std::string_view line = text.substr(0, end);
      text.remove_prefix(end == text.npos ? text.size() : end + 1);
      ++number;
      if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
      const std::size_t indent = line.find_first_not_of(' ');
      if (indent == line.npos || line[indent] == '#') continue;
      lines_.push_back({line.substr(indent), indent, number});
    }
  }

  Function run() {
    if (lines_.empty()) fail<KernelError>({.operation = "kernel text", .wrong = "the text is empty"});
    rest_ = lines_[0].text;
    keyword("kernel");
    const std::string name(kernel_name());
    KernelKind kind = KernelKind::map;
    std::array<std::uint32_t, 3> size = {1, 1, 1};
    if (!accept("map")) {
      keyword("block");
      kind = KernelKind::block;
      keyword("(");
      for (int d = 0; d < 3; ++d)
        size[static_cast<std::size_t>(d)] = integer<std::uint32_t>(), keyword(d < 2 ? "," : ")");
    }
    Builder made(name, kind, size, DType::index, {source_name, lines_[0].number});
    b_ = &made;
    const Builder::Scope scope(made);
    if (accept("index64")) made.set_index64();
    if (accept("exact")) made.set_exact();
    if (accept("aligned_vectors")) made.set_aligned_vectors();
    if (accept("layout"))
      wrong("the kernel was lowered for a device, so it cannot be read", "Use the text before lowering");
    if (accept("blocks_at_least")) made.set_min_blocks(integer<std::uint32_t>());
    end_of_line();
    while (++at_ < lines_.size() && declaration()) {}
    statements(0);
    if (at_ < lines_.size()) begin_line(), wrong("the statement is indented less than the kernel's first one");
    return made.finish();
  }

 private:
  static constexpr const char* source_name = "text";
  struct Line {
    std::string_view text;
    std::size_t indent;
    int number;
  };

  [[noreturn]] void wrong(const std::string& what, const std::string& remedy = {}) const {
    const Line& line = lines_[std::min(at_, lines_.size() - 1)];
    fail<KernelError>({.operation = "kernel text, line " + std::to_string(line.number),
                       .with = {{"line", std::string(line.text)}},
                       .wrong = what,
                       .remedy = remedy});
  }

  // Words.
  void begin_line() {
    rest_ = lines_[at_].text;
    b_->at(source_name, lines_[at_].number);
  }
  void skip_spaces() {
    while (!rest_.empty() && rest_.front() == ' ') rest_.remove_prefix(1);
  }
  /// Skips a keyword or a sign. A keyword ends at the end of the word.
  bool accept(std::string_view text) {
    skip_spaces();
    if (!rest_.starts_with(text)) return false;
    if (is_word(text.back()) && rest_.size() > text.size() && is_word(rest_[text.size()])) return false;
    rest_.remove_prefix(text.size());
    return true;
  }
  void keyword(std::string_view text) {
    if (!accept(text)) wrong("expected '" + std::string(text) + "' before '" + std::string(rest_) + "'");
  }
  std::string_view word() {
    skip_spaces();
    std::size_t n = 0;
    while (n < rest_.size() && is_word(rest_[n])) ++n;
    if (n == 0) wrong("expected a name before '" + std::string(rest_) + "'");
    return take(n);
  }
  /// The name ends before the kernel's kind. It may contain spaces.
  std::string_view kernel_name() {
    skip_spaces();
    std::size_t end = 0;
    for (const std::string_view kind : {" map", " block("})
      if (const std::size_t at = rest_.rfind(kind); at != rest_.npos) end = std::max(end, at);
    if (end == 0) wrong("expected a name, and 'map' or 'block(X, Y, Z)' before '" + std::string(rest_) + "'");
    return take(end);
  }
  std::string_view take(std::size_t n) {
    const std::string_view out = rest_.substr(0, n);
    rest_.remove_prefix(n);
    return out;
  }
  template <class T>
  T integer() {
    skip_spaces();
    T out = 0;
    const auto [end, error] = std::from_chars(rest_.data(), rest_.data() + rest_.size(), out);
    if (error != std::errc()) wrong("expected a number before '" + std::string(rest_) + "'");
    rest_.remove_prefix(static_cast<std::size_t>(end - rest_.data()));
    return out;
  }
  void end_of_line() {
    skip_spaces();
    if (!rest_.empty()) wrong("'" + std::string(rest_) + "' is not expected here");
  }
  Type type() {
    const std::string_view name = word();
    for (std::uint8_t lanes = 1; lanes <= 4; ++lanes)
      for (int d = 0; d <= static_cast<int>(DType::index); ++d)
        if (const Type t{static_cast<DType>(d), lanes}; type_name(t) == name) return t;
    wrong("'" + std::string(name) + "' is not a type",
          "Types are f32, i64, index and so on, and vectors such as f32x4");
  }

  /// The type of a parameter, a constant or shared memory.
  DType dtype() {
    const Type t = type();
    if (t.lanes != 1)
      wrong(type_name(t) + " is a vector, but a single element is required",
            "Use " + std::string(dtype_name(t.dtype)) + "; vectors are loaded with '%1: f32x4 = load x[...]'");
    return t.dtype;
  }

  // Names.
  void define(std::string_view name, NodeId id) {
    if (!names_.emplace(name, id).second) wrong("'" + std::string(name) + "' is defined twice");
  }
  NodeId named(std::string_view name) {
    const auto found = names_.find(name);
    if (found == names_.end()) wrong("'" + std::string(name) + "' is not defined");
    return found->second;
  }

  /// Parses a parameter, a variable or shared memory. Returns false for other lines.
  bool declaration() {
    begin_line();
    const bool buffer = accept("buffer");
    if (buffer || accept("scalar")) {
      const std::string_view name = word();
      keyword(":");
      const DType of = dtype();
      if (!buffer) {
        define(name, b_->scalar(std::string(name), of));
      } else {
        const bool writes = accept("read_write");
        if (!writes) keyword("read");
        define(name, b_->buffer(std::string(name), of, writes ? Access::read_write : Access::read));
      }
    } else if (rest_.starts_with("local") || rest_.starts_with("shared")) {
      const bool shared = rest_.starts_with("shared");
      const std::string_view name = word();
      keyword(":");
      const Type t = shared ? Type{dtype()} : type();
      keyword("[");
      const auto count = integer<std::uint64_t>();
      keyword("]");
      skip_spaces();
      if (rest_.empty() || shared)
        define(name, shared ? b_->shared(t.dtype, count) : b_->local(t, count));
      else
        define(name, fragment(t, count));
    } else {
      return false;
    }
    end_of_line();
    return true;
  }

  /// Parses the role of a fragment of `count` elements.
  NodeId fragment(Type t, std::uint64_t count) {
    const std::string_view name = word();
    const std::optional<FragmentRole> role = kind_named<FragmentRole>(name);
    if (!role || *role == FragmentRole::none)
      wrong("'" + std::string(name) + "' is not a role of a matrix", "Roles are left, right and accumulator");
    const std::uint64_t all = fragment_side * fragment_depth(t.dtype);
    if (t.lanes != 1 || count != all)
      wrong("a matrix of " + std::string(dtype_name(t.dtype)) + " is declared as " + type_name({t.dtype}) + "[" +
            std::to_string(all) + "], not " + type_name(t) + "[" + std::to_string(count) + "]");
    return b_->fragment(*role, t.dtype);
  }

  // Values.
  NodeId value() {
    skip_spaces();
    if (accept("true")) return b_->constant(DType::boolean, 1);
    if (accept("false")) return b_->constant(DType::boolean, 0);
    if (!rest_.empty() && rest_.front() == '%') {
      std::size_t n = 1;
      while (n < rest_.size() && is_word(rest_[n])) ++n;
      return named(take(n));
    }
    if (const std::size_t colon = rest_.find(':'); colon != rest_.npos && rest_.find_first_of(", ])") > colon)
      return number(take(colon));
    const std::string_view name = word();
    if (accept(".size")) return b_->buffer_size(named(name));
    if (names_.contains(name)) return named(name);
    if (const auto kind = kind_named<IndexKind>(name);
        kind && *kind != IndexKind::buffer_size && *kind != IndexKind::counter) {
      keyword("(");
      const auto dimension = integer<std::uint64_t>();
      keyword(")");
      return b_->index(*kind, dimension);
    }
    wrong("'" + std::string(name) + "' is not defined", "Constants have a type, as in 2:f32 and 1:index");
  }
  NodeId number(std::string_view digits) {
    keyword(":");
    const DType of = dtype();
    const auto parsed = [&]<class T>(T out) {
      const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), out);
      const bool all = end == digits.data() + digits.size();
      if constexpr (std::is_floating_point_v<T>)
        if (all && error == std::errc::result_out_of_range && underflows(digits))
          return digits.starts_with('-') ? -T(0) : T(0);
      if (error != std::errc() || !all)
        wrong("'" + std::string(digits) + "' is not a number of " + std::string(dtype_name(of)));
      return out;
    };
    if (of == DType::boolean) wrong("constants of bool are 'true' and 'false'");
    return with_compute_type(of, [&](auto tag) -> NodeId {
      using T = decltype(tag);
      if constexpr (std::is_same_v<T, bool>)
        return no_node;
      else
        return b_->constant(of, to_bits(of, parsed(T{})));
    });
  }
  std::vector<NodeId> values() {
    std::vector<NodeId> out = {value()};
    while (accept(",")) out.push_back(value());
    return out;
  }
  /// `count` values, or one fewer if the last one is optional.
  std::vector<NodeId> values(std::size_t count, bool optional_last = false) {
    std::vector<NodeId> out = values();
    if (out.size() != count && !(optional_last && out.size() + 1 == count))
      wrong("the operation takes " + std::to_string(count) + " operands, not " + std::to_string(out.size()));
    out.resize(count, no_node);
    return out;
  }
  /// `memory[index]`
  std::pair<NodeId, NodeId> element() {
    const NodeId memory = named(word());
    keyword("[");
    const NodeId index = value();
    keyword("]");
    return {memory, index};
  }

  /// Parses the operation after `=`.
  NodeId expression(Type wanted) {
    const std::string_view name = word();
    const auto after = [&](std::string_view prefix) { return name.substr(std::min(prefix.size(), name.size())); };
    if (const auto k = kind_named<UnaryOp>(name)) return b_->unary(*k, values(1)[0]);
    if (const auto k = kind_named<BinaryOp>(name)) {
      const auto v = values(2);
      return b_->binary(*k, v[0], v[1]);
    }
    if (const auto k = kind_named<CompareOp>(name)) {
      const auto v = values(2);
      return b_->compare(*k, v[0], v[1]);
    }
    if (const auto k = kind_named<MathOp>(name)) {
      auto v = values(static_cast<std::size_t>(operand_count(*k)));
      v.resize(3, no_node);
      return b_->math(*k, v[0], v[1], v[2]);
    }
    if (name == "select") {
      const auto v = values(3);
      return b_->select(v[0], v[1], v[2]);
    }
    if (name == "cast") return b_->cast(wanted.dtype, values(1)[0]);
    if (name == "bitcast") return b_->bitcast(wanted.dtype, values(1)[0]);
    if (name == "vector") return b_->make_vector(values());
    if (name == "extract") {
      const NodeId vector = value();
      keyword(",");
      return b_->extract(vector, integer<std::uint32_t>());
    }
    if (name == "load") {
      const auto [memory, index] = element();
      if (!accept("if")) return b_->load(memory, index, wanted.lanes);
      const NodeId mask = value();
      keyword("else");
      return b_->load_if(mask, memory, index, value());
    }
    if (name == "block_uniform") return b_->block_uniform(values(1)[0]);
    if (name.starts_with("atomic_"))
      if (const auto k = kind_named<AtomicOp>(after("atomic_"))) {
        const auto [memory, index] = element();
        keyword(",");
        const auto v = values(2, *k != AtomicOp::cas);
        return b_->atomic(*k, memory, index, v[0], v[1]);
      }
    if (name.starts_with("subgroup_"))
      if (const auto k = kind_named<SubgroupOp>(after("subgroup_"))) {
        const auto v = values(2, true);
        return b_->subgroup(*k, v[0], v[1]);
      }
    if (name.starts_with("block_scan_")) {
      std::string_view kind = after("block_scan_");
      const bool exclusive = kind.ends_with("_exclusive");
      if (exclusive) kind.remove_suffix(std::string_view("_exclusive").size());
      if (const auto k = kind_named<ReduceOp>(kind)) return b_->block_scan(*k, values(1)[0], exclusive);
    } else if (name.starts_with("block_")) {
      if (const auto k = kind_named<ReduceOp>(after("block_"))) return b_->block_reduce(*k, values(1)[0]);
    }
    if (name.starts_with("dot4_"))
      if (const auto k = kind_named<Dot4Signs>(after("dot4_"))) {
        const auto v = values(3);
        return b_->dot4(*k, v[0], v[1], v[2]);
      }
    if (name.starts_with("place_"))
      if (const auto k = kind_named<PlaceOf>(after("place_"))) return b_->place(*k, values(1)[0]);
    wrong("there is no operation '" + std::string(name) + "'");
  }

  // Statements.

  /// Parses the statements of a block. They are indented more than `outside`, all by the same number of spaces.
  void statements(std::size_t outside) {
    if (at_ >= lines_.size() || lines_[at_].indent <= outside) return;
    const std::size_t indent = lines_[at_].indent;
    while (at_ < lines_.size() && lines_[at_].indent > outside) {
      begin_line();
      if (rest_.starts_with("holds ")) return;  // ends the condition of a while
      if (lines_[at_].indent != indent) wrong("the indentation differs from that of the statement before");
      statement(indent);
    }
  }
  void done() {
    end_of_line();
    ++at_;
  }
  void statement(std::size_t indent) {
    if (rest_.front() == '%') {
      std::size_t n = 1;
      while (n < rest_.size() && is_word(rest_[n])) ++n;
      const std::string_view name = take(n);
      keyword(":");
      const Type t = type();
      keyword("=");
      const NodeId id = expression(t);
      if (b_->type(id) != t) wrong("the result is " + type_name(b_->type(id)) + ", not " + type_name(t));
      define(name, id);
    } else if (accept("store")) {
      const auto [memory, index] = element();
      keyword(",");
      b_->store(memory, index, value());
    } else if (accept("barrier")) {
      b_->barrier();
    } else if (accept("return")) {
      b_->return_();
    } else if (accept("print")) {
      print();
    } else if (accept("if")) {
      return if_statement(indent);
    } else if (accept("for")) {
      return for_statement(indent);
    } else if (accept("while")) {
      return while_statement(indent);
    } else if (rest_.starts_with("mma_")) {
      matrix(word().substr(4));
    } else if (rest_.starts_with("async_")) {
      async(word().substr(6));
    } else {
      wrong("there is no statement '" + std::string(word()) + "'",
            "Results have a name and a type, as in '%1: f32 = add %2, %3'");
    }
    done();
  }
  void print() {
    keyword("\"");
    const std::size_t end = rest_.rfind('"');
    if (end == rest_.npos) wrong("the text has no closing '\"'");
    std::string format(take(end));
    keyword("\"");
    skip_spaces();
    const std::vector<NodeId> shown = rest_.empty() ? std::vector<NodeId>{} : values();
    b_->print(std::move(format), shown);
  }
  void if_statement(std::size_t indent) {
    const NodeId condition = value();
    done();
    // The builder traces `otherwise` after `then`, so the first pass has to find out whether there is an `else`.
    std::size_t end = at_;
    while (end < lines_.size() && lines_[end].indent > indent) ++end;
    const bool has_else = end < lines_.size() && lines_[end].indent == indent && lines_[end].text == "else";
    const auto then = [&] { statements(indent); };
    if (!has_else) return b_->if_(condition, then);
    b_->if_(condition, then, [&] {
      ++at_;
      statements(indent);
    });
  }
  void for_statement(std::size_t indent) {
    const std::string_view counter = word();
    keyword("from");
    const NodeId begin = value();
    keyword("to");
    const NodeId end = value();
    keyword("step");
    const NodeId step = value();
    std::optional<Unroll> unroll;
    if (accept("unroll")) unroll = Unroll{integer<std::uint32_t>()};
    done();
    b_->for_(
        begin, end, step,
        [&](NodeId id) {
          define(counter, id);
          statements(indent);
          names_.erase(names_.find(counter));
        },
        unroll);
  }
  void while_statement(std::size_t indent) {
    done();
    b_->while_(
        [&] {
          statements(indent + 1);
          if (at_ >= lines_.size()) wrong("the while has no line 'holds CONDITION'");
          begin_line();
          keyword("holds");
          const NodeId condition = value();
          done();
          return condition;
        },
        [&] { statements(indent); });
  }
  void matrix(std::string_view name) {
    if (name.starts_with("reduce_rows_")) {
      const auto k = kind_named<ReduceOp>(name.substr(std::string_view("reduce_rows_").size()));
      if (!k) wrong("there is no statement 'mma_" + std::string(name) + "'");
      const auto v = values(2);
      return b_->mma_reduce_rows(*k, v[0], v[1]);
    }
    const auto kind = kind_named<MmaOp>(name);
    if (!kind) wrong("there is no statement 'mma_" + std::string(name) + "'");
    if (*kind == MmaOp::load || *kind == MmaOp::store) {
      const NodeId fragment = value();
      keyword(",");
      const auto [memory, index] = element();
      keyword("stride");
      const NodeId stride = value();
      if (*kind == MmaOp::store) return b_->mma_store(fragment, memory, index, stride);
      return b_->mma_load(fragment, memory, index, stride, accept("transposed"));
    }
    const auto v = values(*kind == MmaOp::multiply ? 3 : 2);
    if (*kind == MmaOp::multiply) return b_->mma_multiply(v[0], v[1], v[2], accept("replacing"));
    if (*kind == MmaOp::fill) return b_->mma_fill(v[0], v[1]);
    b_->mma_convert(v[0], v[1]);
  }
  void async(std::string_view name) {
    if (name == "commit") return b_->async_commit();
    if (name == "wait") return b_->async_wait(integer<std::uint32_t>());
    if (name != "copy") wrong("there is no statement 'async_" + std::string(name) + "'");
    const auto [to, index] = element();
    keyword(",");
    const auto [from, start] = element();
    keyword(",");
    b_->copy_async(to, index, from, start, integer<std::uint32_t>());
  }

  std::vector<Line> lines_;
  std::size_t at_ = 0;  ///< the current line
  std::string_view rest_;
  Builder* b_ = nullptr;
  std::map<std::string, NodeId, std::less<>> names_;
};

}  // namespace

Function parse(std::string_view text) { return Parser(text).run(); }

}  // namespace tessera::ir
