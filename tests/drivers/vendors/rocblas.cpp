// SPDX-License-Identifier: Apache-2.0
// A fake of the functions of rocBLAS that matrix products need. Signatures, values and rules follow its API reference.
// Does not include Tessera's declarations. Products run on the fake HIP runtime.
#include <algorithm>
#include <mutex>
#include <set>

#include "tests/drivers/vendors/blas.h"

namespace {

using namespace tessera::fake;

constexpr int ok = 0, invalid_handle = 1, not_implemented = 2, invalid_size = 4, memory_error = 5, internal_error = 6,
              size_increased = 9;
constexpr std::size_t needed = 50000;

const PairedDriver& driver() {
  static const PairedDriver paired_driver("TESSERA_ROCM_LIBRARY", "hipGetDevice");
  return paired_driver;
}
const Faults& faults() {
  static const Faults all = Faults::from_environment();
  return all;
}
struct Handle {
  int device = -1;
  bool live = true, asking = false;
  void *stream = nullptr, *workspace = nullptr;
  std::size_t bytes = 0, asked = 0;
};
std::mutex lock;
std::set<Handle*>& handles() {
  static auto* all = new std::set<Handle*>;
  return *all;
}
std::uint64_t products = 0;

int breach(const std::string& text, int code = internal_error) { return driver().breach("rocBLAS: " + text, code); }
Handle* of(void* handle) {
  std::lock_guard hold(lock);
  auto* const h = static_cast<Handle*>(handle);
  if (!handles().contains(h) || !h->live) return breach("invalid handle"), nullptr;
  if (driver().current_device() != h->device)
    return breach("the handle does not belong to the current device"), nullptr;
  return h;
}
bool real_of(int type, Real& real) {
  real = type == 150 ? Real::f16 : type == 168 ? Real::bf16 : Real::f32;
  return type == 150 || type == 151 || type == 168;
}

}  // namespace

#define EXPORT extern "C" __attribute__((visibility("default")))
#define HANDLE(handle)          \
  Handle* const h = of(handle); \
  if (h == nullptr) return invalid_handle

EXPORT const char* rocblas_status_to_string(int code) {
  return code == internal_error ? "rocblas_status_internal_error" : "rocblas_status_other";
}
EXPORT int rocblas_create_handle(void** handle) {
  const int device = driver().current_device();
  if (device < 0) return breach("no device is current");
  if (const Fault* f = faults().find("blas-create", device)) return f->code.value_or(internal_error);
  std::lock_guard hold(lock);
  return *handle = *handles().insert(new Handle{device}).first, ok;
}
EXPORT int rocblas_destroy_handle(void* handle) {
  HANDLE(handle);
  return h->live = false, ok;
}
EXPORT int rocblas_set_stream(void* handle, void* stream) {
  HANDLE(handle);
  if (driver().device_of(stream) != h->device) return breach("the stream and the handle belong to different devices");
  return h->stream = stream, ok;
}
EXPORT int rocblas_set_workspace(void* handle, void* address, std::size_t bytes) {
  HANDLE(handle);
  return h->workspace = address, h->bytes = bytes, ok;
}
EXPORT int rocblas_start_device_memory_size_query(void* handle) {
  HANDLE(handle);
  if (h->asking) return breach("a nested size query");
  return h->asking = true, h->asked = 0, ok;
}
EXPORT int rocblas_stop_device_memory_size_query(void* handle, std::size_t* bytes) {
  HANDLE(handle);
  if (!h->asking) return breach("no query was begun");
  return h->asking = false, *bytes = h->asked, ok;
}
EXPORT int rocblas_gemm_strided_batched_ex(void* handle, int a_operation, int b_operation, int m, int n, int k,
                                           const void* alpha, const void* a, int a_type, int lda, std::int64_t a_stride,
                                           const void* b, int b_type, int ldb, std::int64_t b_stride, const void* beta,
                                           const void* c, int c_type, int ldc, std::int64_t c_stride, void* d,
                                           int d_type, int ldd, std::int64_t d_stride, int batch, int compute_type,
                                           int algorithm, std::int32_t solution, std::uint32_t flags) {
  HANDLE(handle);
  Product p{m,
            n,
            k,
            batch,
            {a, {}, a_operation == 112, lda, a_stride},
            {b, {}, b_operation == 112, ldb, b_stride},
            {d, {}, false, ldd, d_stride}};
  if (!real_of(a_type, p.a.real) || !real_of(b_type, p.b.real) || !real_of(d_type, p.d.real) || compute_type != 151)
    return breach("an unknown type");
  if (a_type != b_type || c_type != d_type || (d_type != a_type && d_type != 151)) return not_implemented;
  if (c != d || ldc != ldd || c_stride != d_stride) return breach("c and d must be the same matrix");
  if (*static_cast<const float*>(alpha) != 1 || *static_cast<const float*>(beta) != 0)
    return breach("values of alpha and beta that the fake does not support");
  if (algorithm != 0 || solution != 0 || flags != 0) return breach("flags that the fake does not support");
  if (const std::string wrong = wrong_with(p); !wrong.empty()) return breach(wrong, invalid_size);
  if (faults().find("blas-none")) return not_implemented;
  const std::size_t wants = k >= 64 ? needed : 0;
  if (h->asking) {
    h->asked = std::max(h->asked, wants);
    return size_increased;
  }
  if (h->stream == nullptr) return breach("no stream was set");
  if (h->bytes < wants) return breach("rocBLAS would allocate memory, which waits for the device", memory_error);
  if (const int fault = faults().strikes("blas", ++products, internal_error)) return fault;
  p.workspace = h->workspace, p.workspace_bytes = h->bytes;  // the product overwrites the whole workspace
  return submit(driver(), h->stream, p) == 0 ? ok : internal_error;
}
EXPORT std::uint64_t tessera_fake_blas(const char* what) {
  std::lock_guard hold(lock);
  const std::string asked = what;
  if (asked == "multiplied") return products;
  std::uint64_t n = 0;
  for (const Handle* h : handles()) n += h->live && asked == "libraries";
  return n;
}
