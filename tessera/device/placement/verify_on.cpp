// SPDX-License-Identifier: Apache-2.0
#include "tessera/device/placement/verify_on.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <map>
#include <tuple>
#include <utility>

#include "tessera/base/half.h"
#include "tessera/device/context.h"
#include "tessera/device/launch/kernel.h"
#include "tessera/device/launch/launch_interceptor.h"
#include "tessera/ir/node.h"

namespace tessera {

namespace {

/// A storage of the program, and a copy on the reference device with its contents before the launch.
struct Twin {
  std::shared_ptr<Storage> original, copy;
};

BufferView whole(const std::shared_ptr<Storage>& storage) { return {storage, 0, storage->bytes(), DType::u8}; }

std::vector<std::byte> contents(const BufferView& view) {
  std::vector<std::byte> bytes(view.bytes());
  current_queue(view.storage->device()).download(bytes.data(), view);
  return bytes;
}

template <class T>
T read(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

double float_at(DType dtype, const std::byte* from) {
  switch (dtype) {
    case DType::f16: return half_value(read<std::uint16_t>(from));
    case DType::bf16: return bfloat16_value(read<std::uint16_t>(from));
    case DType::f32: return read<float>(from);
    default: return read<double>(from);
  }
}

std::string element_text(DType dtype, const std::byte* from) {
  if (is_float(dtype)) return fmt::format("{}", float_at(dtype, from));
  std::uint64_t bits = 0;
  std::memcpy(&bits, from, dtype_size(dtype));
  return fmt::format("{:#x}", bits);
}

/// True if the difference between two words may be due to rounding before the numbers were packed.
bool differ_by_rounding(const std::byte* a, const std::byte* b, double tolerance) {
  const float x = read<float>(a), y = read<float>(b);
  if (std::isnormal(x) && std::isnormal(y) && std::fabs(x - y) <= tolerance * std::fabs(y)) return true;
  for (int i = 0; i < 4; ++i) {
    const int difference = std::to_integer<int>(a[i]) - std::to_integer<int>(b[i]);
    if (difference < -1 || difference > 1) return false;
  }
  return true;
}

class Verifier : public LaunchInterceptor {
 public:
  Verifier(Device reference, double tolerance)
      : reference_(reference), tolerance_(tolerance), outer_(thread_context.launch_interceptor) {
    device_info(reference);
    thread_context.launch_interceptor = this;
  }
  ~Verifier() override { thread_context.launch_interceptor = outer_; }

  void launched(const Kernel& kernel, Device device, std::array<std::uint64_t, 3> shape,
                std::span<const LaunchArgument> arguments, const std::function<void()>& launch) override {
    if (device == reference_) return launch();
    // Copy each storage only once, so that views of the same storage still alias each other.
    std::map<Storage*, Twin> twins;
    std::vector<LaunchArgument> doubles;
    for (const LaunchArgument& a : arguments) {
      LaunchArgument& twin = doubles.emplace_back(a);
      if (!a.view.storage) continue;
      Twin& t = twins[a.view.storage.get()];
      if (!t.copy) {
        t = {a.view.storage, Storage::allocate(reference_, a.view.storage->bytes(), "verify_on")};
        current_queue(reference_).upload(whole(t.copy), contents(whole(t.original)).data());
      }
      twin.view.storage = t.copy;
    }
    launch();
    kernel.launch(shape, doubles);
    compare(kernel, device, arguments, doubles);
  }

  VerifyReport report() {
    VerifyReport r{reference_, tolerance_, {}};
    for (auto& [key, row] : rows_) r.kernels.push_back(row);
    std::stable_sort(r.kernels.begin(), r.kernels.end(), [](const auto& a, const auto& b) {
      return std::tuple(a.wrong != 0, a.worst) > std::tuple(b.wrong != 0, b.worst);
    });
    return r;
  }

 private:
  void compare(const Kernel& kernel, Device device, std::span<const LaunchArgument> originals,
               std::span<const LaunchArgument> doubles) {
    const ir::Function& fn = kernel.function();
    VerifiedKernel& row = rows_[{fn.name, device}];
    row.kernel = fn.name, row.device = device;
    ++row.launches;
    for (std::size_t p = 0; p < originals.size(); ++p) {
      const ir::Param& param = fn.params[p];
      if (!param.is_buffer || param.access == ir::Access::read) continue;
      const BufferView& view = originals[p].view;
      compare(row, param.name, view.dtype, contents(view), contents(doubles[p].view));
    }
  }

  void compare(VerifiedKernel& row, const std::string& name, DType dtype, const std::vector<std::byte>& got,
               const std::vector<std::byte>& want) {
    const std::size_t size = dtype_size(dtype), count = got.size() / size;
    row.elements += count;
    const auto wrong = [&](std::size_t i) {
      if (row.wrong++ != 0) return;
      row.first_wrong = fmt::format("{}[{}] is {}, on {} {} (launch {})", name, i, element_text(dtype, &got[i * size]),
                                    to_string(reference_), element_text(dtype, &want[i * size]), row.launches);
    };
    double largest = 0;
    if (is_float(dtype)) {
      for (std::size_t i = 0; i < count; ++i)
        if (const double y = std::fabs(float_at(dtype, &want[i * size])); std::isfinite(y))
          largest = std::max(largest, y);
    }
    for (std::size_t i = 0; i < count; ++i) {
      const std::byte *a = &got[i * size], *b = &want[i * size];
      if (std::memcmp(a, b, size) == 0) continue;
      if (!is_float(dtype)) {
        if (size == 4 && differ_by_rounding(a, b, tolerance_))
          ++row.rounded;
        else
          wrong(i);
        continue;
      }
      const double x = float_at(dtype, a), y = float_at(dtype, b);
      if (std::isnan(x) && std::isnan(y)) continue;
      if (x == y) continue;  // they may be zeros of different sign
      const double error = largest > 0 && std::isfinite(x) && std::isfinite(y) ? std::fabs(x - y) / largest : INFINITY;
      row.worst = std::max(row.worst, error);
      if (!(error <= tolerance_)) wrong(i);
    }
  }

  const Device reference_;
  const double tolerance_;
  LaunchInterceptor* const outer_;
  std::map<std::pair<std::string, Device>, VerifiedKernel> rows_;
};

}  // namespace

bool VerifyReport::agrees() const {
  return std::all_of(kernels.begin(), kernels.end(), [](const VerifiedKernel& k) { return k.wrong == 0; });
}

std::string to_string(const VerifyReport& report) {
  std::size_t width = 6;
  for (const VerifiedKernel& k : report.kernels) width = std::max(width, k.kernel.size());
  std::string text = fmt::format("{:<10}  {:<{}}  {:>8}  {:>12}  {:>10}  {:>8}\n", "device", "kernel", width,
                                 "launches", "elements", "worst", "wrong");
  for (const VerifiedKernel& k : report.kernels) {
    text += fmt::format("{:<10}  {:<{}}  {:>8}  {:>12}  {:>10.2e}  {:>8}{}\n", to_string(k.device), k.kernel, width,
                        k.launches, k.elements, k.worst, k.wrong, k.wrong != 0 ? "  " + k.first_wrong : "");
  }
  if (report.kernels.empty())
    text += fmt::format("(no kernel ran on a device other than {})\n", to_string(report.reference));
  return text;
}

VerifyReport verify_on(Device reference, const Callback<void()>& program, double tolerance) {
  Verifier verifier(reference, tolerance);
  program();
  return verifier.report();
}

}  // namespace tessera
