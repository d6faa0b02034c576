// SPDX-License-Identifier: Apache-2.0
// The reference interpreter: what a kernel means, executed on the host, and the checks that find its mistakes.
// It runs whole blocks in step, an array of lanes per value under a mask, so it is also the fallback for the CPU.
#pragma once

#include <functional>
#include <memory>

#include "tessera/ir/builder.h"

namespace tessera::ir {

/// One argument of a launch, in the order of Function::params.
struct InterpreterArgument {
  std::byte* data = nullptr;   ///< buffers: host memory; any alignment
  std::uint64_t elements = 0;  ///< buffers: elements of the parameter's dtype
  std::uint64_t bits = 0;      ///< scalars: as ir constants hold them
  /// Buffers, with checks: a flag for each byte of `data`, not 0 if it was written. Reads of others are findings;
  /// writes set flags. Null: all were written.
  std::uint8_t* written = nullptr;
};

/// One mistake of a kernel, as it happened.
struct Finding {
  enum class Kind : std::uint8_t {
    out_of_bounds,   ///< an access before or past its memory
    race,            ///< two threads, one element, at least one write, nothing that orders them, not both atomic
    uninitialised,   ///< a read of shared memory that no thread of the block has written, or of a buffer's that nothing
                     ///< has
    divergence,      ///< an operation of a block or subgroup that not all its threads reached, or whose operands differ
                     ///< where they must not: block_uniform, matrices
    index_overflow,  ///< an index that does not fit into the 32 bits it has
    endless_loop     ///< a step that is not greater than zero, or more rounds of a while_ than allowed
  };
  Kind kind = Kind::out_of_bounds;
  std::string kernel;
  SourceLine line;                           ///< of the statement
  SourceLine other_line;                     ///< race: of the access it collides with
  std::string memory;                        ///< the buffer's name, "shared1" or "local1"; may be empty
  std::int64_t element = 0;                  ///< accessed element
  std::uint64_t size = 0;                    ///< elements of that memory
  std::array<std::uint64_t, 3> thread = {};  ///< within the block; in map kernels global
  std::array<std::uint64_t, 3> block = {};   ///< block kernels
  std::string text;                          ///< the whole sentence, as a KernelError would have it
};

struct InterpreterOptions {
  /// Threads in a subgroup, 1 to 128. Subgroups are cut from linear thread ids; the last one of a block may be smaller.
  std::uint32_t subgroup_width = 32;
  /// Finds races, reads of uninitialised memory, divergent control and overflowing indices as well. Several
  /// times slower. Accesses out of bounds are found always.
  bool checks = false;
  /// Gets each finding (once for each pair of statements and kind); the kernel goes on: reads out of bounds give 0,
  /// writes are dropped. Empty: the first finding is thrown as a KernelError.
  std::function<void(const Finding&)> report;
  /// Gets each line that the kernel prints. Empty: standard output.
  std::function<void(std::string_view)> print;
  /// More rounds of one while_ than this are a finding; 0: no limit.
  std::uint64_t max_while_rounds = 0;
};

/// A function made ready to run many times.
///
/// What the language leaves open, and what happens here:
///  - threads of a block run in step, blocks and rows of map threads one after the other, in ascending order;
///  - atomics, stores to one element and prints of one statement go in the order of linear thread ids;
///  - sums of floats over blocks and subgroups add in the order of linear thread ids, in the operands' own type;
///  - shuffles and broadcasts from a lane that is absent or not active give the thread's own value;
///  - block_uniform gives the first active thread's value; compare-and-swap of floats compares bits;
///  - a for_ ends where the next counter would reach or pass the end, even if that counter cannot be represented;
///  - shared memory holds bytes of 0xff when a block starts;
///  - products of matrices sum over k in ascending order.
///
/// Races are reported on elements of buffers and shared memory that two threads touch, at least one of them writing and
/// not both by atomics, if they are in different blocks, or in one block with no barrier between. Only barriers order
/// memory: block and subgroup operations do not. Writing a value that is there already is a race too.
class Interpreter {
 public:
  /// `fn` is canonical (see canonicalise), lowered or not. KernelError for nodes that it cannot run.
  explicit Interpreter(Function fn, InterpreterOptions options = {});
  ~Interpreter();
  Interpreter(Interpreter&&) noexcept;
  Interpreter& operator=(Interpreter&&) noexcept;

  /// `shape`: map kernels: threads of each dimension; block kernels: blocks of each dimension. Nothing runs if one is
  /// 0. KernelError with kernel, line, thread and element for findings, and for arguments that do not fit the
  /// parameters. Safe to call from several threads at once.
  void run(std::array<std::uint64_t, 3> shape, std::span<const InterpreterArgument> arguments) const;

  const Function& function() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// Runs a function once.
void interpret(const Function& fn, std::array<std::uint64_t, 3> shape, std::span<const InterpreterArgument> arguments,
               const InterpreterOptions& options = {});

/// For each barrier of the function, the function without it: what a test of the checks, or of a kernel's barriers,
/// runs.
std::vector<Function> without_each_barrier(const Function& fn);

}  // namespace tessera::ir
