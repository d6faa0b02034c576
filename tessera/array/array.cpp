// SPDX-License-Identifier: Apache-2.0
// Creation, host access and in-place writes.
#include "tessera/array/array.h"

#include "tessera/array/elementwise.h"
#include "tessera/array/operation.h"
#include "tessera/ir/semantics.h"

namespace tessera {

using detail::Operation;
using detail::Source;

namespace {

Device device_or_current(std::optional<Device> device) { return device ? *device : current_device(); }

std::string device_text(const Array& a) { return to_string(a.device()); }

}  // namespace

Array::Array() : shape_{0}, strides_{1} {
  static const auto* nothing =
      new std::shared_ptr<Source>(Source::of(Storage::wrap_host(nullptr, 0, nullptr), DType::f32));
  source_ = *nothing;
}

Array Array::wrap(std::shared_ptr<Storage> storage, DType dtype, Shape shape, std::uint64_t byte_offset) {
  const Operation operation("wrap");
  check_shape("Array::wrap", shape);
  const std::uint64_t size = dtype_size(dtype), bytes = static_cast<std::uint64_t>(element_count(shape)) * size;
  if (byte_offset % size != 0 || byte_offset > storage->bytes() || bytes > storage->bytes() - byte_offset)
    fail<ShapeError>(
        {.operation = "Array::wrap",
         .with = {{"shape", to_string(shape)},
                  {"dtype", std::string(dtype_name(dtype))},
                  {"byte offset", std::to_string(byte_offset)},
                  {"bytes of memory", std::to_string(storage->bytes())}},
         .wrong = "the array does not fit into the memory, or the offset is not a multiple of the element size"});
  Strides strides = contiguous_strides(shape);
  return operation.finish(ArrayAccess::make(Source::of(std::move(storage), dtype), dtype, std::move(shape),
                                            std::move(strides), static_cast<std::int64_t>(byte_offset / size)));
}

Array Array::empty(Shape shape, DType dtype, std::optional<Device> device) {
  const Operation operation("empty");
  check_shape("Array::empty", shape);
  const auto bytes = static_cast<std::size_t>(element_count(shape)) * dtype_size(dtype);
  return operation.finish(
      ArrayAccess::make(Source::of(Storage::allocate(device_or_current(device), bytes), dtype), std::move(shape)));
}
Array Array::full(Shape shape, double value, DType dtype, std::optional<Device> device) {
  const Operation operation("full");
  Array a = empty(std::move(shape), dtype, device);
  a.fill(value);
  return operation.finish(std::move(a), [&] { return Attributes{{"value", value}}; });
}
Array Array::zeros(Shape shape, DType dtype, std::optional<Device> device) {
  const Operation operation("zeros");
  return operation.finish(full(std::move(shape), 0, dtype, device));
}
Array Array::ones(Shape shape, DType dtype, std::optional<Device> device) {
  const Operation operation("ones");
  return operation.finish(full(std::move(shape), 1, dtype, device));
}

Array Array::from_bytes(const void* data, DType dtype, Shape shape, std::size_t count, std::optional<Device> device) {
  const Operation operation("from");
  check_shape("Array::from", shape);
  if (element_count(shape) != static_cast<std::int64_t>(count))
    fail<ShapeError>({.operation = "Array::from",
                      .with = {{"shape", to_string(shape)}, {"elements given", std::to_string(count)}},
                      .wrong = "the number of elements does not match the shape"});
  Array a = empty(std::move(shape), dtype, device);
  if (count) current_queue(a.device()).upload(a.view(), data);
  return operation.finish(std::move(a));
}

std::int64_t Array::shape(int axis) const {
  return shape_[static_cast<std::size_t>(normalise_axis("shape", axis, shape_.size()))];
}
Device Array::device() const { return source_->device(); }
bool Array::pending() const { return source_->pending(); }

void Array::check_host_type(const char* operation, DType wanted) const {
  if (wanted != dtype_)
    fail<DtypeError>(
        {.operation = operation,
         .with = {{"requested", std::string(dtype_name(wanted))}, {"array", std::string(dtype_name(dtype_))}},
         .wrong = "the array has a different dtype",
         .remedy = "Convert with astype first"});
}

void Array::download(void* to) const {
  if (size() == 0) return;
  const Operation reading("download");  // `flat` is an internal array, which is not reported to observers.
  const Array flat = detail::without_history(*this).as_contiguous();
  current_queue(device()).download(to, flat.view());
}

// Memory.

const Array& Array::eval() const {
  source_->storage("eval was called");
  return *this;
}

BufferView Array::view() const {
  if (has_history() && thread_context.array_operations == 0) [[unlikely]]
    detail::check_no_history("view", *this, "and reading its memory would lose the gradient",
                             "Use operations on arrays, or stop_gradient(x)");
  auto storage = source_->storage("its memory is accessed");
  std::int64_t last = -1;
  if (size()) {
    last = 0;
    for (std::size_t d = 0; d < shape_.size(); ++d) last += (shape_[d] - 1) * strides_[d];
  }
  return {std::move(storage), static_cast<std::uint64_t>(offset_) * dtype_size(dtype_),
          static_cast<std::uint64_t>(last + 1), dtype_};
}

BufferView Array::view_for_writing() const {
  const Operation operation("view_for_writing", *this);
  detail::check_write_target("view_for_writing", *this);
  BufferView v = view();
  v.storage->flush_readers();
  operation.finish_in_place(*this);
  return v;
}

namespace {
void check_host_memory(const char* operation, const Array& array, const BufferView& view) {
  if (!view.storage->allocation().host)
    fail<DeviceError>({.operation = operation,
                       .with = {{"device", device_text(array)}},
                       .wrong = "the host cannot address this device's memory",
                       .remedy = "Use to_vector(), or to({Backend::cpu}) first"});
}
void check_host_dtype(const char* operation, DType own, DType wanted) {
  if (wanted != own)
    fail<DtypeError>({.operation = operation,
                      .with = {{"requested", std::string(dtype_name(wanted))}, {"array", std::string(dtype_name(own))}},
                      .wrong = "the array has a different dtype"});
}
}  // namespace

HostView Array::host_view() const {
  BufferView v = detail::without_history(*this).view();
  check_host_memory("host_view", *this, v);
  v.storage->wait_readable();
  return HostView(std::move(v));
}

HostView::HostView(BufferView view)
    : storage_(std::move(view.storage)),
      data_(storage_->allocation().host + view.byte_offset),
      count_(view.elements),
      dtype_(view.dtype) {}

HostAccess Array::host_access() const {
  const Operation operation("host_access", *this);
  detail::check_write_target("host_access", *this);
  BufferView v = view();
  check_host_memory("host_access", *this, v);
  Storage& storage = *v.storage;
  HostAccess access(std::move(v));  // From now on, no operation on this array is deferred, not even those of observers.
  storage.flush_readers();
  storage.wait_writable();
  operation.finish_in_place(*this);
  return access;
}

HostAccess::HostAccess(BufferView view)
    : storage_(std::move(view.storage)),
      data_(storage_->allocation().host + view.byte_offset),
      count_(view.elements),
      dtype_(view.dtype) {
  storage_->expose();
}
HostAccess::~HostAccess() {
  if (storage_) storage_->unexpose();
}
void HostAccess::check(DType wanted) const { check_host_dtype("HostAccess::as", dtype_, wanted); }
void HostView::check(DType wanted) const { check_host_dtype("HostView::as", dtype_, wanted); }

BufferView kernel_argument(const Array& a, ir::Access access) {
  if (a.has_history())
    detail::check_no_history("launch", a, "and a kernel launch would lose the gradient",
                             "Use operations on arrays, or pass stop_gradient(x) to the kernel");
  if (!a.contiguous())
    fail<ShapeError>({.operation = "launch",
                      .with = {{"shape", to_string(a.shape())}, {"strides", to_string(a.strides())}},
                      .wrong = "the array is not contiguous, and a kernel accesses its memory directly",
                      .remedy = access == ir::Access::read_write
                                    ? "Declare the parameter as View<T, n>, or let the kernel write a contiguous array "
                                      "and assign() it to this one"
                                    : "Declare the parameter as View<const T, n>, or pass as_contiguous()"});
  return access == ir::Access::read_write ? a.view_for_writing() : a.view();
}

// In-place writes.

void Array::assign(Array value) {
  const Operation operation("assign", *this, value);
  detail::check_write_target("assign", *this), detail::check_stored_value("assign", value);
  value = detail::broadcast_into("assign", *this, value);
  if (size() == 0) return;
  const bool apart = !value.pending() && (pending() || source_->memory() != value.source_->memory());
  if (value.dtype() == dtype_ && apart && contiguous() && value.contiguous()) {
    current_queue(device()).copy(view_for_writing(), value.view());
    operation.finish_in_place(*this);
    return;
  }
  detail::write_in_place(*this, ir::Op::cast, 0, std::span(&value, 1));
  operation.finish_in_place(*this);
}

void Array::fill(double value) {
  if (size() == 0) return;
  const Operation operation("fill", *this);
  detail::check_write_target("fill", *this);
  if (contiguous())
    current_queue(device()).fill(view_for_writing(), ir::to_bits(dtype_, value));
  else
    assign(full({1}, value, dtype_, device()));
  operation.finish_in_place(*this, [&] { return Attributes{{"value", value}}; });
}

}  // namespace tessera
