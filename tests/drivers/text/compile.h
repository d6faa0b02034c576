// SPDX-License-Identifier: Apache-2.0
// Emitted text, compiled by the host's compiler and executed by the threads of blocks.h: what fake drivers run kernels
// by with TESSERA_FAKE_RUN=text. Objects are kept in the build folder, by their text.
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
  std::string object;  ///< the file
  std::string log;     ///< of the compiler, where it refused
};
/// `kernels`: names of those in it. Thread-safe, between processes too.
CompiledText compile(const std::string& source, Language language, const std::vector<std::string>& kernels);

/// Statements of inline PTX made calls of functions: asm("op %0, %1;" : "=f"(x) : "h"(y)) becomes ptx_op(x, y).
std::string calls_for_ptx(const std::string& text);

/// Metal's text without the attributes of arguments, whose names are words of the language too.
std::string without_attributes(const std::string& text);

/// Whether a compiler takes Metal's text, without making anything of it. By clang, where it is installed, with device,
/// threadgroup and constant memory as address spaces of their own; else by the compiler that compiled this.
CompiledText check_metal(const std::string& source);
std::string metal_checker();  ///< "clang++-16"

struct KernelLaunch {
  Dim grid, block;
  unsigned width = 32;
  std::uint64_t order = 1;
};

/// An object that was loaded; never unloaded.
class Object {
 public:
  explicit Object(const std::string& file);
  /// Empty, or what went wrong. `arguments`: an address of each value; what differs between threads is set by `each`,
  /// where it is given.
  std::string run(const std::string& kernel, const KernelLaunch& launch, std::vector<void*> arguments,
                  void (*each)(const Thread&, void* user) = nullptr, void* user = nullptr,
                  std::span<unsigned char> block_memory = {}) const;

 private:
  void* library_ = nullptr;
  std::size_t block_bytes_ = 0;  ///< of shared memory, which lies in the thread's own
  void (*touch_)() = nullptr;
};
/// One for each file. Throws std::runtime_error if it cannot be loaded.
const Object& object_of(const std::string& file);

}  // namespace tessera::text
