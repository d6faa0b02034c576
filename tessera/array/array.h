// SPDX-License-Identifier: Apache-2.0
// Array: a typed, strided view of memory on one device. Function names and broadcasting follow NumPy.
// Elementwise operations are deferred and fused. Errors in shapes, dtypes and devices are still thrown at the call.
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
#include "tessera/ir/fwd.h"

namespace tessera {

namespace detail {
class Source;
class Step;
}  // namespace detail
class ArrayOperand;
class HostAccess;
class HostView;

/// An n-dimensional array. Copying an Array is cheap: the copy refers to the same memory, as do views. A write through
/// one array (`assign`, `+=`) is therefore visible through all of them. Several threads can read the same array.
class Array {
 public:
  Array();  ///< An empty array: f32, shape (0,), on the CPU.

  // Creation. `device` defaults to current_device().
  /// An array with uninitialised elements.
  static Array empty(Shape shape, DType dtype = DType::f32, std::optional<Device> device = {});
  /// An array filled with `value`, converted to `dtype`. Floats are rounded to nearest; values beyond the largest
  /// finite number become infinity. Integers truncate towards zero and saturate at the limits of the dtype; NaN becomes
  /// 0. A bool is true unless the value is 0.
  static Array full(Shape shape, double value, DType dtype = DType::f32, std::optional<Device> device = {});
  /// An array of zeros.
  static Array zeros(Shape shape, DType dtype = DType::f32, std::optional<Device> device = {});
  static Array ones(Shape shape, DType dtype = DType::f32, std::optional<Device> device = {});  ///< An array of ones.
  /// A one-dimensional array of `count` elements: start, start + step, ... For integer dtypes, `start` and `step` are
  /// converted as in full(), and the sequence wraps around on overflow.
  static Array arange(std::int64_t count, double start = 0, double step = 1, DType dtype = DType::f32,
                      std::optional<Device> device = {});
  /// `count` evenly spaced numbers from `start` to `stop` inclusive, as in NumPy. They are computed in f64 (f32 on a
  /// device without f64) and then converted to `dtype`.
  static Array linspace(double start, double stop, std::int64_t count, DType dtype = DType::f32,
                        std::optional<Device> device = {});
  /// A matrix with ones on the k-th diagonal and zeros elsewhere. `columns` defaults to `rows`.
  static Array eye(std::int64_t rows, std::optional<std::int64_t> columns = {}, std::int64_t k = 0,
                   DType dtype = DType::f32, std::optional<Device> device = {});
  /// Copies `data` into a new array. `shape` defaults to one dimension. Throws ShapeError if the element counts differ.
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
  /// An array over existing memory, without a copy.
  static Array wrap(std::shared_ptr<Storage> storage, DType dtype, Shape shape, std::uint64_t byte_offset = 0);

  // Properties.
  /// The element type.
  DType dtype() const { return dtype_; }
  /// The extents, one per dimension.
  const Shape& shape() const { return shape_; }
  /// The distance between neighbours along each dimension, in elements.
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
  bool pending() const;  ///< True if the elements have not been computed yet.

  // Host reads. They wait for the device.
  /// Copies the elements in row-major order into a vector. Blocks until they are computed. Throws DtypeError if `T`
  /// does not match the dtype.
  template <Element T>
  std::vector<T> to_vector() const {
    check_host_type("to_vector", dtype_v<T>);
    std::vector<T> out(static_cast<std::size_t>(size()));
    if constexpr (std::is_same_v<T, bool>) {
      std::unique_ptr<T[]> raw(new T[out.size()]);
      download(raw.get());
      out.assign(raw.get(), raw.get() + out.size());
    } else {
      download(out.data());
    }
    return out;
  }
  /// Returns the only element. Throws ShapeError if the array does not have exactly one.
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
  /// Copies the `size()` elements in row-major order to host memory at `to`.
  void download(void* to) const;

  // Views. They share this array's memory unless documented otherwise.
  /// A view with another shape, or a copy if the strides do not allow a view. One extent can be -1. It is then inferred
  /// from the other extents, none of which can be 0.
  Array reshape(Shape shape) const;
  Array transpose() const;  ///< A view with the dimensions reversed.
  /// A view with the dimensions in the given order. `axes` contains each axis exactly once.
  Array permute(std::vector<int> axes) const;
  /// A view with repeated elements, following NumPy's broadcasting rules. Throws ShapeError if the shapes are
  /// incompatible.
  Array broadcast_to(const Shape& shape) const;
  /// Elements `begin`, `begin + step`, ... up to but excluding `end`. As in NumPy, negative indices count from the end,
  /// and the range is clipped to the axis. A negative step runs from `begin` down to `end`, exclusive; pass -n - 1 or
  /// less as `end` to include element 0 of an axis with n elements. A negative step returns a copy, so writing to the
  /// result does not change this array.
  Array slice(int axis, std::int64_t begin, std::int64_t end, std::int64_t step = 1) const;
  Array select(int axis, std::int64_t index) const;  ///< A view of one index along `axis`; the axis is removed.
  Array unsqueeze(int axis) const;                   ///< A view with a new axis of extent 1.
  Array squeeze(int axis) const;  ///< A view without an axis of extent 1. Throws ShapeError if the extent is not 1.
  Array as_contiguous() const;    ///< Returns the array itself if it is contiguous, otherwise a contiguous copy.

  Array astype(DType dtype) const;  ///< Converts to `dtype`. Returns the array itself if it has that dtype.
  /// A copy on `device`, or the array itself if it is already there.
  Array to(Device device) const;
  Array copy() const;  ///< A copy with its own memory on the same device.

  // In-place writes. Pending expressions that read this memory are evaluated first.
  /// Writes `value`, broadcast to this shape and converted to this dtype. Throws DeviceError if `value` is on another
  /// device.
  void assign(Array value);
  void fill(double value);  ///< Fills the array with `value`, converted as in full().
  // The right operand is converted to this dtype. Throws DtypeError if its dtype is of a higher kind, such as a float
  // operand for an integer array.
  Array& operator+=(ArrayOperand b);  ///< Adds in place.
  Array& operator-=(ArrayOperand b);  ///< Subtracts in place.
  Array& operator*=(ArrayOperand b);  ///< Multiplies in place.
  Array& operator/=(ArrayOperand b);  ///< Divides in place.

  /// Computes the elements now if they are pending.
  const Array& eval() const;
  /// The memory range of the elements, for a kernel. A pending array is computed first. If the array is strided, its
  /// elements are `strides()` apart within the range. Throws ArgumentError if the array has history, since gradients do
  /// not flow through raw memory.
  BufferView view() const;
  /// Like view(), but for writing. Pending expressions that read the memory are evaluated first.
  BufferView view_for_writing() const;
  /// Gives the host read and write access to the elements until the returned object is destroyed. Waits for all work
  /// that uses the memory and evaluates pending expressions that read it. While the object exists, operations that read
  /// the array are computed immediately. Throws DeviceError unless the backend is cpu or interp.
  HostAccess host_access() const;
  /// Gives the host read access to the elements until the returned object is destroyed. Waits for work that writes the
  /// memory. A task can call it for an array that it only reads. Do not write the array while the object exists. Throws
  /// DeviceError unless the backend is cpu or interp.
  HostView host_view() const;

  /// Data that an ArrayObserver attached to this array (observer.h). Copies of the array share it; arrays computed from
  /// this one do not inherit it.
  const std::shared_ptr<void>& history() const { return history_; }
  /// Attaches an observer's data; see history().
  void set_history(std::shared_ptr<void> history) { history_ = std::move(history); }

  /// True if gradients flow through this array (grad/grad.h). Such an array can be read by the host and by array
  /// operations. Writing to it throws ArgumentError, as does passing it to code that records no history, such as a
  /// kernel launch.
  bool has_history() const { return step_ != nullptr; }
  const std::shared_ptr<detail::Step>& step() const { return step_; }  ///< The latest step of its history (history.h).
  /// Sets the latest step of the history; used by gradients.
  void set_step(std::shared_ptr<detail::Step> step) { step_ = std::move(step); }

  /// The memory of the elements, or the pending expression that computes them; used by the library.
  const std::shared_ptr<detail::Source>& source() const { return source_; }
  /// The position of the first element, in elements from the start of source().
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

/// Host access to an array's elements while the object exists. The elements of a strided array are `strides()` apart.
class HostAccess {
 public:
  ~HostAccess();
  HostAccess(HostAccess&& other) noexcept = default;
  HostAccess& operator=(HostAccess&&) = delete;

  /// The address of the first element.
  void* data() const { return data_; }
  /// The range from the first to the last element, including the gaps of a strided array. Throws DtypeError if `T` does
  /// not match the array's dtype.
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

/// Read access of the host to an array's elements while the object exists. The elements of a strided array are
/// `strides()` apart.
class HostView {
 public:
  /// The address of the first element.
  const void* data() const { return data_; }
  /// The range from the first to the last element, including the gaps of a strided array. Throws DtypeError if `T` does
  /// not match the array's dtype.
  template <Element T>
  std::span<const T> as() const {
    check(dtype_v<T>);
    return {static_cast<const T*>(data_), count_};
  }

 private:
  friend class Array;
  explicit HostView(BufferView view);
  void check(DType wanted) const;
  std::shared_ptr<Storage> storage_;
  const void* data_;
  std::size_t count_;
  DType dtype_;
};

/// An operand of an elementwise operation: an array or a host scalar. A temporary array is moved into the operand, so
/// that an intermediate result that is used only here is never written to memory. Any other array is referenced and
/// must outlive the operand.
///
/// The dtype of the result depends only on the types of the operands (docs/arrays.md). A scalar takes the array's dtype
/// and is rounded to it, unless the scalar is of a higher kind:
/// - a float or double combined with integers or bools produces f32;
/// - an integer combined with bools produces i32, or a 64-bit dtype for a 64-bit integer.
///
/// Throws DtypeError for an integer that the array's integer dtype cannot represent.
class ArrayOperand {
 public:
  /// References an array, which must outlive the operand.
  ArrayOperand(const Array& a) : borrowed_(&a) {}
  /// Takes ownership of an array.
  ArrayOperand(Array&& a) : owned_(std::move(a)) {}
  /// A scalar. It adopts the dtype of the other operand if both have the same kind (float, integer, bool).
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
  /// The array's dtype, or the scalar's default dtype.
  DType dtype() const { return is_array() ? array().dtype() : dtype_; }
  /// The array. Requires is_array().
  const Array& array() const { return borrowed_ != nullptr ? *borrowed_ : *owned_; }
  /// Returns the array, moved out if the operand owns it. Requires is_array().
  Array take() {
    if (borrowed_ != nullptr) return *borrowed_;
    return std::move(*owned_);
  }
  void release() { owned_.reset(), borrowed_ = nullptr; }  ///< Drops the array.
  double value() const { return value_; }                  ///< The scalar's value.
  /// The bits of the scalar in `dtype`. A float dtype rounds it. Returns nullopt if an integer dtype cannot represent
  /// it (0.5 or 300 as u8).
  std::optional<std::uint64_t> bits(DType dtype) const;
  std::string text() const;  ///< The scalar as text, for messages.

 private:
  std::optional<Array> owned_;
  const Array* borrowed_ = nullptr;
  double value_ = 0;
  std::int64_t integer_ = 0;
  bool integral_ = false;
  bool large_ = false;  ///< An unsigned 64-bit integer beyond the range of i64.
  DType dtype_ = DType::f32;
};

/// The common dtype of two arrays; docs/arrays.md has the full table. As in PyTorch, MLX and JAX, but not in NumPy, a
/// float dtype wins over any integer dtype: i64 with f32 is f32, and i32 with f16 is f16. f16 with bf16 is f32. Of two
/// integer dtypes the wider wins. A signed and an unsigned dtype give the smallest signed dtype that represents both;
/// u64 with any signed dtype gives i64.
DType promote(DType a, DType b);

// Elementwise operations. They broadcast and are deferred. They throw DeviceError if the operands are on different
// devices.
Array operator+(ArrayOperand a, ArrayOperand b);  ///< The sum of each pair of elements.
Array operator-(ArrayOperand a, ArrayOperand b);  ///< The difference of each pair of elements.
Array operator*(ArrayOperand a, ArrayOperand b);  ///< The product of each pair of elements.
/// The quotient of each pair of elements. Integer division by zero returns 0, as in kernels.
Array operator/(ArrayOperand a, ArrayOperand b);
Array operator%(ArrayOperand a, ArrayOperand b);  ///< The remainder of each division, with the sign of the dividend.
Array operator&(ArrayOperand a, ArrayOperand b);  ///< The bitwise and of integers, the logical and of bools.
Array operator|(ArrayOperand a, ArrayOperand b);  ///< The bitwise or of integers, the logical or of bools.
Array operator^(ArrayOperand a,
                ArrayOperand b);  ///< The bitwise exclusive or of integers, the logical exclusive or of bools.
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
/// Elements of `if_true` where `condition` (bool) is true, and of `if_false` where it is false.
Array where(Array condition, ArrayOperand if_true, ArrayOperand if_false);
Array abs(Array a);                           ///< The absolute value.
Array sqrt(Array a);                          ///< The square root.
Array rsqrt(Array a);                         ///< 1 / sqrt(a).
Array exp(Array a);                           ///< e to the power of `a`.
Array exp2(Array a);                          ///< 2 to the power of `a`.
Array log(Array a);                           ///< The natural logarithm.
Array log2(Array a);                          ///< The logarithm to base 2.
Array log1p(Array a);                         ///< log(1 + a), accurate near 0: within 2 ulp for f32, 3 for f64.
Array expm1(Array a);                         ///< exp(a) - 1, accurate near 0: within 4.5 ulp for f32, 5.5 for f64.
Array log10(Array a);                         ///< The logarithm to base 10.
Array sin(Array a);                           ///< The sine of an angle in radians.
Array cos(Array a);                           ///< The cosine of an angle in radians.
Array tan(Array a);                           ///< The tangent of an angle in radians.
Array asin(Array a);                          ///< The inverse sine, in radians.
Array acos(Array a);                          ///< The inverse cosine, in radians.
Array atan(Array a);                          ///< The inverse tangent, in radians.
Array atan2(ArrayOperand y, ArrayOperand x);  ///< The angle of the point (x, y), between -pi and pi.
Array sinh(Array a);                          ///< The hyperbolic sine.
Array cosh(Array a);                          ///< The hyperbolic cosine.
Array tanh(Array a);                          ///< The hyperbolic tangent.
Array hypot(ArrayOperand a, ArrayOperand b);  ///< sqrt(a * a + b * b) without overflow of the squares.
Array erf(Array a);                           ///< The error function.
Array floor(Array a);                         ///< The largest integer that is at most `a`.
Array ceil(Array a);                          ///< The smallest integer that is at least `a`.
Array trunc(Array a);                         ///< `a` rounded towards zero.
Array rint(Array a);                          ///< The nearest integer, ties to even.
Array round(Array a);                         ///< Like rint: the nearest integer, ties to even as in NumPy.
Array sigmoid(Array a);                       ///< 1 / (1 + exp(-a)).
Array silu(Array a);                          ///< a * sigmoid(a).
Array relu(Array a);                          ///< max(a, 0).
Array gelu(Array a);                          ///< The exact GELU, a * (1 + erf(a / sqrt(2))) / 2.
Array sign(Array a);                          ///< -1, 0 or 1 in the same dtype. Keeps NaN and the sign of zero.
/// The absolute value of `a` with the sign of `b`, including the sign of a zero or NaN. Floats only.
Array copysign(ArrayOperand a, ArrayOperand b);
/// Limits `a` to [low, high] as minimum(maximum(a, low), high). Where low > high, the result is `high`.
Array clip(Array a, ArrayOperand low, ArrayOperand high);
Array isnan(Array a);     ///< A bool array: true where `a` is NaN. False for integers.
Array isinf(Array a);     ///< A bool array: true where `a` is infinite. False for integers.
Array isfinite(Array a);  ///< A bool array: true where `a` is finite. True for integers.

// Reductions over `axes` (all axes if empty). `keep` keeps the reduced axes with extent 1. A pending argument is
// evaluated inside the reduction kernel. (Arguments are passed by value, so that a temporary can be recognised as one
// and is never written to memory.)
//
// Integers are summed in 64 bits, 16-bit floats in f32. The mean of integers is f64 (f32 on a device without f64); for
// integers of up to 32 bits it is computed from an exact sum. The maximum or minimum of no elements throws ShapeError.
// As in NumPy, NaN propagates; -0 is less than +0.
/// The sum over `axes` (all if empty). `keep` keeps the reduced axes with extent 1.
Array sum(Array a, std::vector<int> axes = {}, bool keep = false);
/// The mean over `axes` (all if empty). `keep` keeps the reduced axes with extent 1.
Array mean(Array a, std::vector<int> axes = {}, bool keep = false);
/// The largest element over `axes` (all if empty). `keep` keeps the reduced axes with extent 1.
Array max(Array a, std::vector<int> axes = {}, bool keep = false);
/// The smallest element over `axes` (all if empty). `keep` keeps the reduced axes with extent 1.
Array min(Array a, std::vector<int> axes = {}, bool keep = false);
/// True if any element over `axes` (all if empty) is true. `keep` keeps the reduced axes with extent 1.
Array any(Array a, std::vector<int> axes = {}, bool keep = false);
/// True if all elements over `axes` (all if empty) are true. `keep` keeps the reduced axes with extent 1.
Array all(Array a, std::vector<int> axes = {}, bool keep = false);
/// The position (i64) of the first largest element along an axis. As in NumPy, it is the position of the first NaN if
/// there is one. An array without axes is treated as shape (1,). Throws ShapeError if the axis has no elements or more
/// than 2^31 - 8192.
Array argmax(Array a, int axis = -1, bool keep = false);
/// The position (i64) of the first smallest element along an axis. Otherwise like argmax.
Array argmin(Array a, int axis = -1, bool keep = false);

/// Joins arrays along an axis. All other extents must be equal. Dtypes are promoted.
Array concatenate(std::span<const Array> parts, int axis = 0);
Array concatenate(std::initializer_list<Array> parts, int axis = 0);
/// Selects elements along an axis, like NumPy's take: the dimensions of `indices` replace the axis. Indices can have
/// any integer dtype and shape. An index out of range, including a negative one, selects zeros. A table without axes is
/// treated as shape (1,).
Array take(const Array& table, const Array& indices, int axis = 0);

/// Uniform random numbers in [low, high). Philox 4x32-10 computes them from the seed and the index of each element, so
/// the numbers are the same on every device and for every tiling.
Array random_uniform(Shape shape, std::uint64_t seed, double low = 0, double high = 1,
                     std::optional<Device> device = {});
/// Normally distributed random numbers with this mean and standard deviation, computed from the same stream as
/// random_uniform.
Array random_normal(Shape shape, std::uint64_t seed, double mean = 0, double deviation = 1,
                    std::optional<Device> device = {});
Array random_bits(Shape shape, std::uint64_t seed, std::optional<Device> device = {});  ///< Random u32 numbers.

/// Evaluates all pending arrays in `arrays`. Arrays of the same shape and device share a kernel, so that common
/// subexpressions are read and computed once. A kernel has at most 256 operations and as many parameters as the device
/// allows.
void eval(std::span<const Array> arrays);
void eval(std::initializer_list<Array> arrays);

/// One write of assign_all.
struct Assignment {
  Array target, value;  ///< The array to write, and its new values.
};
/// Writes each value into its target as assign() does. All values are computed from the old contents. Targets of the
/// same shape are written by one kernel if the values are pending expressions that are moved in. If another array still
/// refers to a value that reads a target, the value is computed first. Throws ArgumentError if targets share elements.
/// Targets whose memory ranges overlap without sharing elements are written one after the other.
void assign_all(std::span<Assignment> all);  ///< The values in `all` are left empty.
template <std::size_t N>
void assign_all(Assignment (&&all)[N]) {  // assign_all({{a, std::move(x)}, {b, std::move(y)}}) without copies
  assign_all(std::span<Assignment>(all));
}

/// Writes a NumPy .npy file (little-endian, C order). Missing folders are created. A regular file is replaced
/// atomically. The file is written in place if it cannot be replaced, or if it is not a regular file, such as a pipe or
/// /dev/stdout. Throws ArgumentError with the system's message on failure. The old file is then unchanged, unless it
/// was being written in place.
void save_npy(const Array& a, const std::string& path);
/// Reads a little-endian NumPy .npy file of version 1 to 3, in C or Fortran order. Throws FormatError with the offset
/// and the field if the file is invalid.
Array load_npy(const std::string& path, std::optional<Device> device = {});

/// The elements in NumPy's layout, followed by dtype and device. Floats are printed with 6 digits, f64 numbers with 15.
/// Arrays of more than 1,000 elements are summarised.
std::string to_string(const Array& a);

/// Prints each evaluation of a pending expression and its reason to stderr. Setting TESSERA_TRACE_FUSION=1 has the same
/// effect.
void trace_fusion(bool on);
/// The number of kernels launched for pending expressions and reductions in this process; for tests.
std::uint64_t fused_launches();

/// Passes the memory of an array to a kernel launch (found by argument-dependent lookup). Throws ShapeError if the
/// array is not contiguous, for example because it is transposed, sliced or broadcast.
BufferView kernel_argument(const Array& a, ir::Access access);

}  // namespace tessera
