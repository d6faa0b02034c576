// SPDX-License-Identifier: Apache-2.0
// The reference interpreter: runs kernels on the host and checks them for errors. The threads of a block run in
// lockstep. Each value is an array with one lane per thread, so the loops vectorise and the interpreter also serves as
// the fallback for the CPU.
#pragma once

#include <functional>
#include <memory>

#include "tessera/ir/builder.h"

namespace tessera::ir {

/// One argument of a launch. Arguments are passed in the order of Function::params.
struct InterpreterArgument {
  std::byte* data = nullptr;   ///< for buffers: host memory with any alignment
  std::uint64_t elements = 0;  ///< for buffers: the number of elements of the parameter's dtype
  std::uint64_t bits = 0;      ///< for scalars: the value, encoded like an IR constant
  /// Used for buffers if checks are on: one flag per byte of `data`, non-zero if the byte is initialised. Reading an
  /// uninitialised byte is reported; writing sets its flag. Null means that all bytes are initialised.
  std::uint8_t* written = nullptr;
};

/// An error found while running a kernel.
struct Finding {
  enum class Kind : std::uint8_t {
    out_of_bounds,  ///< an access outside of the memory's elements
    race,  ///< two threads access one element without synchronisation, and at least one access is a non-atomic write
    uninitialised,  ///< a read of shared memory that no thread of the block has written, or of an uninitialised element
                    ///< of a buffer
    divergence,  ///< a block or subgroup operation that some threads do not reach, or an operand that must be the same
                 ///< in all threads (block_uniform, matrix operations) but is not
    index_overflow,  ///< an index that does not fit into 32 bits
    misaligned,      ///< an index of a vector in a buffer that is not a multiple of its elements, although the kernel
                     ///< declares that it is (Function::aligned_vectors)
    endless_loop     ///< a for_ step that is not positive, or a while_ with more iterations than allowed
  };
  Kind kind = Kind::out_of_bounds;
  std::string kernel;
  SourceLine line;                           ///< the line of the statement
  SourceLine other_line;                     ///< for races: the line of the conflicting access
  std::string memory;                        ///< the name of the buffer, "shared1" or "local1"; may be empty
  std::int64_t element = 0;                  ///< the index of the accessed element
  std::uint64_t size = 0;                    ///< the number of elements of the memory
  std::array<std::uint64_t, 3> thread = {};  ///< the position in the block; for map kernels the global position
  std::array<std::uint64_t, 3> block = {};   ///< the position of the block; only for block kernels
  std::string text;                          ///< the complete text of the KernelError
};

struct InterpreterOptions {
  /// Threads per subgroup, 1 to 128. Each subgroup has consecutive linear thread ids. The last subgroup of a block may
  /// be smaller.
  std::uint32_t subgroup_width = 32;
  /// If set, the interpreter also finds races, reads of uninitialised memory, divergence and index overflow. This makes
  /// it several times slower. Out-of-bounds accesses are always found.
  bool checks = false;
  /// Called once for each kind of finding and pair of statements. The kernel continues: out-of-bounds reads return 0
  /// and out-of-bounds writes are ignored. If the function is empty, the first finding is thrown as a KernelError.
  std::function<void(const Finding&)> report;
  /// Called for each line that the kernel prints. If the function is empty, lines are written to standard output.
  std::function<void(std::string_view)> print;
  /// A while_ with more iterations than this is reported; 0 means no limit.
  std::uint64_t max_while_rounds = 0;
};

/// A function prepared for repeated execution.
///
/// Where the language allows several behaviours, the interpreter behaves as follows:
///  - The threads of a block run in lockstep. Blocks run one after the other in ascending order, and so do the rows of
///    a map kernel.
///  - Atomics, stores to the same element and prints of one statement are executed in the order of linear thread ids.
///  - Float sums over blocks and subgroups add in the order of linear thread ids, in the type of the operands.
///  - Shuffles and broadcasts from a missing or inactive lane return the thread's own value.
///  - block_uniform returns the value of the first active thread. Compare-and-swap of floats compares bits.
///  - A for_ ends when the next counter would reach or exceed the end, even if that counter is not representable.
///  - Shared memory is filled with 0xff bytes when a block starts.
///  - Matrix products sum over k in ascending order.
///
/// A race is reported if two threads access the same element of a buffer or of shared memory, at least one of the
/// accesses is a write, and they are not both atomic. Accesses are unordered if the threads belong to different blocks
/// or if no barrier separates them. Block and subgroup operations do not order memory. Writing the value that is
/// already stored is also a race.
class Interpreter {
 public:
  /// `fn` must be canonical (see canonicalise) and may be lowered. Throws KernelError for nodes that cannot be
  /// interpreted.
  explicit Interpreter(Function fn, InterpreterOptions options = {});
  ~Interpreter();
  Interpreter(Interpreter&&) noexcept;
  Interpreter& operator=(Interpreter&&) noexcept;

  /// Runs the kernel. `shape` is the number of threads per dimension for map kernels and the number of blocks per
  /// dimension for block kernels. If a dimension is 0, nothing runs. Throws KernelError with kernel, line, thread and
  /// element for findings, and KernelError for arguments that do not match the parameters. Thread-safe.
  void run(std::array<std::uint64_t, 3> shape, std::span<const InterpreterArgument> arguments) const;

  const Function& function() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// Prepares a function and runs it once.
void interpret(const Function& fn, std::array<std::uint64_t, 3> shape, std::span<const InterpreterArgument> arguments,
               const InterpreterOptions& options = {});

/// For each barrier and each wait for copies, returns one copy of the function without it. Tests use this to show that
/// a kernel needs its barriers and that the checks find missing barriers.
std::vector<Function> without_each_barrier(const Function& fn);

}  // namespace tessera::ir
