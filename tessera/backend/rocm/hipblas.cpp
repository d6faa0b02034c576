// SPDX-License-Identifier: Apache-2.0
#include "tessera/backend/rocm/hipblas.h"

#include <limits>

#include <fmt/format.h>

#include "tessera/backend/rocm/hip_api.h"
#include "tessera/backend/stream/library.h"
#include "tessera/backend/stream/lt_blas.h"
#include "tessera/base/error.h"
#include "tessera/base/os/library_search.h"
#include "tessera/device/driver.h"

namespace tessera::rocm {

namespace {

std::vector<std::string> candidates(const char* variable, const std::string& stem,
                                    std::initializer_list<const char*> numbers) {
  const std::string named = stream::library_from_variable(variable);
  if (named == "none") return {};
  if (!named.empty()) return {named};
  std::vector<std::string> names;
  for (const char* number : numbers) names.push_back(stem + number);
  for (std::string& file : os::library_files(toolkit_folders(), stem)) names.push_back(std::move(file));
  return names;
}

/// Matrix products with rocBLAS, which does not support epilogues.
class RocblasBlas final : public DriverBlas {
 public:
  explicit RocblasBlas(const RocblasFunctions& call) : call_(call) { check(call_.create(&handle_), "create_handle"); }
  ~RocblasBlas() override { call_.destroy(handle_); }
  RocblasBlas(const RocblasBlas&) = delete;
  RocblasBlas& operator=(const RocblasBlas&) = delete;

  const std::string& name() const override { return name_; }

  std::optional<std::size_t> plan(const BlasProduct& p, const BlasOperands& operands) override {
    constexpr std::int64_t most = std::numeric_limits<int>::max();
    for (const std::int64_t n : {p.m, p.n, p.k, p.batch, p.a.ld, p.b.ld, p.out.ld})
      if (n > most) return std::nullopt;
    if (p.bias) return std::nullopt;
    check(call_.ask_size(handle_), "start_device_memory_size_query");
    const Code code = multiply(p, operands);
    std::size_t bytes = 0;
    check(call_.told_size(handle_, &bytes), "stop_device_memory_size_query");
    if (code == rocblas_not_implemented || code == rocblas_arch_mismatch) return std::nullopt;
    if (code != rocblas_size_unchanged && code != rocblas_size_increased) check(code, "gemm_strided_batched_ex");
    return bytes;
  }

  void enqueue(DriverQueue& queue, const BlasProduct& p, const BlasOperands& operands) override {
    queue.with_native([&](void* stream) {
      check(call_.set_stream(handle_, static_cast<Stream>(stream)), "set_stream");
      // Without this workspace, rocBLAS would allocate memory itself, which synchronises with the device.
      if (operands.workspace.handle || workspace_set_)
        check(call_.set_workspace(handle_, operands.workspace.handle, operands.workspace.bytes), "set_workspace");
      workspace_set_ = operands.workspace.handle != nullptr;  // the previous workspace may have been freed
      check(multiply(p, operands), "gemm_strided_batched_ex");
    });
  }

 private:
  void check(Code code, const char* function) const {
    if (code == 0) return;
    const char* const said = call_.status_text(code);
    fail<KernelError>(
        {.operation = name_, .wrong = fmt::format("rocblas_{} returned {} ({})", function, code, said ? said : "")});
  }
  static int type_of(DType t) { return t == DType::f16 ? rocblas_f16 : t == DType::bf16 ? rocblas_bf16 : rocblas_f32; }
  // a and b are swapped, because the library expects column-major matrices and therefore computes the transposed
  // product.
  Code multiply(const BlasProduct& p, const BlasOperands& operands) const {
    const auto at = [](const BlasOperand& o) { return static_cast<std::byte*>(o.allocation->handle) + o.offset; };
    const auto operation = [](const BlasMatrix& m) { return m.transposed ? rocblas_transpose : rocblas_plain; };
    const auto n = [](std::int64_t v) { return static_cast<int>(v); };
    const float one = 1, zero = 0;
    return call_.multiply(handle_, operation(p.b), operation(p.a), n(p.n), n(p.m), n(p.k), &one, at(operands.b),
                          type_of(p.b.dtype), n(p.b.ld), p.b.batch_stride, at(operands.a), type_of(p.a.dtype),
                          n(p.a.ld), p.a.batch_stride, &zero, at(operands.out), type_of(p.out.dtype), n(p.out.ld),
                          p.out.batch_stride, at(operands.out), type_of(p.out.dtype), n(p.out.ld), p.out.batch_stride,
                          n(p.batch), rocblas_f32, rocblas_standard, 0, 0);
  }

  const RocblasFunctions call_;
  const std::string name_ = "rocblas";
  Rocblas handle_ = nullptr;
  bool workspace_set_ = false;
};

}  // namespace

std::vector<std::string> hipblaslt_candidates() {
  return candidates("TESSERA_HIPBLASLT_LIBRARY", "libhipblaslt.so", {".1", ".0", ""});
}
std::vector<std::string> rocblas_candidates() {
  return candidates("TESSERA_ROCBLAS_LIBRARY", "librocblas.so", {".5", ".4", ".3", ".0", ""});
}

std::unique_ptr<DriverBlas> open_blas(int runtime_major, std::string& why) {
  why.clear();
  const auto refuse = [&](const std::string& reason) { why += (why.empty() ? "" : "; ") + reason; };
  // hipBLASLt of ROCm 5 has different data type values and supports only one card.
  if (runtime_major >= 6) {
    const os::Library library = os::Library::open(hipblaslt_candidates());
    stream::LtFunctions call;
    if (!library.loaded()) {
      refuse(library.reason());
    } else if (const std::string missing = stream::take_lt(library, "hipblasLt", call); !missing.empty()) {
      refuse(fmt::format("{}: it has no {}", library.file(), missing));
    } else {
      try {
        return stream::make_lt_blas(call, stream::hipblas_lt, "hipblasLt");
      } catch (const KernelError& e) {  // hipBLASLt does not support this card
        refuse(e.what());
      }
    }
  }
  const os::Library library = os::Library::open(rocblas_candidates());
  if (!library.loaded()) {
    refuse(library.reason().empty() ? "TESSERA_ROCBLAS_LIBRARY is 'none'" : library.reason());
    return nullptr;
  }
  RocblasFunctions call;
  std::string missing;
#define TESSERA_TAKE(member, symbol, ...) stream::take(library, call.member, #symbol, missing);
  TESSERA_ROCBLAS(TESSERA_TAKE)
#undef TESSERA_TAKE
  if (!missing.empty()) {
    refuse(fmt::format("{}: it has no {}", library.file(), missing));
    return nullptr;
  }
  return std::make_unique<RocblasBlas>(call);
}

}  // namespace tessera::rocm
