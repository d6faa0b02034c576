// SPDX-License-Identifier: Apache-2.0
#include "tessera/array/print.h"

#include <algorithm>

#include <fmt/format.h>

#include "tessera/ir/print.h"
#include "tessera/ir/semantics.h"

namespace tessera {

namespace {

constexpr std::int64_t whole_limit = 1000, edge = 3;

class Printer {
 public:
  Printer(const Shape& shape, const detail::ElementText& element)
      : shape_(shape), element_(element), summary_(element_count(shape) > whole_limit) {}

  std::string run() {
    // The first pass determines the width of the widest number, to which all numbers are padded.
    visit(0, 0, [&](std::int64_t i) { width_ = std::max(width_, element_(i).size()); });
    return "array(" + dimension(0, 0, 6);
  }

 private:
  // Calls f with the linear position of each element that is printed.
  template <class F>
  void visit(std::size_t d, std::int64_t base, F&& f) const {
    if (d == shape_.size()) return f(base);
    const std::int64_t n = shape_[d];
    for (std::int64_t i = 0; i < n; ++i) {
      if (summary_ && n > 2 * edge && i == edge) i = n - edge;
      visit(d + 1, base * n + i, f);
    }
  }
  std::string dimension(std::size_t d, std::int64_t base, std::size_t indent) const {
    if (d == shape_.size()) return fmt::format("{:>{}}", element_(base), width_);
    const std::int64_t n = shape_[d];
    const bool last = d + 1 == shape_.size();
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

  const Shape& shape_;
  const detail::ElementText& element_;
  bool summary_;
  std::size_t width_ = 0;
};

}  // namespace

detail::HostElements::HostElements(const Array& a) : dtype_(a.dtype()), data_(new std::byte[a.bytes() + 8]) {
  if (a.size() > 0) a.download(data_.get());
}

std::string detail::HostElements::text(std::int64_t i) const {
  return ir::with_compute_type(dtype_, [&](auto tag) -> std::string {
    using T = decltype(tag);
    std::uint64_t bits = 0;
    std::copy_n(data_.get() + static_cast<std::size_t>(i) * dtype_size(dtype_), dtype_size(dtype_),
                reinterpret_cast<std::byte*>(&bits));
    const T v = ir::from_bits<T>(dtype_, bits);
    if constexpr (std::is_same_v<T, bool>)
      return v ? "true" : "false";
    else if constexpr (std::is_floating_point_v<T>)
      return ir::print_float(v, dtype_ == DType::f64 ? 15 : 6);
    else
      return fmt::format("{}", +v);
  });
}

std::string detail::array_text(const Shape& shape, const ElementText& element, const std::string& kind) {
  const std::int64_t size = element_count(shape);
  const std::string elements = size == 0 ? "array([]" : Printer(shape, element).run();
  return elements + (size == 0 || size > whole_limit ? ", shape=" + to_string(shape) : "") + ", " + kind + ")";
}

std::string to_string(const Array& a) {
  const detail::HostElements elements(a);
  return detail::array_text(
      a.shape(), [&](std::int64_t i) { return elements.text(i); },
      std::string(dtype_name(a.dtype())) + ", " + to_string(a.device()));
}

}  // namespace tessera
