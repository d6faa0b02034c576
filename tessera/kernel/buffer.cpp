// SPDX-License-Identifier: Apache-2.0
#include "tessera/kernel/algorithms.h"

#include <algorithm>

#include "tessera/base/error.h"

namespace tessera::detail {

namespace {
void check_elements(const char* asked, std::uint64_t size, std::uint64_t elements) {
  if (size == elements) return;
  fail<ArgumentError>(
      {.operation = asked,
       .with = {{"elements of the buffer", std::to_string(size)}, {"elements of the host", std::to_string(elements)}},
       .wrong = "the buffer and the host memory have different sizes"});
}
}  // namespace

RawBuffer::RawBuffer(DType dtype, std::uint64_t words, std::uint64_t elements, Device device, std::string label)
    : words_(words) {
  // No device has more memory than this. Without the limit, the product below could overflow.
  if (elements > (std::uint64_t{1} << 48) / words)
    fail<ArgumentError>({.operation = "DeviceBuffer",
                         .with = {{"elements", std::to_string(elements)}},
                         .wrong = "the size exceeds 2^48 words"});
  view_ = {Storage::allocate(device, elements * words * dtype_size(dtype), std::move(label)), 0, elements * words,
           dtype};
}
RawBuffer::RawBuffer(DType dtype, std::uint64_t words, std::uint64_t elements, Device device, std::string label,
                     const void* host)
    : RawBuffer(dtype, words, elements, device, std::move(label)) {
  upload(host, elements);
}
RawBuffer::RawBuffer(const RawBuffer&) = default;
RawBuffer::RawBuffer(RawBuffer&&) noexcept = default;
RawBuffer& RawBuffer::operator=(const RawBuffer&) = default;
RawBuffer& RawBuffer::operator=(RawBuffer&&) noexcept = default;
RawBuffer::~RawBuffer() = default;

void RawBuffer::upload(const void* from, std::uint64_t elements) const {
  check_elements("upload", size(), elements);
  if (elements) current_queue(view_.storage->device()).upload(view_, from);
}
void RawBuffer::download(void* to, std::uint64_t elements) const {
  check_elements("download", size(), elements);
  if (elements) current_queue(view_.storage->device()).download(to, view_);
}
void RawBuffer::fill(std::uint64_t bits) const {
  if (view_.elements) current_queue(view_.storage->device()).fill(view_, bits);
}

void check_result_size(const std::string& name, std::uint64_t elements, std::uint64_t wanted) {
  if (elements != wanted)
    fail<ArgumentError>({.operation = name,
                         .with = {{"elements", std::to_string(elements)}, {"wanted", std::to_string(wanted)}},
                         .wrong = "the buffer for the result has another number of elements"});
}
std::int64_t parts_of_reduction(std::int64_t count) {
  return std::clamp<std::int64_t>(count / (4 * elements_of_scan), 1, 1024);
}
std::uint64_t last_element(const BufferView& view) {
  const BufferView last = {view.storage, view.byte_offset + view.bytes() - 8, 1, view.dtype};
  std::uint64_t out = 0;
  current_queue(view.storage->device()).download(&out, last);
  return out;
}

}  // namespace tessera::detail
