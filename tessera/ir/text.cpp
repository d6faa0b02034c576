// SPDX-License-Identifier: Apache-2.0
// The text form and the hash of a function.
#include "tessera/base/sha256.h"
#include "tessera/ir/digest.h"
#include "tessera/ir/node.h"
#include "tessera/ir/semantics.h"

#include <fmt/format.h>

namespace tessera::ir {

namespace {

std::string constant_text(const Node& n) {
  if (n.type.dtype == DType::boolean) return n.imm ? "true" : "false";
  return with_compute_type(n.type.dtype, [&](auto tag) {
    using T = decltype(tag);
    const T v = from_bits<T>(n.type.dtype, n.imm);
    if constexpr (std::is_same_v<T, bool>)
      return std::string(v ? "true" : "false");
    else if constexpr (std::is_floating_point_v<T>)
      return fmt::format("{}:{}", v, dtype_name(n.type.dtype));
    else
      return fmt::format("{}:{}", +v, dtype_name(n.type.dtype));
  });
}

class Printer {
 public:
  explicit Printer(const Function& fn) : fn_(fn), numbers_(fn.nodes.size()) {}

  std::string run() {
    out_ = fmt::format("kernel {} ", fn_.name);
    if (fn_.kind == KernelKind::map)
      out_ += "map";
    else
      out_ += fmt::format("block({}, {}, {})", fn_.block_size[0], fn_.block_size[1], fn_.block_size[2]);
    if (fn_.index64) out_ += " index64";
    if (fn_.exact) out_ += " exact";
    if (fn_.aligned_vectors) out_ += " aligned_vectors";
    if (fn_.layout != FragmentLayout::linear) out_ += fmt::format(" layout {}", static_cast<int>(fn_.layout));
    if (fn_.min_blocks != 0) out_ += " blocks_at_least " + std::to_string(fn_.min_blocks);
    out_ += "\n";
    for (const Param& p : fn_.params)
      out_ += fmt::format("  {} {}: {}{}\n", p.is_buffer ? "buffer" : "scalar", p.name, dtype_name(p.dtype),
                          !p.is_buffer               ? ""
                          : p.access == Access::read ? " read"
                                                     : " read_write");
    for (const Node& n : fn_.nodes)
      if (n.op == Op::local || n.op == Op::shared)
        out_ += fmt::format("  {}{}: {}[{}]{}\n", op_name(n.op), n.extra, type_name(n.type), n.imm,
                            is_fragment(n) ? fmt::format(" {}", name_of(n.kind<FragmentRole>())) : "");
    block(0, 1);
    return std::move(out_);
  }

 private:
  std::string value(NodeId id) {
    const Node& n = fn_[id];
    switch (n.op) {
      case Op::constant: return constant_text(n);
      case Op::param: return fn_.params[n.imm].name;
      case Op::local:
      case Op::shared: return fmt::format("{}{}", op_name(n.op), n.extra);
      case Op::index:
        if (n.kind<IndexKind>() == IndexKind::counter) return fmt::format("i{}", n.imm);
        if (n.kind<IndexKind>() == IndexKind::buffer_size) return fmt::format("{}.size", fn_.params[n.imm].name);
        return fmt::format("{}({})", name_of(n.kind<IndexKind>()), n.imm);
      default: return fmt::format("%{}", numbers_[id]);
    }
  }
  std::string list(const Node& n, std::size_t from = 0) {
    std::string s;
    auto args = operands(n);
    for (std::size_t i = from; i < args.size(); ++i) s += (i > from ? ", " : "") + value(args[i]);
    return s;
  }
  std::string_view sub_name(const Node& n) {
    switch (n.op) {
      case Op::unary: return name_of(n.kind<UnaryOp>());
      case Op::binary: return name_of(n.kind<BinaryOp>());
      case Op::compare: return name_of(n.kind<CompareOp>());
      case Op::math: return name_of(n.kind<MathOp>());
      default: return op_name(n.op);
    }
  }
  std::string expression(const Node& n) {
    switch (n.op) {
      case Op::load: return fmt::format("load {}[{}]", value(n.args[0]), value(n.args[1]));
      case Op::load_if:
        return fmt::format("load {}[{}] if {} else {}", value(n.args[0]), value(n.args[1]), value(n.args[2]),
                           value(n.args[3]));
      case Op::atomic:
        return fmt::format("atomic_{} {}[{}], {}", name_of(n.kind<AtomicOp>()), value(n.args[0]), value(n.args[1]),
                           list(n, 2));
      case Op::subgroup: return fmt::format("subgroup_{} {}", name_of(n.kind<SubgroupOp>()), list(n));
      case Op::block_reduce: return fmt::format("block_{} {}", name_of(n.kind<ReduceOp>()), list(n));
      case Op::block_scan:
        return fmt::format("block_scan_{}{} {}", name_of(n.kind<ReduceOp>()), n.imm ? "_exclusive" : "", list(n));
      case Op::place: return fmt::format("place_{} {}", name_of(n.kind<PlaceOf>()), list(n));
      case Op::dot4: return fmt::format("dot4_{} {}", name_of(n.kind<Dot4Signs>()), list(n));
      case Op::vector:
        return n.kind<VectorOp>() == VectorOp::make ? "vector " + list(n)
                                                    : fmt::format("extract {}, {}", list(n), n.imm);
      default: return fmt::format("{} {}", sub_name(n), list(n));
    }
  }
  std::string matrix(const Node& n) {
    const std::string start = fmt::format("mma_{} ", name_of(n.kind<MmaOp>()));
    if (n.kind<MmaOp>() == MmaOp::reduce_rows)
      return fmt::format("mma_reduce_rows_{} {}", name_of(static_cast<ReduceOp>(n.imm)), list(n));
    if (n.kind<MmaOp>() == MmaOp::multiply) return start + list(n) + (n.extra ? " replacing" : "");
    if (n.kind<MmaOp>() != MmaOp::load && n.kind<MmaOp>() != MmaOp::store) return start + list(n);
    return start + fmt::format("{}, {}[{}] stride {}{}", value(n.args[0]), value(n.args[1]), value(n.args[2]),
                               value(n.args[3]), n.extra ? " transposed" : "");
  }
  std::string async(const Node& n) {
    const std::string start = fmt::format("async_{}", name_of(n.kind<AsyncOp>()));
    if (n.kind<AsyncOp>() == AsyncOp::commit) return start;
    if (n.kind<AsyncOp>() == AsyncOp::wait) return fmt::format("{} {}", start, n.imm);
    return fmt::format("{} {}[{}], {}[{}], {}", start, value(n.args[0]), value(n.args[1]), value(n.args[2]),
                       value(n.args[3]), n.imm);
  }
  void line(int depth, const std::string& text) {
    out_ += std::string(2 * static_cast<std::size_t>(depth), ' ') + text + "\n";
  }

  void block(BlockId b, int depth) {
    for (NodeId id : fn_.blocks[b]) {
      const Node& n = fn_[id];
      switch (n.op) {
        case Op::store:
          line(depth, fmt::format("store {}[{}], {}", value(n.args[0]), value(n.args[1]), value(n.args[2])));
          break;
        case Op::mma: line(depth, matrix(n)); break;
        case Op::barrier: line(depth, "barrier"); break;
        case Op::async: line(depth, async(n)); break;
        case Op::return_: line(depth, "return"); break;
        case Op::print: line(depth, fmt::format("print \"{}\" {}", fn_.strings[n.extra], list(n))); break;
        case Op::if_:
          line(depth, fmt::format("if {}", value(n.args[0])));
          block(n.args[1], depth + 1);
          if (n.args[2] != no_block) {
            line(depth, "else");
            block(n.args[2], depth + 1);
          }
          break;
        case Op::for_:
          line(depth, fmt::format("for {} from {} to {} step {}{}", value(n.args[3]), value(n.args[0]),
                                  value(n.args[1]), value(n.args[2]), n.imm ? fmt::format(" unroll {}", n.imm) : ""));
          block(n.extra, depth + 1);
          break;
        case Op::while_:
          line(depth, "while");
          block(n.args[1], depth + 2);
          line(depth + 1, fmt::format("holds {}", value(n.args[0])));
          block(n.extra, depth + 1);
          break;
        default:
          numbers_[id] = ++count_;
          line(depth, fmt::format("%{}: {} = {}", count_, type_name(n.type), expression(n)));
      }
    }
  }

  const Function& fn_;
  std::vector<int> numbers_;
  int count_ = 0;
  std::string out_;
};

// Two independent multiplicative hashes of the same words. 128 bits are enough to avoid accidental collisions within
// one program; caches on disk use `digest_of`.
struct Hasher {
  std::uint64_t a = 0x243F6A8885A308D3ull, b = 0x13198A2E03707344ull;
  void operator()(std::uint64_t v) {
    a = (a ^ v) * 0x9E3779B97F4A7C15ull, a ^= a >> 32;
    b = (b + v) * 0xD6E8FEB86659FD93ull, b ^= b >> 29;
  }
};

/// Calls `word` with all data of a function except names and source lines.
template <class F>
void each_word(const Function& fn, F&& word) {
  word(static_cast<std::uint64_t>(fn.kind) | std::uint64_t{fn.index64} << 8 | std::uint64_t{fn.exact} << 9 |
       std::uint64_t{fn.aligned_vectors} << 10 | static_cast<std::uint64_t>(fn.layout) << 12 |
       std::uint64_t{fn.min_blocks} << 16);
  for (auto s : fn.block_size) word(s);
  word(fn.params.size());
  for (const Param& p : fn.params)
    word(static_cast<std::uint64_t>(p.dtype) | std::uint64_t{p.is_buffer} << 8 |
         static_cast<std::uint64_t>(p.access) << 16);
  word(fn.nodes.size());
  for (const Node& n : fn.nodes) {
    word(static_cast<std::uint64_t>(n.op) | std::uint64_t{n.sub} << 8 | static_cast<std::uint64_t>(n.type.dtype) << 16 |
         std::uint64_t{n.type.lanes} << 24 | std::uint64_t{n.extra} << 32);
    word(std::uint64_t{n.args[0]} | std::uint64_t{n.args[1]} << 32);
    word(std::uint64_t{n.args[2]} | std::uint64_t{n.args[3]} << 32);
    word(n.imm);
  }
  for (const Block& b : fn.blocks) {
    word(b.size());
    for (NodeId id : b) word(id);
  }
  for (const std::string& s : fn.strings) {
    word(s.size());
    for (char c : s) word(static_cast<unsigned char>(c));
  }
}

}  // namespace

std::string to_text(const Function& fn) { return Printer(fn).run(); }

Hash hash_of(const Function& fn) {
  Hasher h;
  each_word(fn, h);
  return {h.a, h.b};
}

std::string digest_of(const Function& fn) {
  std::string words;
  words.reserve(32 * fn.nodes.size() + 1024);
  each_word(fn, [&](std::uint64_t v) { words.append(reinterpret_cast<const char*>(&v), sizeof v); });
  return sha256(words);
}

std::string to_string(Hash hash) { return fmt::format("{:016x}{:016x}", hash.high, hash.low); }

}  // namespace tessera::ir
