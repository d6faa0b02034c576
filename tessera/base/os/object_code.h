// SPDX-License-Identifier: Apache-2.0
// Loads machine code from a relocatable object file in memory, so that compiled kernels run without a compiler or
// linker. Supports ELF for the processor of this program (x86-64, aarch64), in the form that LLVM generates for
// position-independent code of the small code model. Operating system layer.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tessera::os {

/// The code of an object file in executable memory. The destructor frees the memory.
class ObjectCode {
 public:
  /// Returns the address of a function that the object calls but does not define, or null if it is not known.
  using FindFunction = const void* (*)(std::string_view name);

  /// Copies the object's sections to memory, resolves its relocations and makes the code executable. Code and constants
  /// are in one block of memory, so that 32-bit distances always suffice.
  ///
  /// Throws FormatError if the object is malformed, is for another processor, or uses features that are not supported.
  /// Throws KernelError if it needs a function that `find` does not know, and OutOfMemory if there is no memory.
  ObjectCode(std::string_view object, FindFunction find);
  ~ObjectCode();
  ObjectCode(const ObjectCode&) = delete;
  ObjectCode& operator=(const ObjectCode&) = delete;

  /// Returns the address of a function of the object. Throws FormatError if it does not define the function.
  const void* function(std::string_view name) const;

 private:
  struct Loader;
  std::byte* memory_ = nullptr;
  std::size_t bytes_ = 0;
  std::vector<std::pair<std::string, const void*>> functions_;
};

}  // namespace tessera::os
