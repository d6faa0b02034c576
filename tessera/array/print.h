// SPDX-License-Identifier: Apache-2.0
// Internal to array/ and fft/. Formats arrays in NumPy's layout.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "tessera/array/array.h"

namespace tessera::detail {

/// A copy of an array's elements on the host, to print them.
class HostElements {
 public:
  explicit HostElements(const Array& a);   ///< Blocks until the elements are computed.
  std::string text(std::int64_t i) const;  ///< Element `i` in row-major order.

 private:
  DType dtype_;
  std::unique_ptr<std::byte[]> data_;
};

/// Returns the text of element `i` in row-major order.
using ElementText = std::function<std::string(std::int64_t i)>;

/// Returns "array([...], kind)". The middle of large arrays is omitted, and their shape is added.
std::string array_text(const Shape& shape, const ElementText& element, const std::string& kind);

}  // namespace tessera::detail
