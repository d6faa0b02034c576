// SPDX-License-Identifier: Apache-2.0
// Compiles emitted text with the host's compiler and runs it on the threads of blocks.h. Fake drivers use it with
// TESSERA_FAKE_RUN=text. Objects are cached in the build folder by their text.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "tests/drivers/text/host_abi.h"

namespace tessera::text {

enum class Language : std::uint8_t { cuda, hip, metal };

struct CompiledText {
  bool made = false;
  std::string object;  ///< path of the file
  std::string log;     ///< the compiler's, if it failed
};
/// `kernels`: names of the kernels in the source. Safe to call from several threads and processes.
CompiledText compile(const std::string& source, Language language, const std::vector<std::string>& kernels);

/// Converts inline PTX to function calls: asm("op %0, %1;" : "=f"(x) : "h"(y)) becomes ptx_op(x, y).
std::string calls_for_ptx(const std::string& text);

/// Removes attributes of arguments from Metal text, because their names are also identifiers of the language.
std::string without_attributes(const std::string& text);

/// Whether a compiler accepts Metal text; generates no code. Uses clang if it is installed, with device, threadgroup
/// and constant memory as distinct address spaces; else the compiler that compiled this.
CompiledText check_metal(const std::string& source);
std::string metal_checker();  ///< "clang++-16"

struct KernelLaunch {
  Dim grid, block;
  unsigned width = 32;
  std::uint64_t order = 1;
};

/// A loaded object; never unloaded.
class Object {
 public:
  explicit Object(const std::string& file);
  /// Returns an error message; empty on success. `arguments`: the address of each value. `each`, if given, sets values
  /// that differ between threads.
  std::string run(const std::string& kernel, const KernelLaunch& launch, std::vector<void*> arguments,
                  void (*each)(const Thread&, void* user) = nullptr, void* user = nullptr,
                  std::span<unsigned char> block_memory = {}) const;

 private:
  void* library_ = nullptr;
  std::size_t block_bytes_ = 0;  ///< of shared memory, which is thread-local
  void (*touch_)() = nullptr;
};
/// One per file. Throws std::runtime_error if it cannot be loaded.
const Object& object_of(const std::string& file);

}  // namespace tessera::text
