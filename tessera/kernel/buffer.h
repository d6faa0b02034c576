// SPDX-License-Identifier: Apache-2.0
// DeviceBuffer<T>: elements in a device's memory, with upload and download, for who launches kernels without arrays.
// Copying the object shares the memory.
#pragma once

#include <concepts>
#include <span>
#include <string>
#include <vector>

#include "tessera/device/storage.h"
#include "tessera/ir/node.h"

namespace tessera {

namespace detail {

/// What DeviceBuffer<T> does, without its type.
class RawBuffer {
 public:
  RawBuffer(DType dtype, std::uint64_t elements, Device device, std::string label);
  void upload(const void* from, std::uint64_t elements) const;  ///< ArgumentError if the numbers of elements differ
  void download(void* to, std::uint64_t elements) const;        ///< likewise; waits
  void fill(std::uint64_t bits) const;
  const BufferView& view() const { return view_; }

 private:
  BufferView view_;
};

}  // namespace detail

/// Elements on one device. Uploads and launches are asynchronous; downloads wait for what writes the buffer.
template <Element T>
class DeviceBuffer {
 public:
  using value_type = T;

  /// `n` elements of undefined contents. OutOfMemory lists what is alive, with labels.
  template <std::integral N>
  explicit DeviceBuffer(N n, Device device = current_device(), std::string label = {})
      : raw_(dtype_v<T>, static_cast<std::uint64_t>(n), device, std::move(label)) {}
  /// A copy of host data.
  explicit DeviceBuffer(std::span<const T> host, Device device = current_device(), std::string label = {})
      : DeviceBuffer(host.size(), device, std::move(label)) {
    upload(host);
  }
  DeviceBuffer(std::initializer_list<T> host, Device device = current_device())
      : DeviceBuffer(std::span(host.begin(), host.size()), device) {}

  std::uint64_t size() const { return raw_.view().elements; }
  Device device() const { return raw_.view().storage->device(); }
  /// ArgumentError if the numbers of elements differ. `host` may be reused on return.
  void upload(std::span<const T> host) { raw_.upload(host.data(), host.size()); }
  void download(std::span<T> host) const { raw_.download(host.data(), host.size()); }
  std::vector<T> to_vector() const {
    if constexpr (std::same_as<T, bool>) {  // std::vector<bool> has no elements in memory
      const auto bytes = std::make_unique<bool[]>(size());
      raw_.download(bytes.get(), size());
      return std::vector<bool>(bytes.get(), bytes.get() + size());
    } else {
      std::vector<T> host(size());
      raw_.download(host.data(), size());
      return host;
    }
  }
  void fill(T value) {
    std::uint64_t bits = 0;
    __builtin_memcpy(&bits, &value, sizeof value);
    raw_.fill(bits);
  }
  /// The elements as kernels and queues take them.
  const BufferView& view() const { return raw_.view(); }

 private:
  detail::RawBuffer raw_;
};

template <class T>
BufferView kernel_argument(const DeviceBuffer<T>& buffer, ir::Access) {
  return buffer.view();
}

}  // namespace tessera
