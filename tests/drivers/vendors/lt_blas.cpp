// SPDX-License-Identifier: Apache-2.0
// A fake of the functions of cuBLASLt (or hipBLASLt with TESSERA_FAKE_HIPBLASLT) that matrix products need. Signatures,
// values and rules follow the vendors' references. Does not include Tessera's declarations. Products run on the fake
// driver.
#include <algorithm>
#include <cstring>
#include <mutex>
#include <set>

#include "tests/drivers/vendors/blas.h"

namespace {

using namespace tessera::fake;

#ifdef TESSERA_FAKE_HIPBLASLT
#define LT(name) hipblasLt##name
constexpr const char *driver_variable = "TESSERA_ROCM_LIBRARY", *current_device = "hipGetDevice";
constexpr int not_initialized = 1, invalid_value = 3, not_supported = 7;
constexpr int compute_f32 = 2, compute_tf32 = 6, plain = 111, transpose = 112;
constexpr int transpose_a = 0, transpose_b = 1, epilogue_kind = 2, bias_address = 3;
constexpr int batch_count = 0, batch_offset = 1, first_alignment = 1000;
constexpr std::size_t algorithm_bytes = 24, result_bytes = 56;
#else
#define LT(name) cublasLt##name
constexpr const char *driver_variable = "TESSERA_CUDA_LIBRARY", *current_device = "cuCtxGetDevice";
constexpr int not_initialized = 1, invalid_value = 7, not_supported = 15;
constexpr int compute_f32 = 68, compute_tf32 = 77, plain = 0, transpose = 1;
constexpr int transpose_a = 3, transpose_b = 4, epilogue_kind = 7, bias_address = 8;
constexpr int batch_count = 5, batch_offset = 6, first_alignment = 5;
constexpr std::size_t algorithm_bytes = 64, result_bytes = 96;
#endif
constexpr int ok = 0, most_workspace = 1, epilogue_default = 1, epilogue_bias = 4;

const PairedDriver& driver() {
  static const PairedDriver paired_driver(driver_variable, current_device);
  return paired_driver;
}
struct Result {
  unsigned char algorithm[algorithm_bytes];
  std::size_t workspace;
  int state;
  float waves;
  int reserved[4];
};
static_assert(sizeof(Result) == result_bytes);

struct Object {
  enum class Kind : std::uint8_t { library, product, layout, preference } kind;
  bool live = true;
  int device = -1;  ///< device of a library handle
  int compute = 0, scale = 0, a = plain, b = plain;
  std::uint32_t epilogue = epilogue_default;
  const void* bias = nullptr;
  int type = 0;
  std::uint64_t rows = 0, columns = 0;
  std::int64_t ld = 0, offset = 0;
  std::int32_t batch = 1;
  std::uint64_t workspace = 0;
  std::uint32_t alignment[4] = {256, 256, 256, 256};
};
std::mutex lock;
std::set<Object*>& objects() {
  static auto* all = new std::set<Object*>;
  return *all;
}
const Faults& faults() {
  static const Faults all = Faults::from_environment();
  return all;
}
std::uint64_t products = 0, choices = 0, rounded = 0;

using enum Object::Kind;
int breach(const std::string& text, int code = invalid_value) {
#ifdef TESSERA_FAKE_HIPBLASLT
  return driver().breach("hipBLASLt: " + text, code);
#else
  return driver().breach("cuBLASLt: " + text, code);
#endif
}
Object* made(Object::Kind kind) {
  std::lock_guard hold(lock);
  return *objects().insert(new Object{.kind = kind}).first;
}
Object* of(void* handle, Object::Kind kind) {
  std::lock_guard hold(lock);
  auto* const object = static_cast<Object*>(handle);
  if (!objects().contains(object) || object->kind != kind) return breach("a handle of the wrong kind"), nullptr;
  if (!object->live) return breach("a handle that was destroyed"), nullptr;
  return object;
}
int gone(void* handle, Object::Kind kind) {
  Object* const object = of(handle, kind);
  if (object == nullptr) return invalid_value;
  object->live = false;
  return ok;
}
template <class T>
int take(T& to, const void* from, std::size_t bytes) {
  if (from == nullptr || bytes != sizeof(T)) return breach("an attribute of the wrong size");
  std::memcpy(&to, from, sizeof(T));
  return ok;
}
bool real_of(int type, Real& real) {
  real = type == 2 ? Real::f16 : type == 14 ? Real::bf16 : Real::f32;
  return type == 0 || type == 2 || type == 14;
}

struct Called {
  Object *library, *product, *a, *b, *c, *d;
};
/// Sets `p` to the described product, without addresses. Returns not_supported if the library does not support it.
int describe(const Called& h, Product& p) {
  for (const Object* o : {h.library, h.product, h.a, h.b, h.c, h.d})
    if (o == nullptr) return invalid_value;
  if (driver().current_device() != h.library->device) return breach("the handle does not belong to the current device");
  Real c;
  if (!real_of(h.a->type, p.a.real) || !real_of(h.b->type, p.b.real) || !real_of(h.c->type, c) ||
      !real_of(h.d->type, p.d.real))
    return breach("an unknown type");
  if (h.product->scale != 0 || (h.product->compute != compute_f32 && h.product->compute != compute_tf32))
    return breach("sums of a type other than f32");
  if (p.a.real != p.b.real || c != p.d.real || (p.d.real != p.a.real && p.d.real != Real::f32)) return not_supported;
#ifdef TESSERA_FAKE_HIPBLASLT
  if (p.a.real == Real::bf16 && p.d.real == Real::f32) return not_supported;
#endif
  if (h.product->compute == compute_tf32 && p.a.real != Real::f32) return breach("tf32 of 16-bit floats");
  p.a.transposed = h.product->a == transpose, p.b.transposed = h.product->b == transpose;
  p.m = static_cast<std::int64_t>(h.d->rows), p.n = static_cast<std::int64_t>(h.d->columns);
  p.k = static_cast<std::int64_t>(p.a.transposed ? h.a->rows : h.a->columns);
  const auto k = static_cast<std::int64_t>(p.b.transposed ? h.b->columns : h.b->rows);
  const auto m = static_cast<std::int64_t>(p.a.transposed ? h.a->columns : h.a->rows);
  const auto n = static_cast<std::int64_t>(p.b.transposed ? h.b->rows : h.b->columns);
  if (k != p.k || m != p.m || n != p.n || h.c->rows != h.d->rows || h.c->columns != h.d->columns)
    return breach("the layouts do not match");
  p.batch = h.d->batch;
  for (const Object* o : {h.a, h.b, h.c})
    if (o->batch != h.d->batch) return breach("the layouts have different batches");
  p.a.ld = h.a->ld, p.b.ld = h.b->ld, p.d.ld = h.d->ld;
  p.a.batch_stride = h.a->offset, p.b.batch_stride = h.b->offset, p.d.batch_stride = h.d->offset;
  const std::uint32_t epilogue = h.product->epilogue;
  if (epilogue != epilogue_default && (epilogue & ~static_cast<std::uint32_t>(epilogue_bias)) != 0)
    return breach("an epilogue that the fake does not support");
  if ((epilogue & epilogue_bias) != 0) {
    if (h.product->bias == nullptr) return breach("a bias without an address");
    p.bias = h.product->bias;
  }
  if (const std::string wrong = wrong_with(p); !wrong.empty()) return breach(wrong);
  return ok;
}
struct Algorithm {
  std::uint32_t magic, alignment[4];
};
constexpr std::uint32_t magic = 0x1ab7a5;

}  // namespace

#define EXPORT extern "C" __attribute__((visibility("default")))

#ifdef TESSERA_FAKE_HIPBLASLT
EXPORT int hipblasLtGetVersion(void*, int* version) { return *version = 1200, ok; }
#else
EXPORT std::size_t cublasLtGetVersion() {
  const Fault* f = faults().find("compiler");
  return f != nullptr ? f->number / 1000 * 10000 + f->number % 1000 * 10 : 120400;
}
EXPORT const char* cublasLtGetStatusString(int code) {
  return code == 14              ? "CUBLAS_STATUS_INTERNAL_ERROR"
         : code == not_supported ? "CUBLAS_STATUS_NOT_SUPPORTED"
                                 : "unknown";
}
#endif
EXPORT int LT(Create)(void** handle) {
  const int device = driver().current_device();
  if (device < 0) return breach("no context is current", not_initialized);
  if (const Fault* f = faults().find("blas-create", device)) return f->code.value_or(not_initialized);
  Object* const library = made(Object::Kind::library);
  library->device = device;
  return *handle = library, ok;
}
EXPORT int LT(Destroy)(void* handle) { return gone(handle, library); }
EXPORT int LT(MatmulDescCreate)(void** handle, int compute, int scale) {
  Object* const o = made(product);
  o->compute = compute, o->scale = scale;
  return *handle = o, ok;
}
EXPORT int LT(MatmulDescDestroy)(void* handle) { return gone(handle, product); }
EXPORT int LT(MatmulDescSetAttribute)(void* handle, int attribute, const void* value, std::size_t bytes) {
  Object* const o = of(handle, product);
  if (o == nullptr) return invalid_value;
  switch (attribute) {
    case transpose_a: return take(o->a, value, bytes);
    case transpose_b: return take(o->b, value, bytes);
    case epilogue_kind: return take(o->epilogue, value, bytes);
    case bias_address: return take(o->bias, value, bytes);
    default: return breach("an attribute of a product that the fake does not support");
  }
}
EXPORT int LT(MatrixLayoutCreate)(void** handle, int type, std::uint64_t rows, std::uint64_t columns, std::int64_t ld) {
  Object* const o = made(layout);
  o->type = type, o->rows = rows, o->columns = columns, o->ld = ld;
  return *handle = o, ok;
}
EXPORT int LT(MatrixLayoutDestroy)(void* handle) { return gone(handle, layout); }
EXPORT int LT(MatrixLayoutSetAttribute)(void* handle, int attribute, const void* value, std::size_t bytes) {
  Object* const o = of(handle, layout);
  if (o == nullptr) return invalid_value;
  switch (attribute) {
    case batch_count: return take(o->batch, value, bytes);
    case batch_offset: return take(o->offset, value, bytes);
    default: return breach("an attribute of a layout that the fake does not support");
  }
}
EXPORT int LT(MatmulPreferenceCreate)(void** handle) { return *handle = made(preference), ok; }
EXPORT int LT(MatmulPreferenceDestroy)(void* handle) { return gone(handle, preference); }
EXPORT int LT(MatmulPreferenceSetAttribute)(void* handle, int attribute, const void* value, std::size_t bytes) {
  Object* const o = of(handle, preference);
  if (o == nullptr) return invalid_value;
  if (attribute == most_workspace) return take(o->workspace, value, bytes);
  if (attribute >= first_alignment && attribute < first_alignment + 4)
    return take(o->alignment[attribute - first_alignment], value, bytes);
  return breach("an attribute of a preference that the fake does not support");
}
EXPORT int LT(MatmulAlgoGetHeuristic)(void* handle, void* what, void* a, void* b, void* c, void* d, void* preferred,
                                      int asked, void* results, int* found) {
  *found = 0;
  Object* const wish = of(preferred, preference);
  Product p;
  const int code =
      describe({of(handle, library), of(what, product), of(a, layout), of(b, layout), of(c, layout), of(d, layout)}, p);
  if (code != ok) return code;
  if (wish == nullptr || asked < 1) return invalid_value;
  if (const int fault = faults().strikes("blas-choose", ++choices, 14)) return fault;
  if (faults().find("blas-none")) return not_supported;
  Result result = {};
  Algorithm algorithm{magic, {}};
  std::memcpy(algorithm.alignment, wish->alignment, sizeof algorithm.alignment);
  std::memcpy(result.algorithm, &algorithm, sizeof algorithm);
  if (p.k >= 64) result.workspace = std::min<std::uint64_t>(wish->workspace, 100000);
  std::memcpy(results, &result, sizeof result);
  return *found = 1, ok;
}
EXPORT int LT(Matmul)(void* handle, void* what, const void* alpha, const void* a, void* a_layout, const void* b,
                      void* b_layout, const void* beta, const void* c, void* c_layout, void* d, void* d_layout,
                      const void* algorithm, void* workspace, std::size_t workspace_bytes, void* stream) {
  Object* const h = of(handle, library);
  Product p;
  p.a.address = a, p.b.address = b, p.d.address = d;
  const int code = describe(
      {h, of(what, product), of(a_layout, layout), of(b_layout, layout), of(c_layout, layout), of(d_layout, layout)},
      p);
  if (code != ok) return code;
  Algorithm chosen;
  std::memcpy(&chosen, algorithm, sizeof chosen);
  if (chosen.magic != magic) return breach("an algorithm that was not chosen");
  const void* const addresses[] = {a, b, c, d};
#ifndef TESSERA_FAKE_HIPBLASLT
  for (int i = 0; i < 4; ++i)
    if (reinterpret_cast<std::uintptr_t>(addresses[i]) % chosen.alignment[i] != 0)
      return breach("operand " + std::to_string(i) + " is less aligned than declared");
#endif
  if (addresses[2] != addresses[3]) return breach("c and d must be the same matrix");
  float one = 0, zero = 1;
  std::memcpy(&one, alpha, sizeof one), std::memcpy(&zero, beta, sizeof zero);
  if (one != 1 || zero != 0) return breach("values of alpha and beta that the fake does not support");
  if (driver().device_of(stream) != h->device) return breach("the stream and the handle belong to different devices");
  if (p.k >= 64 && workspace_bytes < 100000) return breach("less workspace than requested");
  if (reinterpret_cast<std::uintptr_t>(workspace) % 256 != 0) return breach("the workspace is not aligned");
  if (const int fault = faults().strikes("blas", ++products, 14)) return fault;
  rounded += of(what, product)->compute == compute_tf32;
  p.workspace = workspace, p.workspace_bytes = workspace_bytes;
  return submit(driver(), stream, p) == 0 ? ok : 14;
}

/// Returns the current number of "libraries", "products", "layouts" or "preferences", or the total number of
/// "multiplied", "chosen" or "tf32" products.
EXPORT std::uint64_t tessera_fake_blas(const char* what) {
  std::lock_guard hold(lock);
  const std::string asked = what;
  if (asked == "multiplied") return products;
  if (asked == "chosen") return choices;
  if (asked == "tf32") return rounded;
  std::uint64_t n = 0;
  for (const Object* o : objects()) {
    static const char* const names[] = {"libraries", "products", "layouts", "preferences"};
    n += o->live && asked == names[static_cast<int>(o->kind)];
  }
  return n;
}
