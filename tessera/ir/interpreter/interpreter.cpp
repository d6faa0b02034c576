// SPDX-License-Identifier: Apache-2.0
#include "tessera/ir/interpreter.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "tessera/base/error.h"
#include "tessera/base/os/per_thread.h"
#include "tessera/ir/interpreter/checker.h"

namespace tessera::ir {

namespace engine {

namespace {

std::string ids_text(const std::array<std::uint64_t, 3>& ids) {
  return "(" + std::to_string(ids[0]) + ", " + std::to_string(ids[1]) + ", " + std::to_string(ids[2]) + ")";
}
std::array<std::uint64_t, 3> split(std::uint64_t linear, std::uint64_t first, std::uint64_t second) {
  return {linear % first, linear / first % second, linear / first / second};
}

template <class F>
void fill(const Machine& m, const Leaf& leaf, F&& value_of_lane) {
  with_lane_type(leaf.dtype, [&](auto tag) {
    using T = decltype(tag);
    T* out = m.lanes<T>(leaf.offset);
    if constexpr (std::is_integral_v<T>)
      for (std::uint32_t l = 0; l < m.program.lanes; ++l) out[l] = static_cast<T>(value_of_lane(l));
  });
}
void fill_bits(const Machine& m, const Leaf& leaf, std::uint64_t bits) {
  with_lane_type(leaf.dtype, [&](auto tag) {
    using T = decltype(tag);
    T value;
    if constexpr (std::is_same_v<T, half> || std::is_same_v<T, bfloat16>)
      value.bits = static_cast<std::uint16_t>(bits);
    else
      value = from_bits<T>(leaf.dtype, bits);
    T* out = m.lanes<T>(leaf.offset);
    std::fill(out, out + m.program.lanes, value);
  });
}

void fill_run_leaf(const Machine& m, const Leaf& leaf, std::span<const InterpreterArgument> arguments) {
  const Function& fn = m.program.fn;
  const Node& n = fn[leaf.node];
  if (n.op == Op::constant) return fill_bits(m, leaf, n.imm);
  if (n.op == Op::param) return fill_bits(m, leaf, arguments[n.imm].bits);
  const bool map = fn.kind == KernelKind::map;
  const std::size_t d = n.imm < 3 ? n.imm : 0;
  const std::uint32_t width = m.program.options.subgroup_width, threads = fn.threads_per_block();
  const auto& block = fn.block_size;
  switch (n.kind<IndexKind>()) {
    case IndexKind::thread_id: return fill(m, leaf, [&](std::uint32_t l) { return split(l, block[0], block[1])[d]; });
    case IndexKind::lane_id: return fill(m, leaf, [&](std::uint32_t l) { return l % width; });
    case IndexKind::subgroup_id: return fill(m, leaf, [&](std::uint32_t l) { return l / width; });
    case IndexKind::block_size: return fill_bits(m, leaf, map ? 1 : block[d]);
    case IndexKind::block_count: return fill_bits(m, leaf, m.shape[d]);
    case IndexKind::grid_size:
    case IndexKind::extent: return fill_bits(m, leaf, map ? m.shape[d] : m.shape[d] * block[d]);
    case IndexKind::subgroup_size: return fill_bits(m, leaf, width);
    case IndexKind::lane_elements:
      return fill(m, leaf, [&](std::uint32_t l) { return (fragment_elements - 1 + m.lanes_of(l)) / m.lanes_of(l); });
    case IndexKind::lane_rows: return fill_bits(m, leaf, fragment_side);
    case IndexKind::subgroup_count: return fill_bits(m, leaf, (threads + width - 1) / width);
    case IndexKind::buffer_size: return fill_bits(m, leaf, arguments[n.imm].elements);
    default: return;
  }
}
void fill_block_leaf(const Machine& m, const Leaf& leaf) {
  const Function& fn = m.program.fn;
  const Node& n = fn[leaf.node];
  const std::size_t d = n.imm;
  if (fn.kind == KernelKind::map) {
    const std::uint64_t first = m.block * m.program.lanes;
    if (m.shape[1] == 1 && m.shape[2] == 1)
      return fill(m, leaf, [&](std::uint32_t l) { return d == 0 ? first + l : 0; });
    std::array<std::uint64_t, 3> ids = split(first, m.shape[0], m.shape[1]);
    return fill(m, leaf, [&](std::uint32_t) {
      const std::uint64_t mine = ids[d];
      if (++ids[0] == m.shape[0] && (ids[0] = 0, ++ids[1] == m.shape[1])) ids[1] = 0, ++ids[2];
      return mine;
    });
  }
  const std::uint64_t block = m.block_ids(m.block)[d];
  if (n.kind<IndexKind>() == IndexKind::block_id) return fill_bits(m, leaf, block);
  const auto& size = fn.block_size;
  fill(m, leaf, [&](std::uint32_t l) { return block * size[d] + split(l, size[0], size[1])[d]; });
}

/// Zeroed lanes for one run. The thread keeps the allocation for its next run.
class Slab {
 public:
  explicit Slab(std::size_t bytes) {
    try {
      memory_ = std::exchange(kept(), {});
      if (memory_.size() < bytes + 64) memory_.resize(bytes + 64);
    } catch (const std::bad_alloc&) {
      fail<OutOfMemory>({.operation = "interpreter",
                         .with = {{"bytes", std::to_string(bytes)}},
                         .wrong = "out of memory for the values of a block's threads",
                         .remedy = "Use smaller blocks or smaller local arrays"});
    }
    const std::size_t past = reinterpret_cast<std::uintptr_t>(memory_.data()) % 64;
    data_ = memory_.data() + (past ? 64 - past : 0);
    std::memset(data_, 0, bytes);
  }
  ~Slab() {
    if (memory_.size() <= (std::size_t{4} << 20)) kept() = std::move(memory_);
  }
  Slab(const Slab&) = delete;
  Slab& operator=(const Slab&) = delete;
  std::byte* data() const { return data_; }

 private:
  static std::vector<std::byte>& kept() { return os::PerThread<std::vector<std::byte>, Slab>::get(); }
  std::vector<std::byte> memory_;
  std::byte* data_;
};

void run(const Program& p, std::array<std::uint64_t, 3> shape, std::span<const InterpreterArgument> arguments) {
  const Function& fn = p.fn;
  const Slab slab(p.slab_bytes);
  Machine m{.program = p, .slab = slab.data()};
  m.shape = shape;
  for (const MemorySlot& slot : p.memories) {
    if (slot.kind == MemorySlot::buffer) {
      const InterpreterArgument& a = arguments[slot.parameter];
      m.memories.push_back({a.data, a.elements, &slot, a.written});
    } else {
      m.memories.push_back({m.slab + slot.offset, slot.elements, &slot});
    }
  }
  std::unique_ptr<Checker> checker;
  if (p.options.checks) checker = std::make_unique<Checker>(m);
  m.checker = checker.get();
  for (const Leaf& leaf : p.run_leaves) fill_run_leaf(m, leaf, arguments);
  std::uint8_t* all = m.lanes<std::uint8_t>(p.all_mask);
  std::fill(all, all + p.lanes, std::uint8_t{1});

  const std::uint64_t total = shape[0] * shape[1] * shape[2];
  const bool map = fn.kind == KernelKind::map;
  const std::uint64_t rows = map ? (total + p.lanes - 1) / p.lanes : total;
  for (m.block = 0; m.block < rows; ++m.block) {
    m.threads = map ? static_cast<std::uint32_t>(std::min<std::uint64_t>(p.lanes, total - m.block * p.lanes)) : p.lanes;
    for (const MemorySlot& slot : p.memories)
      if (slot.kind != MemorySlot::buffer)
        std::memset(m.slab + slot.offset, slot.kind == MemorySlot::local ? 0 : 0xff, slot.bytes);
    for (const Leaf& leaf : p.block_leaves) fill_block_leaf(m, leaf);
    if (checker) checker->begin_block();
    m.mask = {all, 0, m.threads, m.threads};
    m.execute(0);
  }
}

void check_arguments(const Program& p, std::array<std::uint64_t, 3> shape,
                     std::span<const InterpreterArgument> arguments) {
  const Function& fn = p.fn;
  const std::string asked = "kernel " + fn.name;
  if (arguments.size() != fn.params.size())
    fail<KernelError>({.operation = asked,
                       .wrong = "the kernel takes " + std::to_string(fn.params.size()) + " arguments, but got " +
                                std::to_string(arguments.size())});
  for (std::size_t k = 0; k < arguments.size(); ++k)
    if (fn.params[k].is_buffer && arguments[k].elements != 0 && !arguments[k].data)
      fail<KernelError>(
          {.operation = asked, .wrong = "the buffer " + fn.params[k].name + " has elements but a null pointer"});
  std::uint64_t threads = fn.kind == KernelKind::map ? 1 : fn.threads_per_block();
  for (const std::uint64_t s : shape)
    if (__builtin_mul_overflow(threads, s, &threads) || threads > (std::uint64_t{1} << 62))
      fail<KernelError>({.operation = asked, .wrong = "the grid has more than 2^62 threads"});
}

}  // namespace

std::array<std::uint64_t, 3> Machine::thread_ids(std::uint64_t in_block, std::uint32_t lane) const {
  const Function& fn = program.fn;
  if (fn.kind == KernelKind::map) return split(in_block * program.lanes + lane, shape[0], shape[1]);
  return split(lane, fn.block_size[0], fn.block_size[1]);
}
std::array<std::uint64_t, 3> Machine::block_ids(std::uint64_t linear) const {
  return program.fn.kind == KernelKind::map ? std::array<std::uint64_t, 3>{} : split(linear, shape[0], shape[1]);
}
std::string Machine::thread_text(std::uint64_t in_block, std::uint32_t lane) const {
  const std::string thread = "thread " + ids_text(thread_ids(in_block, lane));
  return program.fn.kind == KernelKind::map ? thread : thread + " of block " + ids_text(block_ids(in_block));
}

void Machine::found(Report r) {
  const std::array<std::uint64_t, 3> key = {static_cast<std::uint64_t>(r.kind), r.node, r.other};
  if (std::ranges::find(reported, key) != reported.end()) return;
  reported.push_back(key);
  Finding f;
  f.kind = r.kind;
  f.kernel = program.fn.name;
  f.line = program.fn.sources[r.node];
  if (r.other != no_node) f.other_line = program.fn.sources[r.other];
  if (r.memory) f.memory = r.memory->slot->name, f.size = r.memory->elements, f.element = r.element;
  f.thread = thread_ids(block, r.lane);
  f.block = block_ids(block);
  const std::string line = to_string(f.line);
  const std::string asked = "kernel " + f.kernel + (line.empty() ? "" : ", " + line);
  const std::string size_name = "elements of " + f.memory;
  f.text = r.memory ? error_text({.operation = asked,
                                  .with = {{size_name, std::to_string(f.size)}},
                                  .wrong = r.wrong,
                                  .remedy = r.remedy})
                    : error_text({.operation = asked, .wrong = r.wrong, .remedy = r.remedy});
  if (!program.options.report) fail<KernelError>({.operation = {}, .wrong = f.text});
  program.options.report(f);
}

void Machine::check_alignment(const Instruction& i, std::uint32_t lane, std::int64_t element) {
  const Node& n = program.fn[i.node];
  const std::uint64_t count = n.op == Op::async ? n.imm : i.width;
  if (count == 1 || count == 3 || element % static_cast<std::int64_t>(count) == 0 || !program.fn.aligned_vectors)
    return;
  const Memory& memory = memories[i.memory];
  if (memory.slot->kind != MemorySlot::buffer && n.op != Op::async) return;
  const std::string width = std::to_string(count), at = std::to_string(element);
  found({.kind = Finding::Kind::misaligned,
         .node = i.node,
         .lane = lane,
         .wrong = thread_text(block, lane) + " accesses " + width + " elements from " + memory.slot->name + "[" + at +
                  "], and " + at + " is not a multiple of " + width,
         .remedy = "Use multiples of the number of elements as indices, or remove aligned_vectors()",
         .memory = &memory,
         .element = element});
}

void Machine::out_of_bounds(const Instruction& i, std::uint32_t lane, std::int64_t element, std::uint32_t width,
                            const char* verb) {
  const Memory& memory = memories[i.memory];
  const Node& n = program.fn[i.node];
  const bool overflow = !program.fn.index64 && element != static_cast<std::int32_t>(element) &&
                        program.fn[n.args[n.op == Op::mma                            ? 2
                                          : n.op == Op::async && i.in[2] == i.memory ? 3
                                                                                     : 1]]
                                .type.dtype == DType::index;
  const std::string elements = width == 1 ? "" : " to [" + std::to_string(element + (width - 1)) + "]";
  found({.kind = overflow ? Finding::Kind::index_overflow : Finding::Kind::out_of_bounds,
         .node = i.node,
         .lane = lane,
         .wrong = thread_text(block, lane) + " " + verb + " " + memory.slot->name + "[" + std::to_string(element) +
                  "]" + elements + ", which is out of bounds" +
                  (overflow ? " and does not fit into a 32-bit index" : ""),
         .remedy = overflow ? wide_index_remedy : "Guard it with if_, or use load_if",
         .memory = &memory,
         .element = element});
}

}  // namespace engine

struct Interpreter::State {
  engine::Program program;
};

Interpreter::Interpreter(Function fn, InterpreterOptions options)
    : state_(std::make_unique<State>(State{engine::prepare(std::move(fn), options)})) {}
Interpreter::~Interpreter() = default;
Interpreter::Interpreter(Interpreter&&) noexcept = default;
Interpreter& Interpreter::operator=(Interpreter&&) noexcept = default;

void Interpreter::run(std::array<std::uint64_t, 3> shape, std::span<const InterpreterArgument> arguments) const {
  engine::check_arguments(state_->program, shape, arguments);
  if (shape[0] != 0 && shape[1] != 0 && shape[2] != 0) engine::run(state_->program, shape, arguments);
}
const Function& Interpreter::function() const { return state_->program.fn; }

void interpret(const Function& fn, std::array<std::uint64_t, 3> shape, std::span<const InterpreterArgument> arguments,
               const InterpreterOptions& options) {
  Interpreter(fn, options).run(shape, arguments);
}

std::vector<Function> without_each_barrier(const Function& fn) {
  std::vector<Function> out;
  for (std::size_t b = 0; b < fn.blocks.size(); ++b)
    for (std::size_t k = 0; k < fn.blocks[b].size(); ++k) {
      const Node& n = fn[fn.blocks[b][k]];
      if (n.op != Op::barrier && !(n.op == Op::async && n.kind<AsyncOp>() == AsyncOp::wait)) continue;
      Function& cut = out.emplace_back(fn);
      cut.blocks[b].erase(cut.blocks[b].begin() + static_cast<std::ptrdiff_t>(k));
    }
  return out;
}

}  // namespace tessera::ir
