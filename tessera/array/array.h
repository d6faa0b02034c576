// SPDX-License-Identifier: Apache-2.0
// Array: a typed, strided view of memory on one device, with NumPy's names and broadcasting.
// Elementwise operations are deferred and fused; errors of shape, dtype and device are thrown at the call all the same.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tessera/base/dtype.h"
#include "tessera/base/error.h"
#include "tessera/base/shape.h"
#include "tessera/device/memory/storage.h"

namespace tessera {

namespace detail {
class Source;
class Step;
}  // namespace detail
class ArrayOperand;
class HostAccess;

/// An n-dimensional array. Copying an Array is cheap and shares its memory; views share it too, so writing through one
/// (`assign`, `+=`) is seen through the others. Reading from several threads is safe.
class Array {
 public:
  Array();  ///< f32, shape (0,), on the CPU

  // Making. `device` defaults to current_device().
  /// An array whose elements are not initialised.
  static Array empty(Shape shape, DType dtype = DType::f32, std::optional<Device> device = {});
  /// A `value` that is none of the dtype becomes one: floats round to the nearest (infinity beyond the largest),
  /// integers are cut towards zero and end at the dtype's limits (0 for NaN), and a bool is true but for 0.
  static Array full(Shape shape, double value, DType dtype = DType::f32, std::optional<Device> device = {});
  /// An array of zeros.
  static Array zeros(Shape shape, DType dtype = DType::f32, std::optional<Device> device = {});
  static Array ones(Shape shape, DType dtype = DType::f32, std::optional<Device> device = {});  ///< An array of ones.
  /// start, start + step, ...: `count` elements of one dimension. Of integers `start` and `step` are first made numbers
  /// of the dtype as in full(), and counting wraps.
  static Array arange(std::int64_t count, double start = 0, double step = 1, DType dtype = DType::f32,
                      std::optional<Device> device = {});
  /// `count` numbers from `start` to `stop`, both among them, at even distances: NumPy's, computed in f64 (f32 on a
  /// device without f64) and converted.
  static Array linspace(double start, double stop, std::int64_t count, DType dtype = DType::f32,
                        std::optional<Device> device = {});
  /// Ones on the k-th diagonal of a matrix, zeros elsewhere; `columns` defaults to `rows`.
  static Array eye(std::int64_t rows, std::optional<std::int64_t> columns = {}, std::int64_t k = 0,
                   DType dtype = DType::f32, std::optional<Device> device = {});
  /// Copies `data`; `shape` defaults to one dimension. ShapeError if the counts differ.
  template <Element T>
  static Array from(std::span<const T> data, std::optional<Shape> shape = {}, std::optional<Device> device = {}) {
    return from_bytes(data.data(), dtype_v<T>, shape ? *shape : Shape{static_cast<std::int64_t>(data.size())},
                      data.size(), device);
  }
  template <Element T>
  static Array from(const std::vector<T>& data, std::optional<Shape> shape = {}, std::optional<Device> device = {}) {
    return from(std::span<const T>(data), shape, device);
  }
  template <Element T>
  static Array from(std::initializer_list<T> data, std::optional<Shape> shape = {}, std::optional<Device> device = {}) {
    return from(std::span<const T>(data.begin(), data.size()), shape, device);
  }
  /// An array over memory that exists already. Nothing is copied.
  static Array wrap(std::shared_ptr<Storage> storage, DType dtype, Shape shape, std::uint64_t byte_offset = 0);

  // What it is.
  /// The element type.
  DType dtype() const { return dtype_; }
  /// The extents, one per dimension.
  const Shape& shape() const { return shape_; }
  /// Elements from one index to the next, one per dimension.
  const Strides& strides() const { return strides_; }
  std::int64_t shape(int axis) const;
  /// The number of dimensions.
  int rank() const { return static_cast<int>(shape_.size()); }
  /// The number of elements.
  std::int64_t size() const { return element_count(shape_); }
  /// The size of the elements in bytes, without gaps.
  std::uint64_t bytes() const { return static_cast<std::uint64_t>(size()) * dtype_size(dtype_); }
  Device device() const;  ///< The device that owns the memory.
  /// True if the elements are in row-major order without gaps.
  bool contiguous() const { return is_contiguous(shape_, strides_); }
  bool pending() const;  ///< computed when needed

  // Reading on the host: waits for the device.
  /// Copies the elements, row-major, into a vector; blocks until they are computed. Throws DtypeError if `T` is not the
  /// dtype.
  template <Element T>
  std::vector<T> to_vector() const {
    check_host_type("to_vector", dtype_v<T>);
    std::vector<T> out(static_cast<std::size_t>(size()));
    if constexpr (std::is_same_v<T, bool>) {
      std::unique_ptr<bool[]> raw(new bool[out.size()]);
      download(raw.get());
      out.assign(raw.get(), raw.get() + out.size());
    } else {
      download(out.data());
    }
    return out;
  }
  /// The only element. ShapeError if there are more.
  template <Element T>
  T item() const {
    check_host_type("item", dtype_v<T>);
    if (size() != 1)
      fail<ShapeError>({.operation = "item",
                        .with = {{"shape", to_string(shape_)}},
                        .wrong = "the array does not have exactly one element"});
    T out;
    download(&out);
    return out;
  }
  /// Copies `size()` elements, row-major, to host memory.
  void download(void* to) const;

  // Views: no copy.
  /// One extent may be -1, unless another is 0. Copies if the strides allow no view.
  Array reshape(Shape shape) const;
  Array transpose() const;  ///< reverses the dimensions
  /// A view with the dimensions in the given order, which names each axis once.
  Array permute(std::vector<int> axes) const;
  /// A view with repeated elements, by NumPy's broadcasting rules. Throws ShapeError if the shapes do not fit.
  Array broadcast_to(const Shape& shape) const;
  /// Negative `begin` and `end` count from the end, as in NumPy, and what lies outside is cut off. A negative step goes
  /// from `begin` down to above `end` (-n - 1 or less: to the first element, n the extent), and is the one that copies:
  /// what is written to the result is not written here.
  Array slice(int axis, std::int64_t begin, std::int64_t end, std::int64_t step = 1) const;
  Array select(int axis, std::int64_t index) const;  ///< drops the axis
  Array unsqueeze(int axis) const;                   ///< A view with a new axis of extent 1.
  Array squeeze(int axis) const;  ///< A view without an axis of extent 1. Throws ShapeError if its extent is another.
  Array as_contiguous() const;    ///< itself if it is

  Array astype(DType dtype) const;  ///< the array itself if it has the dtype
  /// A copy on `device`; itself if it is there already.
  Array to(Device device) const;
  Array copy() const;  ///< A copy with memory of its own, on the same device.

  // Writing in place: whatever still wants to read this memory is computed first.
  void assign(Array value);  ///< broadcasts; casts to this dtype. DeviceError if it is on another device
  void fill(double value);   ///< what is no value of the dtype becomes one as in full()
  // The other operand is converted to this dtype first; DtypeError if it is of a higher kind (a float for integers).
  Array& operator+=(ArrayOperand b);  ///< Adds in place.
  Array& operator-=(ArrayOperand b);  ///< Subtracts in place.
  Array& operator*=(ArrayOperand b);  ///< Multiplies in place.
  Array& operator/=(ArrayOperand b);  ///< Divides in place.

  /// Computes now if pending.
  const Array& eval() const;
  /// The memory: computes, and makes a view of the elements' range for a kernel. Elements of a strided array lie at
  /// `strides()` from its start. No gradient is taken through what reads it: ArgumentError of an array with history.
  BufferView view() const;
  /// The same for writing: pending readers of the memory are computed first.
  BufferView view_for_writing() const;
  /// The elements as the host addresses them (cpu and interp; else a DeviceError), to be read and written while the
  /// result lives. Waits for every use of the memory. Pending readers are computed before; what reads the array
  /// meanwhile is computed at once.
  HostAccess host_access() const;

  /// What an observer of operations attached to this array (observer.h). Copies have it, too; what is made of the array
  /// has not.
  const std::shared_ptr<void>& history() const { return history_; }
  /// Attaches what an observer of operations wants to find again; see history().
  void set_history(std::shared_ptr<void> history) { history_ = std::move(history); }

  /// Whether gradients are taken through it (grad/grad.h). Such an array may be read by the host, and by operations; it
  /// may not be written, nor given to what leaves no history, like a kernel's launch: ArgumentError.
  bool has_history() const { return step_ != nullptr; }
  const std::shared_ptr<detail::Step>& step() const { return step_; }  ///< the latest of its history (history.h)
  /// Sets the latest step of the array's history; used by gradients.
  void set_step(std::shared_ptr<detail::Step> step) { step_ = std::move(step); }

  /// The memory or the deferred expression that the elements come from; used by the library.
  const std::shared_ptr<detail::Source>& source() const { return source_; }
  /// The place of the first element, in elements from the start of source().
  std::int64_t offset() const { return offset_; }

 private:
  friend class detail::Source;
  friend struct ArrayAccess;
  Array(std::shared_ptr<detail::Source> source, DType dtype, Shape shape, Strides strides, std::int64_t offset)
      : source_(std::move(source)),
        dtype_(dtype),
        shape_(std::move(shape)),
        strides_(std::move(strides)),
        offset_(offset) {}
  static Array from_bytes(const void* data, DType dtype, Shape shape, std::size_t count, std::optional<Device> device);
  void check_host_type(const char* operation, DType wanted) const;
  Array with_view(Shape shape, Strides strides, std::int64_t offset) const;

  std::shared_ptr<detail::Source> source_;
  DType dtype_ = DType::f32;
  Shape shape_;
  Strides strides_;
  std::int64_t offset_ = 0;  ///< elements from the start of the source
  std::shared_ptr<void> history_;
  std::shared_ptr<detail::Step> step_;
};

/// Host addresses of an array's elements, while it lives. Elements of a strided array lie at `strides()` from the
/// first.
class HostAccess {
 public:
  ~HostAccess();
  HostAccess(HostAccess&& other) noexcept = default;
  HostAccess& operator=(HostAccess&&) = delete;

  /// The first byte of the elements.
  void* data() const { return data_; }
  /// From the first element to the last, with what lies between those of a strided array. DtypeError if `T` is not the
  /// array's.
  template <Element T>
  std::span<T> as() const {
    check(dtype_v<T>);
    return {static_cast<T*>(data_), count_};
  }

 private:
  friend class Array;
  explicit HostAccess(BufferView view);
  void check(DType wanted) const;
  std::shared_ptr<Storage> storage_;
  void* data_;
  std::size_t count_;
  DType dtype_;
};

/// An operand of elementwise operations: an array, or a host scalar. A temporary array is moved into it, so that what
/// only the new expression refers to is never written to memory; any other array is referred to, and must outlive the
/// operand.
///
/// The result's dtype depends on types alone (docs/arrays.md). A scalar takes the array's dtype, rounded to it, unless
/// it is of a higher kind: a float or double with integers or bools gives f32, an integer with bools i32, or 64 bits if
/// it has them. An integer that is no value of the array's integer dtype is a DtypeError.
class ArrayOperand {
 public:
  /// Refers to an array, which must outlive the operand.
  ArrayOperand(const Array& a) : borrowed_(&a) {}
  /// Takes over an array.
  ArrayOperand(Array&& a) : owned_(std::move(a)) {}
  /// A scalar, which adopts the dtype of the other operand if that has the same kind (float, integer, bool).
  template <class T>
    requires std::is_arithmetic_v<T>
  ArrayOperand(T value)
      : value_(static_cast<double>(value)),
        integer_(std::is_integral_v<T> ? static_cast<std::int64_t>(value) : 0),
        integral_(std::is_integral_v<T>),
        large_(std::is_integral_v<T> && std::is_unsigned_v<T> && integer_ < 0),
        dtype_(std::is_floating_point_v<T> ? DType::f32
               : std::is_same_v<T, bool>   ? DType::boolean
               : sizeof(T) < sizeof(int)   ? DType::i32
               : sizeof(T) == sizeof(int)  ? (std::is_unsigned_v<T> ? DType::u32 : DType::i32)
                                           : (std::is_unsigned_v<T> ? DType::u64 : DType::i64)) {}
  /// True for an array, false for a scalar.
  bool is_array() const { return borrowed_ != nullptr || owned_.has_value(); }
  DType dtype() const { return is_array() ? array().dtype() : dtype_; }  ///< of a scalar: by itself
  /// The array; only if is_array().
  const Array& array() const { return borrowed_ != nullptr ? *borrowed_ : *owned_; }
  /// The array, moved out of the operand if it owns it; only if is_array().
  Array take() {
    if (borrowed_ != nullptr) return *borrowed_;
    return std::move(*owned_);
  }
  void release() { owned_.reset(), borrowed_ = nullptr; }  ///< lets go of the array
  double value() const { return value_; }            ///< of a scalar
  /// The scalar as bits of a dtype, rounded where that is a float; nothing if it is no value of it (0.5 or 300 as u8).
  std::optional<std::uint64_t> bits(DType dtype) const;
  std::string text() const;  ///< of the scalar, for messages

 private:
  std::optional<Array> owned_;
  const Array* borrowed_ = nullptr;
  double value_ = 0;
  std::int64_t integer_ = 0;
  bool integral_ = false;
  bool large_ = false;  ///< an unsigned 64-bit integer above the signed ones
  DType dtype_ = DType::f32;
};

/// The dtype in which two arrays meet; the table is in docs/arrays.md. As in PyTorch, MLX and JAX, and unlike in NumPy,
/// a float's dtype wins over any integer's: i64 with f32 is f32, and i32 with f16 is f16. f16 with bf16 is f32. Among
/// integers the wider wins, and signed with unsigned is the smallest signed dtype that holds both (u64 with any: i64).
DType promote(DType a, DType b);

// Elementwise, broadcasting, deferred. Operands on different devices are a DeviceError.
Array operator+(ArrayOperand a, ArrayOperand b);   ///< The sum of each pair of elements.
Array operator-(ArrayOperand a, ArrayOperand b);   ///< The difference of each pair of elements.
Array operator*(ArrayOperand a, ArrayOperand b);   ///< The product of each pair of elements.
Array operator/(ArrayOperand a, ArrayOperand b);   ///< of integers: as in kernels, x / 0 is 0
Array operator%(ArrayOperand a, ArrayOperand b);   ///< The remainder of each division, with the sign of the dividend.
Array operator&(ArrayOperand a, ArrayOperand b);   ///< The bitwise and of integers, the logical and of bools.
Array operator|(ArrayOperand a, ArrayOperand b);   ///< The bitwise or of integers, the logical or of bools.
Array operator^(ArrayOperand a, ArrayOperand b);   ///< The bitwise exclusive or of integers, the logical one of bools.
Array operator==(ArrayOperand a, ArrayOperand b);  ///< A bool array: true where the elements are equal.
Array operator!=(ArrayOperand a, ArrayOperand b);  ///< A bool array: true where the elements differ.
Array operator<(ArrayOperand a, ArrayOperand b);   ///< A bool array: true where `a` is less than `b`.
Array operator<=(ArrayOperand a, ArrayOperand b);  ///< A bool array: true where `a` is at most `b`.
Array operator>(ArrayOperand a, ArrayOperand b);   ///< A bool array: true where `a` is greater than `b`.
Array operator>=(ArrayOperand a, ArrayOperand b);  ///< A bool array: true where `a` is at least `b`.
Array operator-(Array a);                          ///< The negative of each element.
Array operator!(Array a);                          ///< The logical not of bools.
Array minimum(ArrayOperand a, ArrayOperand b);     ///< The smaller of each pair of elements; NaN if one is NaN.
Array maximum(ArrayOperand a, ArrayOperand b);     ///< The larger of each pair of elements; NaN if one is NaN.
Array pow(ArrayOperand a, ArrayOperand b);         ///< `a` to the power of `b`.
/// Elements of `if_true` where `condition` (bool) is true, of `if_false` elsewhere.
Array where(Array condition, ArrayOperand if_true, ArrayOperand if_false);
Array abs(Array a);                           ///< The absolute value.
Array sqrt(Array a);                          ///< The square root.
Array rsqrt(Array a);                         ///< 1 / sqrt(a).
Array exp(Array a);                           ///< e to the power of `a`.
Array exp2(Array a);                          ///< 2 to the power of `a`.
Array log(Array a);                           ///< The natural logarithm.
Array log2(Array a);                          ///< The logarithm to base 2.
Array log1p(Array a);                         ///< log(1 + a), also near 0: within 2 ulp of f32, 3 of f64
Array expm1(Array a);                         ///< exp(a) - 1, also near 0: within 4.5 ulp of f32, 5.5 of f64
Array log10(Array a);                         ///< The logarithm to base 10.
Array sin(Array a);                           ///< The sine of an angle in radians.
Array cos(Array a);                           ///< The cosine of an angle in radians.
Array tan(Array a);                           ///< The tangent of an angle in radians.
Array asin(Array a);                          ///< The inverse sine, in radians.
Array acos(Array a);                          ///< The inverse cosine, in radians.
Array atan(Array a);                          ///< The inverse tangent, in radians.
Array atan2(ArrayOperand y, ArrayOperand x);  ///< the angle of the point (x, y), between -pi and pi
Array sinh(Array a);                          ///< The hyperbolic sine.
Array cosh(Array a);                          ///< The hyperbolic cosine.
Array tanh(Array a);                          ///< The hyperbolic tangent.
Array hypot(ArrayOperand a, ArrayOperand b);  ///< sqrt(a * a + b * b), also where the squares overflow
Array erf(Array a);                           ///< The error function.
Array floor(Array a);                         ///< The largest whole number that is at most `a`.
Array ceil(Array a);                          ///< The smallest whole number that is at least `a`.
Array trunc(Array a);                         ///< The whole number next to `a` towards zero.
Array rint(Array a);                          ///< The nearest whole number, ties to even.
Array round(Array a);                         ///< rint: to the nearest whole number, ties to even as in NumPy
Array sigmoid(Array a);                       ///< 1 / (1 + exp(-a)).
Array silu(Array a);                          ///< a * sigmoid(a)
Array relu(Array a);                          ///< max(a, 0).
Array gelu(Array a);                          ///< with erf
Array sign(Array a);  ///< -1, 0 or 1 of the same dtype; of NaN it is NaN, and of a zero that zero
/// |a| with the sign of b, also where b is a zero or NaN. Floats.
Array copysign(ArrayOperand a, ArrayOperand b);
/// Between `low` and `high`: minimum(maximum(a, low), high), so where low > high it is high.
Array clip(Array a, ArrayOperand low, ArrayOperand high);
Array isnan(Array a);     ///< bools; false for integers
Array isinf(Array a);     ///< bools; false for integers
Array isfinite(Array a);  ///< bools; true for integers

// Reductions over `axes` (all if empty); `keep` leaves extents of 1. A pending argument is computed on the way.
// (Arguments are taken by value so that a temporary is known to be one and is never written to memory.)
// Integers are summed as 64 bits, 16-bit floats as f32. The mean of integers is f64 (f32 on a device without f64), of
// a sum that is exact up to 32 bits. An empty maximum or minimum is a ShapeError. NaN is by NumPy's rule,
// here and in minimum and maximum: where one is, it is the result; and -0 is below +0.
/// The sum over the axes (all if empty); `keep` leaves them with extent 1.
Array sum(Array a, std::vector<int> axes = {}, bool keep = false);
/// The mean over the axes (all if empty); `keep` leaves them with extent 1.
Array mean(Array a, std::vector<int> axes = {}, bool keep = false);
/// The largest element over the axes (all if empty); `keep` leaves them with extent 1.
Array max(Array a, std::vector<int> axes = {}, bool keep = false);
/// The smallest element over the axes (all if empty); `keep` leaves them with extent 1.
Array min(Array a, std::vector<int> axes = {}, bool keep = false);
/// True if any element over the axes (all if empty) is; `keep` leaves them with extent 1.
Array any(Array a, std::vector<int> axes = {}, bool keep = false);
/// True if all elements over the axes (all if empty) are; `keep` leaves them with extent 1.
Array all(Array a, std::vector<int> axes = {}, bool keep = false);
/// Position (i64) of the first largest element along an axis, or of the first NaN if there is one, as in NumPy. An
/// array without axes counts as one of shape (1,). ShapeError: the axis has no elements, or more than 2^31 - 8192.
Array argmax(Array a, int axis = -1, bool keep = false);
Array argmin(Array a, int axis = -1, bool keep = false);  ///< of the first smallest, otherwise the same

/// Joins along an axis. Shapes equal elsewhere; dtypes are promoted.
Array concatenate(std::span<const Array> parts, int axis = 0);
Array concatenate(std::initializer_list<Array> parts, int axis = 0);
/// Picks along an axis, as NumPy's take: the axis is replaced by the dimensions of `indices`, which have any integer
/// dtype and shape. An index out of range, negative ones too, gives zeros. A table without axes counts as one of shape
/// (1,).
Array take(const Array& table, const Array& indices, int axis = 0);

/// Numbers by Philox 4x32-10 from seed and element index: the same on every device and for every tiling.
Array random_uniform(Shape shape, std::uint64_t seed, double low = 0, double high = 1,
                     std::optional<Device> device = {});
/// Normally distributed numbers with the given mean and standard deviation; otherwise as random_uniform.
Array random_normal(Shape shape, std::uint64_t seed, double mean = 0, double deviation = 1,
                    std::optional<Device> device = {});
Array random_bits(Shape shape, std::uint64_t seed, std::optional<Device> device = {});  ///< u32

/// Computes what is pending of these. Those of one shape and device are one kernel, as far as the device's limit of
/// parameters and 256 operations allow, so that what they have in common is read and computed once.
void eval(std::span<const Array> arrays);
void eval(std::initializer_list<Array> arrays);

/// A write for assign_all.
struct Assignment {
  Array target, value;  ///< What is written, and the new values.
};
/// Writes each value into its target as assign() does, but all at once: values are of what memory held before. Targets
/// of one shape are written by one kernel where values are pending expressions that are given up to it (moved in:
/// whatever else holds a value that reads a target has it computed first). ArgumentError if targets share elements;
/// those whose ranges of memory only overlap are written one after the other.
void assign_all(std::span<Assignment> all);  ///< values are left empty
template <std::size_t N>
void assign_all(Assignment (&&all)[N]) {  // assign_all({{a, std::move(x)}, {b, std::move(y)}}) without copies
  assign_all(std::span<Assignment>(all));
}

/// NumPy's .npy files, versions 1 to 3, little-endian, C order (Fortran order is read too). FormatError with offset and
/// field. Saving puts the whole file in the old one's place in one step (missing folders are made), or writes to what
/// is no file, like a pipe or /dev/stdout, and in place where no other file can take the old one's; ArgumentError with
/// the system's words if it cannot, and the old file stays unless it was being written in place.
void save_npy(const Array& a, const std::string& path);
/// Reads an array from a file in NumPy's format. Throws FormatError if it is not one.
Array load_npy(const std::string& path, std::optional<Device> device = {});

/// Values in NumPy's layout, of 6 digits (f64: 15), summarised beyond 1,000 elements, with dtype and device.
std::string to_string(const Array& a);

/// Prints every flush of a deferred expression with its rule to stderr; also TESSERA_TRACE_FUSION=1.
void trace_fusion(bool on);
/// Kernels that deferred expressions and reductions have launched so far in this process; for tests.
std::uint64_t fused_launches();

/// What a kernel launch takes from an Array (found by argument-dependent look-up): its memory. ShapeError if its
/// elements do not lie one behind the other, as those of transposed, sliced and broadcast arrays do not.
BufferView kernel_argument(const Array& a, ir::Access access);

}  // namespace tessera
