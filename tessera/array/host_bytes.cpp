// SPDX-License-Identifier: Apache-2.0
#include "tessera/array/host_bytes.h"

namespace tessera::detail {

void append_bytes(std::string& to, const Array& a) {
  const std::size_t start = to.size();
  to.resize(start + a.bytes());
  if (a.size()) a.download(to.data() + start);
}

void normalize_bools(std::span<std::byte> bytes, DType dtype) {
  if (dtype != DType::boolean) return;
  for (std::byte& b : bytes) b = std::byte{b != std::byte{}};
}

Array array_of_bytes(std::span<std::byte> bytes, DType dtype, Shape shape, std::optional<Device> device) {
  normalize_bools(bytes, dtype);
  Array out = Array::empty(std::move(shape), dtype, device);
  if (out.size()) current_queue(out.device()).upload(out.view(), bytes.data());
  return out;
}

}  // namespace tessera::detail
