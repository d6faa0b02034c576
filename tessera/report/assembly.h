// SPDX-License-Identifier: Apache-2.0
// Reads machine code as text and finds the loops in it, and how they load from device memory. Internal to report/.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace tessera::reporting {

/// One instruction, as far as loops and memory accesses are concerned.
struct Instruction {
  /// Loads and stores are those of device memory. `copy` loads to shared memory without waiting; `commit` ends a group
  /// of copies.
  enum class Kind : std::uint8_t { other, load, copy, commit, store, shared, matrix, end };
  Kind kind = Kind::other;
  std::uint32_t bytes = 0;              ///< of one thread; only for loads, copies, stores and shared memory
  std::uint32_t multiply_adds = 0;      ///< of a whole subgroup; only for matrix instructions. As many of f16 as take
                                        ///< its time
  std::uint32_t barrier = no_barrier;   ///< NVIDIA: the scoreboard barrier that a load releases when it completes
  std::uint32_t wait_mask = 0;          ///< NVIDIA: the barriers that it waits for, as bits
  std::optional<std::uint32_t> waits;   ///< AMD: waits until at most this many loads are outstanding
  std::optional<std::uint32_t> groups;  ///< NVIDIA: waits until at most this many groups of copies are outstanding
  std::optional<std::size_t> target;    ///< the index of the instruction that it may jump to
  static constexpr std::uint32_t no_barrier = 7;
};

/// Parses the output of `nvdisasm -c -hex` for a kernel of compute capability 7.0 or later. The second half of each
/// instruction contains the wait barriers at bits that Jia et al., "Dissecting the NVIDIA Volta GPU architecture via
/// microbenchmarking" (2018), section 2.1, describes; the layout has not changed since.
std::vector<Instruction> parse_sass(std::string_view text);

/// Parses assembly that clang generated for a kernel of an AMD GPU (`clang -S`). Scalar loads are not counted, because
/// they read one element for a whole wave.
std::vector<Instruction> parse_amdgcn(std::string_view text);

/// How a loop, or the whole kernel, loads from device memory.
struct LoadPattern {
  /// False: no loop loads from device memory, and the figures are of the path with most loads.
  bool loop = false;
  bool innermost = false;  ///< the loop contains no other loop
  std::uint32_t instructions = 0;
  std::uint32_t bytes = 0;                  ///< loaded per iteration
  std::uint32_t widest = 0, narrowest = 0;  ///< bytes of one load of one thread; 0 if there is none
  std::uint32_t widest_store = 0;           ///< of the whole kernel
  /// Number of times that a thread waits for loads and then issues further loads, in one iteration.
  std::uint32_t groups = 0;
  /// The largest number of bytes that a thread has requested when it waits for a load.
  std::uint32_t bytes_in_flight = 0;
  std::uint32_t matrix_instructions = 0;  ///< of the whole kernel
  /// The loop with most matrix instructions outside of the loops that it contains, per iteration.
  struct MatrixLoop {
    std::uint32_t instructions = 0, matrix = 0;
    std::uint32_t multiply_adds = 0;  ///< of a subgroup
    std::uint32_t shared_bytes = 0;   ///< that a thread loads from and stores to shared memory
  } matrix;
};

/// Returns the pattern of the loop that loads most bytes per iteration outside of the loops that it contains.
LoadPattern load_pattern(const std::vector<Instruction>& code);

}  // namespace tessera::reporting
