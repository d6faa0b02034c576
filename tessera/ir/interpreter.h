// SPDX-License-Identifier: Apache-2.0
// The reference interpreter: executes kernels on the host and checks them for errors. Runs whole blocks in lockstep,
// with an array of lanes per value under a mask, so it is also the fallback for the CPU.
#pragma once

#include <functional>
#include <memory>

#include "tessera/ir/builder.h"

namespace tessera::ir {

/// An argument of a launch, in the order of Function::params.
struct InterpreterArgument {
  std::byte* data = nullptr;   ///< buffers: host memory; any alignment
  std::uint64_t elements = 0;  ///< buffers: elements of the parameter's dtype
  std::uint64_t bits = 0;      ///< scalars: encoded like IR constants
  /// Buffers, with checks on: one flag per byte of `data`, non-zero if initialised. Reading other bytes is a finding;
  /// writes set the flags. Null: all bytes are initialised.
  std::uint8_t* written = nullptr;
};

/// An error found while running a kernel.
struct Finding {
  enum class Kind : std::uint8_t {
    out_of_bounds,  ///< an access before or past its memory
    race,           ///< two threads access one element, at least one writes, without synchronisation, not both atomic
    uninitialised,  ///< a read of shared memory that no thread of the block has written, or of a buffer's uninitialised
                    ///< elements
    divergence,     ///< a block or subgroup operation that not all threads reached, or whose operands differ where
                    ///< they must be equal: block_uniform, matrices
    index_overflow,  ///< an index that does not fit into 32 bits
    endless_loop     ///< a step that is not positive, or more while_ iterations than allowed
  };
  Kind kind = Kind::out_of_bounds;
  std::string kernel;
  SourceLine line;                           ///< line of the statement
  SourceLine other_line;                     ///< race: line of the conflicting access
  std::string memory;                        ///< the buffer's name, "shared1" or "local1"; may be empty
  std::int64_t element = 0;                  ///< index of the accessed element
  std::uint64_t size = 0;                    ///< size of the memory in elements
  std::array<std::uint64_t, 3> thread = {};  ///< position in the block; in map kernels global
  std::array<std::uint64_t, 3> block = {};   ///< block position; block kernels only
  std::string text;                          ///< the complete message, as in the KernelError
};

struct InterpreterOptions {
  /// Threads per subgroup, 1 to 128. Subgroups are consecutive linear thread ids; the last one of a block may be
  /// smaller.
  std::uint32_t subgroup_width = 32;
  /// Also finds races, reads of uninitialised memory, divergence and index overflow, at several times the cost.
  /// Out-of-bounds accesses are always found.
  bool checks = false;
  /// Called for each finding (once per kind and pair of statements). The kernel continues: out-of-bounds reads give 0,
  /// out-of-bounds writes are ignored. If empty, the first finding is thrown as a KernelError.
  std::function<void(const Finding&)> report;
  /// Called for each line that the kernel prints. If empty, lines go to standard output.
  std::function<void(std::string_view)> print;
  /// A while_ with more iterations is a finding; 0: no limit.
  std::uint64_t max_while_rounds = 0;
};

/// A function prepared for repeated execution.
///
/// Behaviour where the language leaves a choice:
///  - threads of a block run in lockstep; blocks, and rows of map threads, run one after the other in ascending order;
///  - atomics, stores to one element and prints of one statement are ordered by linear thread id;
///  - float sums over blocks and subgroups add in the order of linear thread ids, in the operands' type;
///  - shuffles and broadcasts from a missing or inactive lane return the thread's own value;
///  - block_uniform returns the first active thread's value; compare-and-swap of floats compares bits;
///  - a for_ ends where the next counter would reach or pass the end, even if that counter is not representable;
///  - shared memory is filled with 0xff bytes when a block starts;
///  - matrix products sum over k in ascending order.
///
/// A race is reported for an element of a buffer or of shared memory that two threads access, at least one of them
/// writing and not both by atomics, if the threads are in different blocks or no barrier separates the accesses. Only
/// barriers order memory: block and subgroup operations do not. Writing the value already stored is a race too.
class Interpreter {
 public:
  /// `fn` must be canonical (see canonicalise); it may be lowered. Throws KernelError for nodes that cannot be
  /// interpreted.
  explicit Interpreter(Function fn, InterpreterOptions options = {});
  ~Interpreter();
  Interpreter(Interpreter&&) noexcept;
  Interpreter& operator=(Interpreter&&) noexcept;

  /// `shape`: threads per dimension for map kernels, blocks per dimension for block kernels; if one is 0, nothing runs.
  /// Throws KernelError with kernel, line, thread and element for findings, and for arguments that do not match the
  /// parameters. Thread-safe.
  void run(std::array<std::uint64_t, 3> shape, std::span<const InterpreterArgument> arguments) const;

  const Function& function() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// Prepares and runs a function once.
void interpret(const Function& fn, std::array<std::uint64_t, 3> shape, std::span<const InterpreterArgument> arguments,
               const InterpreterOptions& options = {});

/// For each barrier of the function, a copy without it: for testing the checks, or whether a kernel's barriers are
/// needed.
std::vector<Function> without_each_barrier(const Function& fn);

}  // namespace tessera::ir
