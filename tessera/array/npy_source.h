// SPDX-License-Identifier: Apache-2.0
// Internal: where the bytes of a .npy file are: in a file, in a part of a file, or in memory.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "tessera/array/array.h"
#include "tessera/base/os/input_file.h"

namespace tessera::detail {

class NpySource {
 public:
  /// `size` bytes of `file` from `begin`.
  NpySource(std::string name, std::shared_ptr<const InputFile> file, std::uint64_t begin, std::uint64_t size)
      : name_(std::move(name)), file_(std::move(file)), begin_(begin), size_(size) {}
  NpySource(std::string name, std::vector<std::byte> bytes)
      : name_(std::move(name)), bytes_(std::move(bytes)), size_(bytes_.size()) {}

  const std::string& name() const { return name_; }
  std::uint64_t size() const { return size_; }
  /// Fills `to`. The caller has checked that the source is long enough.
  void read(std::uint64_t offset, std::span<std::byte> to) const {
    if (file_)
      file_->read(begin_ + offset, to);
    else
      std::copy_n(bytes_.begin() + static_cast<std::ptrdiff_t>(offset), to.size(), to.begin());
  }
  /// The whole file, or null if the source is a part of a file or in memory.
  const InputFile* whole_file() const { return file_ && begin_ == 0 && size_ == file_->size() ? file_.get() : nullptr; }

 private:
  std::string name_;
  std::shared_ptr<const InputFile> file_;
  std::vector<std::byte> bytes_;
  std::uint64_t begin_ = 0, size_ = 0;
};

/// What a .npy file of this type and shape contains before the elements, which are in C order.
std::string npy_header(DType dtype, const Shape& shape);
/// The content of a .npy file.
std::string npy_bytes(const Array& a);

}  // namespace tessera::detail
