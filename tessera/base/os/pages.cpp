// SPDX-License-Identifier: Apache-2.0
#include "tessera/base/os/pages.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#ifdef __GLIBC__
#include <malloc.h>
#endif

namespace tessera::os {

namespace {

std::size_t page_size() {
  static const auto size = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  return size;
}

std::size_t whole_pages(std::size_t bytes) { return (bytes + page_size() - 1) / page_size() * page_size(); }

}  // namespace

void* map_pages(std::size_t bytes, std::size_t alignment) noexcept {
  // Mappings begin at a page. For a larger alignment, the pages before and after the aligned part are unmapped.
  const std::size_t more = alignment > page_size() ? alignment : 0;
  const std::size_t size = whole_pages(bytes), whole = size + more;
  if (size < bytes || whole < size) return nullptr;
  void* const mapped = ::mmap(nullptr, whole, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) return nullptr;
  auto* const begin = static_cast<std::byte*>(mapped);
  const std::size_t before = (alignment - reinterpret_cast<std::uintptr_t>(mapped) % alignment) % alignment;
  if (before > 0) ::munmap(begin, before);
  if (before < more) ::munmap(begin + before + size, more - before);
  return begin + before;
}

void unmap_pages(void* data, std::size_t bytes) noexcept { ::munmap(data, whole_pages(bytes)); }

void trim_heap() noexcept {
#ifdef __GLIBC__
  ::malloc_trim(0);
#endif
}

}  // namespace tessera::os
