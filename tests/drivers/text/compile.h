// SPDX-License-Identifier: Apache-2.0
// Compiles emitted text with the host's compiler and runs it with the scheduler in blocks.h. Fake drivers use this with
// TESSERA_FAKE_RUN=text. Compiled objects are cached in the build folder, with the text as the key.
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
  std::string object;  ///< path of the compiled file
  std::string log;     ///< errors of the compiler, if it failed
};
/// Compiles a source that contains these kernels. Thread-safe, even if several processes share the cache.
CompiledText compile(const std::string& source, Language language, const std::vector<std::string>& kernels);

/// Converts inline PTX to function calls: asm("op %0, %1;" : "=f"(x) : "h"(y)) becomes ptx_op(x, y).
std::string calls_for_ptx(const std::string& text);

/// Removes attributes of arguments from Metal text, because their names are also identifiers of the language.
std::string without_attributes(const std::string& text);

/// Checks that a compiler accepts Metal text, without generating code. Uses clang if it is installed, with device,
/// threadgroup and constant memory as distinct address spaces. Otherwise uses the compiler of this build.
CompiledText check_metal(const std::string& source);
std::string metal_checker();  ///< name of this compiler, such as "clang++-16"

struct KernelLaunch {
  Dim grid, block;
  unsigned width = 32;
  std::uint64_t order = 1;
};

/// A loaded object file, which is never unloaded.
class Object {
 public:
  explicit Object(const std::string& file);
  /// Runs a kernel. `arguments` are the addresses of the argument values. `each` is called before each thread and may
  /// change values that differ between threads. Returns an error message, or an empty string on success.
  std::string run(const std::string& kernel, const KernelLaunch& launch, std::vector<void*> arguments,
                  void (*each)(const Thread&, void* user) = nullptr, void* user = nullptr,
                  std::span<unsigned char> block_memory = {}) const;

 private:
  void* library_ = nullptr;
  std::size_t block_bytes_ = 0;  ///< size of shared memory, which consists of thread-local variables
  void (*touch_)() = nullptr;
};
/// Loads a file on the first call, and returns the object. Throws std::runtime_error if it cannot be loaded.
const Object& object_of(const std::string& file);

}  // namespace tessera::text
