// SPDX-License-Identifier: Apache-2.0
// Internals of the interpreter: a function as a list of instructions over a slab of lanes, and the state of one run.
// Each value has a fixed place in the slab; each instruction is a loop over lanes, selected during preparation.
#pragma once

#include <cstring>

#include "tessera/ir/interpreter.h"
#include "tessera/ir/semantics.h"

namespace tessera::ir::engine {

struct Machine;
class Checker;

/// Lanes [begin, end), of which `active` are set in `lanes`; the first and the last one are active.
struct Mask {
  std::uint8_t* lanes = nullptr;
  std::uint32_t begin = 0, end = 0, active = 0;
  bool full() const { return active == end - begin; }
};

struct Instruction;
using Run = void (*)(Machine&, const Instruction&);

/// Remedy for an index that overflows 32 bits although no buffer or extent requires 64.
inline constexpr const char* wide_index_remedy =
    "Compute it in 64 bits, e.g. cast<std::int64_t>(i) * width; subscripts accept 64-bit integers";

/// Offsets are in bytes within the slab. A vector is stored as one array of lanes per component, `Program::stride`
/// lanes each.
struct Instruction {
  Run run = nullptr;
  NodeId node = no_node;
  std::uint32_t memory = 0;  ///< number in Program::memories
  std::uint32_t width = 1;   ///< elements of the value, 1 to 4
  std::size_t out = 0;
  std::array<std::size_t, 4> in = {};
  std::array<std::uint32_t, 2> nested = {no_block, no_block};  ///< nested blocks of a control instruction
  std::size_t masks = 0;                                       ///< offset of its two masks
  std::uint64_t imm = 0;
};

struct MemorySlot {
  enum Kind : std::uint8_t { buffer, shared, local } kind = buffer;
  NodeId node = no_node;
  DType dtype = DType::f32;     ///< never `index`
  std::uint32_t lanes = 1;      ///< vector length of locals
  std::uint64_t elements = 0;   ///< shared, local
  std::uint64_t parameter = 0;  ///< buffer
  std::size_t offset = 0;       ///< shared, local: offset in the slab
  std::size_t bytes = 0;
  std::string name;
};

/// A leaf whose lanes are initialised at the start of a run or of each block.
struct Leaf {
  NodeId node = no_node;
  DType dtype = DType::i32;  ///< never `index`
  std::size_t offset = 0;
};

struct Program {
  Function fn;
  InterpreterOptions options;
  std::uint32_t lanes = 1;    ///< threads in a block, or in a row of a map kernel
  std::uint32_t stride = 64;  ///< lanes rounded up to whole cache lines of bytes
  std::vector<std::vector<Instruction>> blocks;
  std::vector<MemorySlot> memories;
  std::vector<Leaf> run_leaves, block_leaves;
  std::size_t all_mask = 0, scratch_mask = 0;
  std::size_t slab_bytes = 0;
};

/// Throws KernelError for a node that cannot be interpreted.
Program prepare(Function fn, const InterpreterOptions& options);

/// The memory of one run.
struct Memory {
  std::byte* data = nullptr;
  std::uint64_t elements = 0;
  const MemorySlot* slot = nullptr;
  std::uint8_t* written = nullptr;  ///< InterpreterArgument::written
};

/// The state of one run on one host thread.
struct Machine {
  const Program& program;
  std::byte* slab;
  Checker* checker = nullptr;  ///< set if checks are on
  std::vector<Memory> memories = {};
  std::array<std::uint64_t, 3> shape = {1, 1, 1};
  std::uint64_t block = 0;    ///< linear number of the block, or of the row of a map kernel
  std::uint32_t threads = 0;  ///< number of threads in this block
  Mask mask = {};
  std::vector<std::array<std::uint64_t, 3>> reported = {};  ///< kind and nodes of the findings reported so far

  template <class T>
  T* lanes(std::size_t offset) const {
    return reinterpret_cast<T*>(slab + offset);
  }

  void execute(BlockId b) {
    for (const Instruction& i : program.blocks[b]) i.run(*this, i);
  }
  /// Converts linear thread and block numbers to positions.
  std::array<std::uint64_t, 3> thread_ids(std::uint64_t in_block, std::uint32_t lane) const;
  std::array<std::uint64_t, 3> block_ids(std::uint64_t linear) const;
  std::string thread_text(std::uint64_t in_block, std::uint32_t lane) const;

  struct Report {
    Finding::Kind kind;
    NodeId node;
    std::uint32_t lane;
    std::string wrong, remedy;
    const Memory* memory = nullptr;
    std::int64_t element = 0;
    NodeId other = no_node;
  };
  /// Reports a finding unless already reported, or throws it.
  void found(Report report);
  void out_of_bounds(const Instruction& i, std::uint32_t lane, std::int64_t element, std::uint32_t width,
                     const char* verb);
};

/// Reports a divergence if only some of the threads [begin, end), which form its `group`, are active.
void require_all(Machine& m, const Instruction& i, std::uint32_t begin, std::uint32_t end, const char* group);

/// The lanes of `from` where `condition` equals `wanted`, written to `lanes`; returns `from` if that is all of them.
Mask narrowed(const Mask& from, const bool* condition, bool wanted, std::uint8_t* lanes);
/// Trims a mask to the range of its active lanes and counts them.
Mask trimmed(std::uint8_t* lanes, std::uint32_t begin, std::uint32_t end);

/// Calls f(lane) for the active lanes in ascending order.
template <class F>
void for_each_lane(const Mask& mask, F&& f) {
  if (mask.full()) {
    for (std::uint32_t l = mask.begin; l < mask.end; ++l) f(l);
  } else {
    for (std::uint32_t l = mask.begin; l < mask.end; ++l)
      if (mask.lanes[l]) f(l);
  }
}

/// The C++ type of a lane; `half` and `bfloat16` as stored. `index` must be resolved.
template <class F>
decltype(auto) with_lane_type(DType t, F&& f) {
  if (t == DType::f16) return f(half{});
  if (t == DType::bf16) return f(bfloat16{});
  return with_compute_type(t, f);
}
/// Selects a type by size only, except bool; for copying bits.
template <class F>
decltype(auto) with_storage_type(DType t, F&& f) {
  if (t == DType::boolean) return f(bool{});
  switch (dtype_size(t)) {
    case 1: return f(std::uint8_t{});
    case 2: return f(std::uint16_t{});
    case 4: return f(std::uint32_t{});
    default: return f(std::uint64_t{});
  }
}

// The loop for a node; null if there is none for these types.
Run pure_loop(const Node& n, DType type, DType operand);
Run cast_loop(DType to, DType from);
Run select_loop(DType type);
Run copy_loop(DType type);  ///< builds a vector: in[0..width) to out
Run load_loop(DType type, DType index, MemorySlot::Kind kind, bool masked, bool checked);
Run store_loop(DType type, DType index, MemorySlot::Kind kind, bool checked);
Run local_load_constant(DType type);  ///< imm: the element
Run local_store_constant(DType type);
Run atomic_loop(AtomicOp op, DType type, DType index, bool checked);
Run subgroup_loop(SubgroupOp op, DType type, DType lane, bool checked);
Run block_loop(Op op, ReduceOp reduce, DType type, bool exclusive, bool checked);
Run matrix_loop(MmaOp op, DType index, bool checked);
Run for_loop(DType type);
Run if_loop();
Run while_loop();
Run barrier_loop(bool checked);
Run print_loop();
Run index_check_loop();  ///< in[0]: i64 lanes that must fit into 32 bits

}  // namespace tessera::ir::engine
