// SPDX-License-Identifier: Apache-2.0
// Formats arrays in NumPy's layout.
#include <algorithm>
#include <memory>

#include <fmt/format.h>

#include "tessera/array/array.h"
#include "tessera/ir/print.h"
#include "tessera/ir/semantics.h"

namespace tessera {

namespace {

constexpr std::int64_t whole_limit = 1000, edge = 3;

class Printer {
 public:
  Printer(const Array& a, const std::byte* data) : a_(a), data_(data), summary_(a.size() > whole_limit) {}

  std::string run() {
    // The first pass determines the width of the widest number, to which all numbers are padded.
    visit(0, 0, [&](std::int64_t i) { width_ = std::max(width_, number(i).size()); });
    return "array(" + dimension(0, 0, 6);
  }

 private:
  std::string number(std::int64_t i) const {
    const DType t = a_.dtype();
    return ir::with_compute_type(t, [&](auto tag) -> std::string {
      using T = decltype(tag);
      std::uint64_t bits = 0;
      std::copy_n(data_ + static_cast<std::size_t>(i) * dtype_size(t), dtype_size(t),
                  reinterpret_cast<std::byte*>(&bits));
      const T v = ir::from_bits<T>(t, bits);
      if constexpr (std::is_same_v<T, bool>)
        return v ? "true" : "false";
      else if constexpr (std::is_floating_point_v<T>)
        return ir::print_float(v, t == DType::f64 ? 15 : 6);
      else
        return fmt::format("{}", +v);
    });
  }
  // Calls f with the linear position of each element that is printed.
  template <class F>
  void visit(std::size_t d, std::int64_t base, F&& f) const {
    if (d == a_.shape().size()) return f(base);
    const std::int64_t n = a_.shape()[d];
    for (std::int64_t i = 0; i < n; ++i) {
      if (summary_ && n > 2 * edge && i == edge) i = n - edge;
      visit(d + 1, base * n + i, f);
    }
  }
  std::string dimension(std::size_t d, std::int64_t base, std::size_t indent) const {
    if (d == a_.shape().size()) return fmt::format("{:>{}}", number(base), width_);
    const std::int64_t n = a_.shape()[d];
    const bool last = d + 1 == a_.shape().size();
    const std::string separator = last ? ", " : ",\n" + std::string(indent + 1, ' ');
    std::string out = "[";
    for (std::int64_t i = 0; i < n; ++i) {
      if (i) out += separator;
      if (summary_ && n > 2 * edge && i == edge) {
        out += "..." + separator;
        i = n - edge;
      }
      out += dimension(d + 1, base * n + i, indent + 1);
    }
    return out + "]";
  }

  const Array& a_;
  const std::byte* data_;
  bool summary_;
  std::size_t width_ = 0;
};

}  // namespace

std::string to_string(const Array& a) {
  if (a.size() == 0)
    return "array([], shape=" + to_string(a.shape()) + ", " + std::string(dtype_name(a.dtype())) + ", " +
           to_string(a.device()) + ")";
  std::unique_ptr<std::byte[]> data(new std::byte[a.bytes() + 8]);
  a.download(data.get());
  const std::string shape = a.size() > whole_limit ? ", shape=" + to_string(a.shape()) : "";
  return Printer(a, data.get()).run() + shape + ", " + std::string(dtype_name(a.dtype())) + ", " +
         to_string(a.device()) + ")";
}

}  // namespace tessera
