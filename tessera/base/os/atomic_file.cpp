// SPDX-License-Identifier: Apache-2.0
#include "tessera/base/os/atomic_file.h"

#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <system_error>

#include <fmt/format.h>

#include "tessera/base/error.h"

namespace tessera::os {

void write_file_at_once(const std::filesystem::path& file, std::string_view text) {
  static std::atomic<unsigned> count = 0;
  const std::filesystem::path temporary = fmt::format("{}.{}.{}", file.string(), ::getpid(), count.fetch_add(1));
  std::error_code error;
  {
    errno = 0;
    std::ofstream out(temporary, std::ios::binary | std::ios::trunc);
    out.write(text.data(), static_cast<std::streamsize>(text.size()));
    out.close();
    if (!out) error = std::error_code(errno != 0 ? errno : EIO, std::generic_category());
  }
  if (!error) std::filesystem::rename(temporary, file, error);
  if (!error) return;
  std::error_code ignored;
  std::filesystem::remove(temporary, ignored);
  fail<ArgumentError>({.asked = "write", .with = {{"file", file.string()}}, .wrong = error.message()});
}

}  // namespace tessera::os
