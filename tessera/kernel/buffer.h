// SPDX-License-Identifier: Apache-2.0
// DeviceBuffer<T>: elements or small structs in the memory of a device, with upload and download. It allows launching
// kernels without arrays. Copies of a DeviceBuffer share the memory.
#pragma once

#include <concepts>
#include <span>
#include <string>
#include <vector>

#include "tessera/device/memory/storage.h"
#include "tessera/ir/fwd.h"
#include "tessera/kernel/struct_element.h"

namespace tessera {

namespace detail {

/// The untyped implementation of DeviceBuffer<T>.
class RawBuffer {
 public:
  /// `words` is the number of view elements per user element. It is greater than 1 for structs.
  RawBuffer(DType dtype, std::uint64_t words, std::uint64_t elements, Device device, std::string label);
  /// Copies the elements from `host`.
  RawBuffer(DType dtype, std::uint64_t words, std::uint64_t elements, Device device, std::string label,
            const void* host);
  RawBuffer(const RawBuffer&);
  RawBuffer(RawBuffer&&) noexcept;
  RawBuffer& operator=(const RawBuffer&);
  RawBuffer& operator=(RawBuffer&&) noexcept;
  ~RawBuffer();
  std::uint64_t size() const { return view_.elements / words_; }
  void upload(const void* from,
              std::uint64_t elements) const;              ///< throws ArgumentError if the numbers of elements differ
  void download(void* to, std::uint64_t elements) const;  ///< blocks; throws like `upload`
  void fill(std::uint64_t bits) const;
  const BufferView& view() const { return view_; }

 private:
  BufferView view_;
  std::uint64_t words_;
};

}  // namespace detail

/// Elements in the memory of a device. If T is a struct as in Buffer<S>, the view has dtype u32. Uploads and
/// launches are asynchronous. Downloads wait for pending writes to the buffer.
template <class T>
  requires(Element<T> || detail::StructElement<T>)
class DeviceBuffer {
 public:
  using value_type = T;

  /// Allocates `n` elements with undefined contents. Throws OutOfMemory if there is not enough memory; the message
  /// lists the live buffers with their labels.
  template <std::integral N>
  explicit DeviceBuffer(N n, Device device = current_device(), std::string label = {})
      : raw_(detail::stored_dtype<T>(), detail::words_of<T>, static_cast<std::uint64_t>(n), device, std::move(label)) {
    if constexpr (detail::StructElement<T>) detail::check_struct<T>();
  }
  /// Allocates a buffer and copies host data to it.
  explicit DeviceBuffer(std::span<const T> host, Device device = current_device(), std::string label = {})
      : raw_(detail::stored_dtype<T>(), detail::words_of<T>, host.size(), device, std::move(label), host.data()) {
    if constexpr (detail::StructElement<T>) detail::check_struct<T>();
  }
  DeviceBuffer(std::initializer_list<T> host, Device device = current_device())
      : DeviceBuffer(std::span(host.begin(), host.size()), device) {}

  /// Returns the number of elements.
  std::uint64_t size() const { return raw_.size(); }
  /// Returns the device that owns the memory.
  Device device() const { return raw_.view().storage->device(); }
  /// Copies host data to the buffer. `host` may be changed as soon as the call returns. Throws ArgumentError if the
  /// numbers of elements differ.
  void upload(std::span<const T> host) { raw_.upload(host.data(), host.size()); }
  /// Copies the elements to host memory and blocks until they have arrived. Throws ArgumentError if the numbers of
  /// elements differ.
  void download(std::span<T> host) const { raw_.download(host.data(), host.size()); }
  /// Copies the elements into a vector and blocks until they have arrived.
  std::vector<T> to_vector() const {
    if constexpr (std::same_as<T, bool>) {  // std::vector<bool> is bit-packed
      const auto bytes = std::make_unique<T[]>(size());
      raw_.download(bytes.get(), size());
      return std::vector<bool>(bytes.get(), bytes.get() + size());
    } else {
      std::vector<T> host(size());
      raw_.download(host.data(), size());
      return host;
    }
  }
  /// Sets every element to `value`.
  void fill(T value) {
    if constexpr (detail::StructElement<T>) {
      upload(std::vector<T>(size(), value));
    } else {
      std::uint64_t bits = 0;
      __builtin_memcpy(&bits, &value, sizeof value);
      raw_.fill(bits);
    }
  }
  /// Returns the view to pass to kernels and queues.
  const BufferView& view() const { return raw_.view(); }

 private:
  detail::RawBuffer raw_;
};

/// Passes the whole buffer as an argument of a launch.
template <class T>
BufferView kernel_argument(const DeviceBuffer<T>& buffer, ir::Access) {
  return buffer.view();
}

}  // namespace tessera
