// SPDX-License-Identifier: Apache-2.0
// Making arrays, their views, reading and writing.
#include "tessera/array/array.h"

#include <algorithm>
#include <cmath>

#include "tessera/array/elementwise.h"
#include "tessera/array/operation.h"
#include "tessera/ir/semantics.h"

namespace tessera {

using detail::Operation;
using detail::Source;

namespace {

Device device_or_current(std::optional<Device> device) { return device ? *device : current_device(); }

std::vector<std::int64_t> numbers(const Shape& shape) { return shape; }

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
    fail<ShapeError>({.asked = "Array::wrap",
                      .with = {{"shape", to_string(shape)},
                               {"dtype", std::string(dtype_name(dtype))},
                               {"byte offset", std::to_string(byte_offset)},
                               {"bytes of memory", std::to_string(storage->bytes())}},
                      .wrong = "the memory does not hold this array, or the offset is not a multiple of an element"});
  Strides strides = contiguous_strides(shape);
  return operation.made(ArrayAccess::make(Source::of(std::move(storage), dtype), dtype, std::move(shape),
                                          std::move(strides), static_cast<std::int64_t>(byte_offset / size)));
}

Array Array::empty(Shape shape, DType dtype, std::optional<Device> device) {
  const Operation operation("empty");
  check_shape("Array::empty", shape);
  const auto bytes = static_cast<std::size_t>(element_count(shape)) * dtype_size(dtype);
  return operation.made(
      ArrayAccess::make(Source::of(Storage::allocate(device_or_current(device), bytes), dtype), std::move(shape)));
}
Array Array::full(Shape shape, double value, DType dtype, std::optional<Device> device) {
  const Operation operation("full");
  Array a = empty(std::move(shape), dtype, device);
  a.fill(value);
  return operation.made(std::move(a), [&] { return Attributes{{"value", value}}; });
}
Array Array::zeros(Shape shape, DType dtype, std::optional<Device> device) {
  const Operation operation("zeros");
  return operation.made(full(std::move(shape), 0, dtype, device));
}
Array Array::ones(Shape shape, DType dtype, std::optional<Device> device) {
  const Operation operation("ones");
  return operation.made(full(std::move(shape), 1, dtype, device));
}

Array Array::from_bytes(const void* data, DType dtype, Shape shape, std::size_t count, std::optional<Device> device) {
  const Operation operation("from");
  check_shape("Array::from", shape);
  if (element_count(shape) != static_cast<std::int64_t>(count))
    fail<ShapeError>({.asked = "Array::from",
                      .with = {{"shape", to_string(shape)}, {"elements given", std::to_string(count)}},
                      .wrong = "the shape needs another number of elements"});
  Array a = empty(std::move(shape), dtype, device);
  if (count) current_queue(a.device()).upload(a.view(), data);
  return operation.made(std::move(a));
}

std::int64_t Array::shape(int axis) const {
  return shape_[static_cast<std::size_t>(normalise_axis("shape", axis, shape_.size()))];
}
Device Array::device() const { return source_->device(); }
bool Array::pending() const { return source_->pending(); }

void Array::check_host_type(const char* operation, DType wanted) const {
  if (wanted != dtype_)
    fail<DtypeError>({.asked = operation,
                      .with = {{"asked", std::string(dtype_name(wanted))}, {"array", std::string(dtype_name(dtype_))}},
                      .wrong = "the array has another dtype",
                      .todo = "Convert with astype first"});
}

void Array::download(void* to) const {
  if (size() == 0) return;
  const Operation reading("download");  // no array is made for the program
  const Array flat = as_contiguous();
  current_queue(device()).download(to, flat.view());
}

// Views.

Array Array::with_view(Shape shape, Strides strides, std::int64_t offset) const {
  return ArrayAccess::make(source_, dtype_, std::move(shape), std::move(strides), offset);
}

Array Array::reshape(Shape shape) const {
  const Operation operation("reshape", *this);
  const auto made = [&](Array view) {
    const Shape to = view.shape();
    return operation.made(std::move(view), [&] { return Attributes{{"shape", numbers(to)}}; });
  };
  std::int64_t known = 1;
  int open = -1;
  for (std::size_t i = 0; i < shape.size(); ++i) {
    if (shape[i] == -1 && open < 0) open = static_cast<int>(i), shape[i] = 1;
  }
  check_shape("reshape", shape);
  known = element_count(shape);
  if (open >= 0) shape[static_cast<std::size_t>(open)] = known > 0 ? size() / known : 0;
  if (element_count(shape) != size())
    fail<ShapeError>({.asked = "reshape",
                      .with = {{"from", to_string(shape_)}, {"to", to_string(shape)}},
                      .wrong = "the shapes hold different numbers of elements"});
  if (contiguous()) {
    Strides strides = contiguous_strides(shape);
    return made(with_view(std::move(shape), std::move(strides), offset_));
  }
  // A view works where each group of new dimensions lies in one evenly strided run of old ones.
  Strides strides(shape.size());
  std::size_t old_at = 0, new_at = 0;
  bool view = true;
  while (view && new_at < shape.size()) {
    std::size_t old_end = old_at, new_end = new_at;
    std::int64_t old_n = 1, new_n = 1;
    do {
      if (old_n <= new_n && old_end < shape_.size())
        old_n *= shape_[old_end++];
      else if (new_end < shape.size())
        new_n *= shape[new_end++];
      else
        break;
    } while (old_n != new_n || new_end == new_at);
    if (old_n != new_n) {
      view = false;
      break;
    }
    std::int64_t step = 1;
    bool first = true;
    for (std::size_t i = old_end; i-- > old_at;) {  // the run must be even
      if (shape_[i] == 1) continue;
      if (first)
        step = strides_[i], first = false;
      else if (strides_[i] != step)
        view = false;
      step = strides_[i] * shape_[i];
    }
    std::int64_t inner = 1;
    for (std::size_t i = old_end; i-- > old_at;)
      if (shape_[i] != 1) {
        inner = strides_[i];
        break;
      }
    for (std::size_t i = new_end; i-- > new_at;) strides[i] = inner, inner *= shape[i];
    old_at = old_end, new_at = new_end;
  }
  if (view) return made(with_view(std::move(shape), std::move(strides), offset_));
  return made(as_contiguous().reshape(std::move(shape)));
}

Array Array::transpose() const {
  const Operation operation("transpose", *this);
  Shape shape(shape_.rbegin(), shape_.rend());
  Strides strides(strides_.rbegin(), strides_.rend());
  return operation.made(with_view(std::move(shape), std::move(strides), offset_));
}

Array Array::permute(std::vector<int> axes) const {
  const Operation operation("permute", *this);
  Shape shape;
  Strides strides;
  std::vector<bool> seen(shape_.size());
  bool once = true;
  for (int axis : axes) {
    const auto a = static_cast<std::size_t>(normalise_axis("permute", axis, shape_.size()));
    once = once && !seen[a];
    seen[a] = true;
    shape.push_back(shape_[a]), strides.push_back(strides_[a]);
  }
  if (!once || shape.size() != shape_.size())
    fail<ShapeError>(
        {.asked = "permute", .with = {{"shape", to_string(shape_)}}, .wrong = "each axis must be named exactly once"});
  return operation.made(with_view(std::move(shape), std::move(strides), offset_), [&] {
    return Attributes{{"axes", std::vector<std::int64_t>(axes.begin(), axes.end())}};
  });
}

Array Array::broadcast_to(const Shape& shape) const {
  const Operation operation("broadcast_to", *this);
  if (broadcast_shapes("broadcast_to", shape_, shape) != shape)
    fail<ShapeError>({.asked = "broadcast_to",
                      .with = {{"from", to_string(shape_)}, {"to", to_string(shape)}},
                      .wrong = "the shape does not stretch to the other"});
  return operation.made(with_view(shape, detail::broadcast_strides(*this, shape), offset_), [&] {
    return Attributes{{"shape", numbers(shape)}};
  });
}

Array Array::slice(int axis, std::int64_t begin, std::int64_t end, std::int64_t step) const {
  const Operation operation("slice", *this);
  const auto a = static_cast<std::size_t>(normalise_axis("slice", axis, shape_.size()));
  const std::int64_t n = shape_[a];
  if (step <= 0)
    fail<ShapeError>(
        {.asked = "slice", .with = {{"step", std::to_string(step)}}, .wrong = "the step must be greater than zero"});
  if (begin < 0) begin += n;
  if (end < 0) end += n;
  begin = std::clamp<std::int64_t>(begin, 0, n), end = std::clamp<std::int64_t>(end, begin, n);
  Shape shape = shape_;
  Strides strides = strides_;
  shape[a] = end > begin ? (end - begin - 1) / step + 1 : 0;
  if (shape[a] > 1) strides[a] *= step;
  // An empty slice keeps its place inside the memory.
  const std::int64_t offset = shape[a] == 0 ? offset_ : offset_ + begin * strides_[a];
  return operation.made(with_view(std::move(shape), std::move(strides), offset), [&] {
    return Attributes{{"axis", static_cast<std::int64_t>(a)}, {"begin", begin}, {"end", end}, {"step", step}};
  });
}

Array Array::select(int axis, std::int64_t index) const {
  const Operation operation("select", *this);
  const auto a = static_cast<std::size_t>(normalise_axis("select", axis, shape_.size()));
  const std::int64_t i = index < 0 ? index + shape_[a] : index;
  if (i < 0 || i >= shape_[a])
    fail<ShapeError>(
        {.asked = "select",
         .with = {{"index", std::to_string(index)}, {"axis", std::to_string(axis)}, {"shape", to_string(shape_)}},
         .wrong = "the index is outside of the axis"});
  Shape shape = shape_;
  Strides strides = strides_;
  shape.erase(shape.begin() + static_cast<std::ptrdiff_t>(a));
  strides.erase(strides.begin() + static_cast<std::ptrdiff_t>(a));
  return operation.made(with_view(std::move(shape), std::move(strides), offset_ + i * strides_[a]), [&] {
    return Attributes{{"axis", static_cast<std::int64_t>(a)}, {"index", i}};
  });
}

Array Array::unsqueeze(int axis) const {
  const Operation operation("unsqueeze", *this);
  const auto a = static_cast<std::size_t>(normalise_axis("unsqueeze", axis, shape_.size() + 1));
  Shape shape = shape_;
  Strides strides = strides_;
  shape.insert(shape.begin() + static_cast<std::ptrdiff_t>(a), 1);
  strides.insert(strides.begin() + static_cast<std::ptrdiff_t>(a), 0);
  return operation.made(with_view(std::move(shape), std::move(strides), offset_), [&] {
    return Attributes{{"axis", static_cast<std::int64_t>(a)}};
  });
}

Array Array::squeeze(int axis) const {
  const Operation operation("squeeze", *this);
  if (shape(axis) != 1)
    fail<ShapeError>({.asked = "squeeze",
                      .with = {{"axis", std::to_string(axis)}, {"shape", to_string(shape_)}},
                      .wrong = "the axis has more than one element"});
  return operation.made(select(axis, 0), [&] {
    return Attributes{{"axis", static_cast<std::int64_t>(normalise_axis("squeeze", axis, shape_.size()))}};
  });
}

Array Array::as_contiguous() const {
  const Operation operation("as_contiguous", *this);
  return operation.made(contiguous() ? *this : copy());
}

Array Array::copy() const {
  const Operation operation("copy", *this);
  Array out = empty(shape_, dtype_, device());
  out.assign(*this);
  return operation.made(std::move(out));
}

Array Array::to(Device target) const {
  const Operation operation("to", *this);
  const auto attributes = [&] { return Attributes{{"device", to_string(target)}}; };
  if (target == device()) return operation.made(*this, attributes);
  device_info(target);
  const Array flat = as_contiguous();
  Array out = empty(shape_, dtype_, target);
  if (size()) current_queue(target).copy(out.view(), flat.view());
  return operation.made(std::move(out), attributes);
}

// Memory.

const Array& Array::eval() const {
  source_->storage("eval was called");
  return *this;
}

BufferView Array::view() const {
  auto storage = source_->storage("its memory is needed");
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
  BufferView v = view();
  v.storage->flush_readers();
  Array self = *this;
  operation.wrote(self);
  return v;
}

HostAccess Array::host_access() const {
  const Operation operation("host_access", *this);
  BufferView v = view();
  if (!v.storage->allocation().host)
    fail<DeviceError>({.asked = "host_access",
                       .with = {{"device", device_text(*this)}},
                       .wrong = "the host cannot address this device's memory",
                       .todo = "Use to_vector(), or to({Backend::cpu}) first"});
  Storage& storage = *v.storage;
  HostAccess access(std::move(v));  // from here on nothing is deferred, not by an observer either
  storage.flush_readers();
  storage.wait_writable();
  Array self = *this;
  operation.wrote(self);
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
void HostAccess::check(DType wanted) const {
  if (wanted != dtype_)
    fail<DtypeError>({.asked = "HostAccess::as",
                      .with = {{"asked", std::string(dtype_name(wanted))}, {"array", std::string(dtype_name(dtype_))}},
                      .wrong = "the array has another dtype"});
}

BufferView kernel_argument(const Array& a, ir::Access access) {
  if (!a.contiguous())
    fail<ShapeError>({.asked = "launch",
                      .with = {{"shape", to_string(a.shape())}, {"strides", to_string(a.strides())}},
                      .wrong = "the elements of this array do not lie one behind the other, and a kernel sees memory",
                      .todo = access == ir::Access::read_write
                                  ? "Let the kernel write a contiguous array and assign() that to this one, or pass "
                                    "view_for_writing() and the strides"
                                  : "Pass as_contiguous() of it, or view() and the strides"});
  return access == ir::Access::read_write ? a.view_for_writing() : a.view();
}

// Writing in place.

void Array::assign(Array value) {
  const Operation operation("assign", *this, value);
  value = detail::broadcast_into("assign", *this, value);
  if (size() == 0) return;
  const bool apart = !value.pending() && (pending() || source_->memory() != value.source_->memory());
  if (value.dtype() == dtype_ && apart && contiguous() && value.contiguous()) {
    current_queue(device()).copy(view_for_writing(), value.view());
    operation.wrote(*this);
    return;
  }
  detail::write_in_place(*this, ir::Op::cast, 0, std::span(&value, 1));
  operation.wrote(*this);
}

void Array::fill(double value) {
  if (size() == 0) return;
  const Operation operation("fill", *this);
  if (contiguous())
    current_queue(device()).fill(view_for_writing(), ir::to_bits(dtype_, value));
  else
    assign(full({1}, value, dtype_, device()));
  operation.wrote(*this, [&] { return Attributes{{"value", value}}; });
}

}  // namespace tessera
