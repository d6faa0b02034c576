// SPDX-License-Identifier: Apache-2.0
// DeviceBuffer<T>: elements or small structs in a device's memory, with upload and download, for who launches kernels
// without arrays. Copying the object shares the memory.
#pragma once

#include <concepts>
#include <span>
#include <string>
#include <vector>

#include "tessera/device/memory/storage.h"
#include "tessera/kernel/struct_element.h"

namespace tessera {

namespace detail {

/// What DeviceBuffer<T> does, without its type.
class RawBuffer {
 public:
  /// `words`: elements of the view for each element of the user's (a struct is several).
  RawBuffer(DType dtype, std::uint64_t words, std::uint64_t elements, Device device, std::string label);
  std::uint64_t size() const { return view_.elements / words_; }
  void upload(const void* from, std::uint64_t elements) const;  ///< ArgumentError if the numbers of elements differ
  void download(void* to, std::uint64_t elements) const;        ///< likewise; waits
  void fill(std::uint64_t bits) const;
  const BufferView& view() const { return view_; }

 private:
  BufferView view_;
  std::uint64_t words_;
};

}  // namespace detail

/// Elements on one device, or structs as Buffer<S> takes them: their bytes, which the view shows as u32. Uploads and
/// launches are asynchronous; downloads wait for what writes the buffer.
template <class T>
  requires(Element<T> || detail::StructElement<T>)
class DeviceBuffer {
 public:
  using value_type = T;

  /// `n` elements of undefined contents. OutOfMemory lists what is alive, with labels.
  template <std::integral N>
  explicit DeviceBuffer(N n, Device device = current_device(), std::string label = {})
      : raw_(detail::stored_dtype<T>(), detail::words_of<T>, static_cast<std::uint64_t>(n), device, std::move(label)) {
    if constexpr (detail::StructElement<T>) detail::check_struct<T>();
  }
  /// A copy of host data.
  explicit DeviceBuffer(std::span<const T> host, Device device = current_device(), std::string label = {})
      : DeviceBuffer(host.size(), device, std::move(label)) {
    upload(host);
  }
  DeviceBuffer(std::initializer_list<T> host, Device device = current_device())
      : DeviceBuffer(std::span(host.begin(), host.size()), device) {}

  /// The number of elements.
  std::uint64_t size() const { return raw_.size(); }
  /// The device that has the memory.
  Device device() const { return raw_.view().storage->device(); }
  /// ArgumentError if the numbers of elements differ. `host` may be reused on return.
  void upload(std::span<const T> host) { raw_.upload(host.data(), host.size()); }
  /// Copies the elements to host memory; blocks. Throws ArgumentError if the numbers of elements differ.
  void download(std::span<T> host) const { raw_.download(host.data(), host.size()); }
  /// Copies the elements into a vector; blocks.
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
  /// Sets every element.
  void fill(T value) {
    if constexpr (detail::StructElement<T>) {
      upload(std::vector<T>(size(), value));
    } else {
      std::uint64_t bits = 0;
      __builtin_memcpy(&bits, &value, sizeof value);
      raw_.fill(bits);
    }
  }
  /// The elements as kernels and queues take them.
  const BufferView& view() const { return raw_.view(); }

 private:
  detail::RawBuffer raw_;
};

/// The whole buffer as an argument of a launch.
template <class T>
BufferView kernel_argument(const DeviceBuffer<T>& buffer, ir::Access) {
  return buffer.view();
}

}  // namespace tessera
