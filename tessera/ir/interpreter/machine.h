// SPDX-License-Identifier: Apache-2.0
// Internals of the interpreter: a function as a list of instructions, and the state of one run. Each value has a fixed
// offset in one allocation (the slab) with space for all lanes. Each instruction is a loop over lanes, selected during
// preparation.
#pragma once

#include <algorithm>
#include <cstring>

#include "tessera/ir/interpreter.h"
#include "tessera/ir/semantics.h"

namespace tessera::ir::engine {

struct Machine;
class Checker;

/// The lanes [begin, end), of which `active` are set in `lanes`. The first and the last lane of the range are active.
struct Mask {
  std::uint8_t* lanes = nullptr;
  std::uint32_t begin = 0, end = 0, active = 0;
  bool full() const { return active == end - begin; }
};

struct Instruction;
using Run = void (*)(Machine&, const Instruction&);

/// The remedy for an index that exceeds 32 bits although no buffer or extent requires 64-bit indices.
inline constexpr const char* wide_index_remedy =
    "Compute it in 64 bits, e.g. cast<std::int64_t>(i) * width; subscripts accept 64-bit integers";

/// One operation. All offsets are in bytes within the slab. A vector is stored as one array of `Program::stride` lanes
/// per component.
struct Instruction {
  Run run = nullptr;
  NodeId node = no_node;
  std::uint32_t memory = 0;  ///< index into Program::memories
  std::uint32_t width = 1;   ///< elements of the value, 1 to 4
  std::size_t out = 0;
  std::array<std::size_t, 4> in = {};
  std::array<std::uint32_t, 2> nested = {no_block, no_block};  ///< the nested blocks of a control instruction
  std::size_t masks = 0;                                       ///< the offset of its two masks
  std::uint64_t imm = 0;
};

struct MemorySlot {
  enum Kind : std::uint8_t { buffer, shared, local } kind = buffer;
  NodeId node = no_node;
  DType dtype = DType::f32;     ///< never `index`, which is resolved to i32 or i64
  std::uint32_t lanes = 1;      ///< for locals: the vector length
  std::uint64_t elements = 0;   ///< for shared and local memory
  std::uint64_t parameter = 0;  ///< for buffers
  std::size_t offset = 0;       ///< for shared and local memory: the offset in the slab
  std::size_t bytes = 0;
  std::string name;
};

/// A leaf that is written to all lanes at the start of a run or of each block.
struct Leaf {
  NodeId node = no_node;
  DType dtype = DType::i32;  ///< never `index`, which is resolved to i32 or i64
  std::size_t offset = 0;
};

struct Program {
  Function fn;
  InterpreterOptions options;
  std::uint32_t lanes = 1;    ///< the threads in a block, or in a row of a map kernel
  std::uint32_t stride = 64;  ///< `lanes`, rounded up so that an array of bytes fills whole cache lines
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
  Checker* checker = nullptr;  ///< null if checks are off
  std::vector<Memory> memories = {};
  std::array<std::uint64_t, 3> shape = {1, 1, 1};
  std::uint64_t block = 0;    ///< the linear number of the block, or of the row of a map kernel
  std::uint32_t threads = 0;  ///< the number of threads in this block
  Mask mask = {};
  std::vector<std::array<std::uint64_t, 3>> reported = {};  ///< the kind and nodes of all findings reported so far

  template <class T>
  T* lanes(std::size_t offset) const {
    return reinterpret_cast<T*>(slab + offset);
  }

  /// Returns the number of threads in the subgroup of thread l.
  std::uint32_t lanes_of(std::uint32_t l) const {
    const std::uint32_t width = program.options.subgroup_width, begin = l / width * width;
    return std::min(width, program.lanes - begin);
  }

  void execute(BlockId b) {
    for (const Instruction& i : program.blocks[b]) i.run(*this, i);
  }
  /// These convert linear thread and block numbers to positions.
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
  /// Reports or throws a finding, unless the same finding has been reported before.
  void found(Report report);
  /// Reports an access that breaks the promise of Function::aligned_vectors.
  void check_alignment(const Instruction& i, std::uint32_t lane, std::int64_t element);
  void out_of_bounds(const Instruction& i, std::uint32_t lane, std::int64_t element, std::uint32_t width,
                     const char* verb);
};

/// Returns true if memory of `elements` elements contains `count` elements from `element` on.
inline bool inside(std::int64_t element, std::uint64_t count, std::uint64_t elements) {
  return element >= 0 && elements >= count && static_cast<std::uint64_t>(element) <= elements - count;
}

/// Reports divergence if only some of the threads [begin, end) are active. `group` names these threads in the message.
void require_all(Machine& m, const Instruction& i, std::uint32_t begin, std::uint32_t end, const char* group);

/// Returns the lanes of `from` for which `condition` equals `wanted`, and stores them in `lanes`. Returns `from` itself
/// if `condition` equals `wanted` for all its lanes.
Mask narrowed(const Mask& from, const bool* condition, bool wanted, std::uint8_t* lanes);
/// Returns the mask without inactive lanes at either end, and counts its active lanes.
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

/// Calls f with the C++ type of a lane. `half` and `bfloat16` are used in their storage format. `t` must not be
/// `index`.
template <class F>
decltype(auto) with_lane_type(DType t, F&& f) {
  if (t == DType::f16) return f(half{});
  if (t == DType::bf16) return f(bfloat16{});
  return with_compute_type(t, f);
}
/// Calls f with a type of the same size, or bool. Used to copy bits.
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

// These return the loop for a node, or null if there is no loop for these types.
Run pure_loop(const Node& n, DType type, DType operand);
Run cast_loop(DType to, DType from);
Run select_loop(DType type);
Run copy_loop(DType type);  ///< builds a vector from in[0..width)
Run load_loop(DType type, DType index, MemorySlot::Kind kind, bool masked, bool checked);
Run store_loop(DType type, DType index, MemorySlot::Kind kind, bool checked);
Run local_load_constant(DType type);  ///< imm is the index of the element
Run local_store_constant(DType type);
Run atomic_loop(AtomicOp op, DType type, DType index, bool checked);
Run subgroup_loop(SubgroupOp op, DType type, DType lane, bool checked);
Run block_loop(Op op, ReduceOp reduce, DType type, bool exclusive, bool checked);
Run matrix_loop(MmaOp op, DType index, bool checked);
Run element_loop(DType index, bool store);  ///< loads and stores of this lane's elements of an accumulator
Run store_pair_loop(DType index);           ///< stores of two elements of a left factor, in lowered functions
Run place_loop(PlaceOf what, DType index);
Run async_loop(AsyncOp op, DType index, bool checked);
Run for_loop(DType type);
Run if_loop();
Run while_loop();
Run barrier_loop(bool checked);
Run print_loop();
Run index_check_loop();  ///< in[0] contains i64 lanes, which must fit into 32 bits

}  // namespace tessera::ir::engine
