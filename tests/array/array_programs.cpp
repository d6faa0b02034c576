// SPDX-License-Identifier: Apache-2.0
#include "tests/array/array_programs.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <limits>
#include <optional>
#include <random>

#include "tessera/ops/product.h"

namespace tessera::test {

namespace {

constexpr std::int64_t most = 20000;  // elements per array
constexpr std::size_t kept = 20;      // number of arrays that are kept

struct Unary {
  const char* name;
  Array (*f)(Array);
};
struct Binary {
  const char* name;
  Array (*f)(ArrayOperand, ArrayOperand);
};

const Unary of_numbers[] = {{"neg", [](Array a) { return -std::move(a); }},
                            {"abs", abs},
                            {"sqrt", sqrt},
                            {"rsqrt", rsqrt},
                            {"exp", exp},
                            {"exp2", exp2},
                            {"log", log},
                            {"log2", log2},
                            {"sin", sin},
                            {"cos", cos},
                            {"tanh", tanh},
                            {"erf", erf},
                            {"floor", floor},
                            {"ceil", ceil},
                            {"trunc", trunc},
                            {"rint", rint},
                            {"sigmoid", sigmoid},
                            {"silu", silu},
                            {"relu", relu},
                            {"gelu", gelu}};
const Binary on_numbers[] = {
    {"add", operator+ },
     {"sub", operator- },
      {"mul", operator* }, {"div", operator/ }, {"rem", operator% }, {"minimum", minimum}, {"maximum", maximum}};
const Binary on_all[] = {
    {"eq", operator== },
     {"ne", operator!= }, {"lt", operator<}, {"le", operator<= }, {"gt", operator> }, {"ge", operator>= } };
const Binary on_bits[] = {{"and", operator& }, {"or", operator| }, {"xor", operator^ } };

class Program {
  std::uint64_t below(std::uint64_t n) { return random_() % n; }
  template <class C>
  const auto& pick(const C& c) {
    return c[below(std::size(c))];
  }

 public:
  explicit Program(const ProgramOptions& options) : options_(options), random_(options.seed) {
    const bool f64 = device_info(current_device()).can.f64;
    for (DType t : {DType::f32, DType::f32, DType::f32, DType::f16, DType::bf16, DType::f64, DType::i32, DType::i64,
                    DType::u32, DType::u64, DType::i16, DType::u16, DType::i8, DType::u8, DType::boolean})
      if (t != DType::f64 || f64) dtypes_.push_back(t);
    static constexpr std::int64_t extents[] = {1, 2, 3, 8, 17, 33, 40, 65};
    for (auto& e : extents_) e = pick(extents);
    if (below(3) != 0)  // In most programs, rows and columns are long enough for the different forms of reductions.
      for (int i : {0, 1}) extents_[i] = extents[4 + below(4)];
    if (below(8) == 0) extents_[0] = 5000 / extents_[1];  // sometimes long enough that reductions are split into parts
  }

  std::vector<Array> run() {
    for (int done = 0; done < options_.operations;) {
      while (arrays_.size() < 6) make();
      if (step()) ++done;
    }
    std::vector<Array> out;
    for (auto& [number, a] : arrays_) out.push_back(std::move(a));
    return out;
  }

 private:
  using Named = std::pair<std::size_t, Array>;
  // Prefers the latest array, so that expressions grow. Prefers the larger of two arrays, because most operations
  // return smaller ones.
  const Named& any() {
    const Named &a = below(4) == 0 ? arrays_.back() : arrays_[below(arrays_.size())],
                &b = arrays_[below(arrays_.size())];
    return below(2) == 0 || a.second.size() >= b.second.size() ? a : b;
  }

  void keep(Step step, Array a) {
    step.to = ++made_;
    if (options_.after) options_.after(step, a);
    // Most operands are released, like the operands of a longer expression. Intermediate results that only this
    // expression uses are never stored.
    for (const std::size_t number : step.from)
      if (below(3) != 0) std::erase_if(arrays_, [&](const Named& n) { return n.first == number; });
    arrays_.emplace_back(step.to, std::move(a));
    if (arrays_.size() > kept) arrays_.erase(arrays_.begin() + static_cast<std::ptrdiff_t>(below(arrays_.size())));
  }
  void written(Step step, const Array& a) {
    if (options_.after) options_.after(step, a);
  }

  Shape shape() {
    const std::int64_t a = extents_[0], b = extents_[1], c = extents_[2];
    switch (below(9)) {
      case 0: return {};
      case 1: return {b};
      case 2: return {a, 1};
      case 3: return {1, b};
      case 4: return a * b * c <= most ? Shape{c, a, b} : Shape{a, b};
      case 5: return {b, a};
      default: return {a, b};
    }
  }
  double value(DType t, bool special_ones) {
    static constexpr double special[] = {0., -0., 1., -1., 0.5, 2., 1e-40, -3e38, 65504., 1e300};
    if (is_float(t)) {
      if (!special_ones) return std::normal_distribution<double>(0, 2)(random_);
      if (below(12) == 0) return below(3) == 0 ? std::nan("") : below(2) ? HUGE_VAL : -HUGE_VAL;
      if (below(8) == 0) return pick(special);
      return std::normal_distribution<double>(0, below(6) == 0 ? 1000 : 2)(random_);
    }
    return static_cast<double>(static_cast<std::int64_t>(below(below(5) == 0 ? std::uint64_t{1} << 33 : 21)) - 10);
  }
  void make() {
    const DType t = pick(dtypes_);
    const Shape s = shape();
    std::vector<double> data(static_cast<std::size_t>(element_count(s)));
    const bool special_ones = below(4) == 0;  // otherwise all sums are finite
    for (double& v : data) v = value(t, special_ones);
    // The data are converted on the host, because the device's conversion is under test.
    keep({.operation = "data"}, from(data, s, t));
  }
  template <class T>
  static Array typed(const std::vector<double>& data, const Shape& s) {
    std::vector<T> out;
    for (double v : data) {
      if constexpr (std::is_integral_v<T> && !std::is_same_v<T, bool>)
        out.push_back(static_cast<T>(static_cast<std::int64_t>(v)));
      else if constexpr (std::is_same_v<T, bool>)
        out.push_back(v > 0);
      else
        out.push_back(T(static_cast<float>(v)));
    }
    if constexpr (std::is_same_v<T, bool>) {
      const std::unique_ptr<bool[]> flat(new bool[out.size()]);
      std::copy(out.begin(), out.end(), flat.get());
      return Array::from(std::span<const bool>(flat.get(), out.size()), s);
    } else {
      return Array::from(out, s);
    }
  }
  static Array from(const std::vector<double>& data, const Shape& s, DType t) {
    switch (t) {
      case DType::boolean: return typed<bool>(data, s);
      case DType::i8: return typed<std::int8_t>(data, s);
      case DType::u8: return typed<std::uint8_t>(data, s);
      case DType::i16: return typed<std::int16_t>(data, s);
      case DType::u16: return typed<std::uint16_t>(data, s);
      case DType::i32: return typed<std::int32_t>(data, s);
      case DType::u32: return typed<std::uint32_t>(data, s);
      case DType::i64: return typed<std::int64_t>(data, s);
      case DType::u64: return typed<std::uint64_t>(data, s);
      case DType::f16: return typed<half>(data, s);
      case DType::bf16: return typed<bfloat16>(data, s);
      case DType::f64: return Array::from(data, s);
      default: return typed<float>(data, s);
    }
  }

  // Returns the broadcast shape. Returns std::nullopt if the shapes are incompatible or the result has more than `most`
  // elements.
  static std::optional<Shape> together(const Shape& a, const Shape& b) {
    for (std::size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
      const auto x = a[a.size() - 1 - i], y = b[b.size() - 1 - i];
      if (x != y && x != 1 && y != 1) return {};
    }
    Shape s = broadcast_shapes("programs", a, b);
    if (element_count(s) > most || s.size() > 5) return {};
    return s;
  }
  std::string text(double v) {
    char out[32];
    std::snprintf(out, sizeof out, "%.17g", v);
    return out;
  }

  bool binary(const Binary& op, bool numbers, bool bits) {
    const Named a = any();
    const DType t = a.second.dtype();
    if (bits && is_float(t)) return false;
    if (below(3) == 0) {  // with a scalar
      const bool left = below(2) == 0;
      if (bits || (!is_float(t) && below(2) == 0)) {
        const int v = static_cast<int>(below(7));
        Step s{op.name, {a.first}, {left}, std::to_string(v)};
        keep(std::move(s), left ? op.f(v, a.second) : op.f(a.second, v));
      } else {
        static constexpr double scalars[] = {0.5, -2, 3, 0.1, 1e-3, 100, 0};
        const double v = pick(scalars);
        Step s{op.name, {a.first}, {left}, text(v) + "f"};
        keep(std::move(s), left ? op.f(v, a.second) : op.f(a.second, v));
      }
      return true;
    }
    const Named b = any();
    if (bits && is_float(b.second.dtype())) return false;
    if (numbers && t == DType::boolean && b.second.dtype() == DType::boolean) return false;
    if (!together(a.second.shape(), b.second.shape())) return false;
    keep({op.name, {a.first, b.first}}, op.f(a.second, b.second));
    return true;
  }

  // A float expression that a compiler might want to contract or reorder. It is often followed by its sum.
  bool chain() {
    std::size_t at = below(arrays_.size());
    if (!is_float(arrays_[at].second.dtype()) || arrays_[at].second.size() < 2) return false;
    Named a = arrays_[at];
    if (below(2) == 0) {
      keep({"transpose", {a.first}}, a.second.transpose());
      a = arrays_.back();
    }
    const auto next = [&](Step step, Array result) {
      const std::size_t before = a.first;
      a.second = Array();
      keep(std::move(step), std::move(result));
      std::erase_if(arrays_, [&](const Named& n) { return n.first == before; });
      a = arrays_.back();
    };
    for (std::uint64_t i = 0, n = 2 + below(5); i < n; ++i) {
      const Binary& op = on_numbers[below(3)];
      const Named b = any();
      const auto both = together(a.second.shape(), b.second.shape());
      if (is_float(b.second.dtype()) && both && below(3) != 0) {
        next({op.name, {a.first, b.first}}, op.f(a.second, b.second));
      } else {
        static constexpr double scalars[] = {0.7, -1.1, 1.0 / 3, 3.3};
        const double v = pick(scalars);
        next({op.name, {a.first}, {0}, text(v) + "f"}, op.f(a.second, v));
      }
    }
    if (a.second.rank() > 0 && below(2) == 0) {
      const int axis = static_cast<int>(below(static_cast<std::uint64_t>(a.second.rank())));
      std::erase_if(arrays_, [&](const Named& n) { return n.first == a.first; });
      next({"sum", {a.first}, {0, axis}}, sum(std::move(a.second), {axis}));
    }
    return true;
  }

  bool view() {
    const Named a = any();
    const Array& x = a.second;
    const int rank = x.rank();
    const int axis = rank ? static_cast<int>(below(static_cast<std::uint64_t>(rank))) : 0;
    switch (below(8)) {
      case 0: keep({"transpose", {a.first}}, x.transpose()); return true;
      case 1: keep({"reshape", {a.first}, {-1}}, x.reshape({-1})); return true;
      case 2: {
        if (rank == 0) return false;
        const std::int64_t n = x.shape()[static_cast<std::size_t>(axis)];
        const auto begin = static_cast<std::int64_t>(below(static_cast<std::uint64_t>(n) + 1));
        const auto end = begin + static_cast<std::int64_t>(below(static_cast<std::uint64_t>(n - begin) + 1));
        const auto step = static_cast<std::int64_t>(below(3) + 1);
        if (end == begin && below(10)) return false;  // makes empty slices rare
        keep({"slice", {a.first}, {axis, begin, end, step}}, x.slice(axis, begin, end, step));
        return true;
      }
      case 3: {
        if (rank == 0 || x.size() == 0) return false;
        const auto i =
            static_cast<std::int64_t>(below(static_cast<std::uint64_t>(x.shape()[static_cast<std::size_t>(axis)])));
        keep({"select", {a.first}, {axis, i}}, x.select(axis, i));
        return true;
      }
      case 4:
        if (rank > 3) return false;
        keep({"unsqueeze", {a.first}, {axis}}, x.unsqueeze(axis));
        return true;
      case 5: {
        std::vector<int> axes(static_cast<std::size_t>(rank));
        for (int i = 0; i < rank; ++i) axes[static_cast<std::size_t>(i)] = i;
        std::shuffle(axes.begin(), axes.end(), random_);
        keep({"permute", {a.first}, {axes.begin(), axes.end()}}, x.permute(axes));
        return true;
      }
      case 6: {
        const Shape to = shape();
        const auto both = together(x.shape(), to);
        if (!both || *both != to) return false;
        keep({"broadcast_to", {a.first}, to}, x.broadcast_to(to));
        return true;
      }
      default: keep({"copy", {a.first}}, below(2) ? x.copy() : x.as_contiguous().copy()); return true;
    }
  }

  bool reduction() {
    Named a = any();
    const Array& x = a.second;
    std::vector<int> axes;
    for (int i = 0; i < x.rank(); ++i)
      if (below(2)) axes.push_back(i);
    const bool keeps = below(2) == 0;
    const DType t = x.dtype();
    std::vector<std::int64_t> numbers = {keeps};
    numbers.insert(numbers.end(), axes.begin(), axes.end());
    using F = Array (*)(Array, std::vector<int>, bool);
    const auto done = [&](const char* name, F f) {
      // released first, so that pending values are computed inside the reduction
      if (below(2) == 0 && arrays_.size() > 1)
        std::erase_if(arrays_, [&](const Named& n) { return n.first == a.first; });
      keep({name, {a.first}, numbers}, f(std::move(a.second), axes, keeps));
      return true;
    };
    switch (below(7)) {
      case 0: return done("any", any_of);
      case 1: return done("all", all_of);
      case 2: return done("mean", mean);
      case 3:
        if (t == DType::boolean || x.size() == 0) return false;
        return done("max", max);
      case 4:
        if (t == DType::boolean || x.size() == 0) return false;
        return done("min", min);
      case 5: {
        if (t == DType::boolean || x.size() == 0 || x.rank() == 0) return false;
        const int axis = static_cast<int>(below(static_cast<std::uint64_t>(x.rank())));
        keep({"argmax", {a.first}, {keeps, axis}}, argmax(x, axis, keeps));
        return true;
      }
      default: return done("sum", sum);
    }
  }
  static Array any_of(Array a, std::vector<int> axes, bool keeps) {
    return tessera::any(std::move(a), std::move(axes), keeps);
  }
  static Array all_of(Array a, std::vector<int> axes, bool keeps) { return all(std::move(a), std::move(axes), keeps); }

  // True if no elements share memory.
  static bool writable(const Array& a) {
    for (std::size_t d = 0; d < a.shape().size(); ++d)
      if (a.strides()[d] == 0 && a.shape()[d] > 1) return false;
    return a.size() > 0;
  }
  bool in_place() {
    const std::size_t at = below(arrays_.size());
    const auto [number, x] = arrays_[at];
    if (!writable(x)) return false;
    if (options_.before_write) options_.before_write();
    const int which = static_cast<int>(below(6));
    Array target = x;
    if (which == 0) {
      const double v = value(x.dtype(), true);
      target.fill(v);
      written({"fill", {}, {}, text(v), number}, target);
      return true;
    }
    const Named b = any();
    const auto both = together(x.shape(), b.second.shape());
    if (!both || *both != x.shape()) return false;
    const DType t = x.dtype(), u = b.second.dtype();
    if (which == 1) {
      target.assign(b.second);
      written({"assign", {b.first}, {}, "", number}, target);
      return true;
    }
    if (t == DType::boolean || (!is_float(t) && is_float(u))) return false;
    const char* const names[] = {"add", "sub", "mul", "div"};
    switch (which) {
      case 2: target += b.second; break;
      case 3: target -= b.second; break;
      case 4: target *= b.second; break;
      default: target /= b.second; break;
    }
    written({std::string(names[which - 2]) + "_in_place", {b.first}, {}, "", number}, target);
    return true;
  }

  bool structure() {
    const Named a = any(), b = any();
    const Array &x = a.second, &y = b.second;
    switch (below(5)) {
      case 0: {
        if (x.rank() == 0 || y.rank() != x.rank() || x.size() + y.size() > most) return false;
        for (int i = 1; i < x.rank(); ++i)
          if (x.shape(i) != y.shape(i)) return false;
        keep({"concatenate", {a.first, b.first}, {0}}, concatenate({x, y}, 0));
        return true;
      }
      case 1: {
        if (x.rank() == 0 || x.rank() > 3 || !is_int(y.dtype()) || x.size() == 0) return false;
        if (x.size() / x.shape(0) * y.size() > most || x.rank() + y.rank() > 5) return false;
        keep({"take", {a.first, b.first}}, take(x, y));
        return true;
      }
      case 2: {
        if (x.rank() < 1 || y.rank() < 1 || x.rank() > 3 || y.rank() > 3 || x.size() == 0 || y.size() == 0)
          return false;
        if (x.shape(-1) != y.shape(y.rank() == 1 ? 0 : -2)) return false;
        if (x.rank() == 3 && y.rank() == 3 && x.shape(0) != y.shape(0)) return false;
        if (x.size() * y.size() / x.shape(-1) > 40 * most) return false;
        Array product = matmul(x, y);
        if (product.size() > most) return false;
        keep({"matmul", {a.first, b.first}}, std::move(product));
        return true;
      }
      case 3: {
        const Named c = any();
        const Array condition = c.second.dtype() == DType::boolean ? c.second : c.second != 0;
        const auto xy = together(x.shape(), y.shape());
        if (!xy || !together(*xy, condition.shape())) return false;
        keep({"where", {c.first, a.first, b.first}}, where(condition, x, y));
        return true;
      }
      default: {
        const DType t = pick(dtypes_);
        keep({"astype", {a.first}, {static_cast<std::int64_t>(t)}}, x.astype(t));
        return true;
      }
    }
  }

  bool step() {
    switch (below(24)) {
      case 0: make(); return true;
      case 1:
      case 2: return view();
      case 3:
      case 4:
      case 5: return reduction();
      case 6:
      case 7: return in_place();
      case 8:
      case 9:
      case 10: return structure();
      case 11: return binary(pick(on_all), false, false);
      case 12: return binary(pick(on_bits), false, true);
      case 13: {
        const Named a = any();
        if (a.second.dtype() != DType::boolean) {
          const Named b = any();
          if (!is_float(promote(a.second.dtype(), b.second.dtype())) || !together(a.second.shape(), b.second.shape()))
            return false;
          keep({"pow", {a.first, b.first}}, pow(a.second, b.second));
        } else {
          keep({"not", {a.first}}, !a.second);
        }
        return true;
      }
      case 14:
      case 15:
      case 16: {
        const Named a = any();
        if (a.second.dtype() == DType::boolean) return false;
        const Unary& op = pick(of_numbers);
        keep({op.name, {a.first}}, op.f(a.second));
        return true;
      }
      case 17:
      case 18: return chain();
      default: return binary(pick(on_numbers), true, false);
    }
  }

  const ProgramOptions& options_;
  std::mt19937_64 random_;
  std::vector<DType> dtypes_;
  std::int64_t extents_[3];
  std::vector<Named> arrays_;
  std::size_t made_ = 0;
};

template <class Bits>
void same_nan(std::vector<unsigned char>& bytes, Bits infinity) {
  for (std::size_t i = 0; i + sizeof(Bits) <= bytes.size(); i += sizeof(Bits)) {
    Bits b;
    std::memcpy(&b, bytes.data() + i, sizeof b);
    if (static_cast<Bits>(b & (static_cast<Bits>(~Bits{0}) >> 1)) > infinity) {
      b = static_cast<Bits>(infinity + 1);
      std::memcpy(bytes.data() + i, &b, sizeof b);
    }
  }
}

}  // namespace

std::vector<Array> run_program(const ProgramOptions& options) { return Program(options).run(); }

std::vector<unsigned char> bytes_of(const Array& a) {
  std::vector<unsigned char> bytes(a.bytes());
  if (!bytes.empty()) a.download(bytes.data());
  switch (a.dtype()) {
    case DType::f16: same_nan<std::uint16_t>(bytes, 0x7c00); break;
    case DType::bf16: same_nan<std::uint16_t>(bytes, 0x7f80); break;
    case DType::f32: same_nan<std::uint32_t>(bytes, 0x7f800000); break;
    case DType::f64: same_nan<std::uint64_t>(bytes, 0x7ff0000000000000); break;
    default: break;
  }
  return bytes;
}

}  // namespace tessera::test
