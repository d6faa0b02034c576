// SPDX-License-Identifier: Apache-2.0
// The fake matrix product libraries report misuse to the fake driver. Each case runs in a child, because a library is
// opened only once per process.
#include <functional>

#include <gtest/gtest.h>

#include "tessera/base/os/library.h"
#include "tests/support/errors.h"
#include "tests/support/fake_backends.h"
#include "tests/support/run_in_child.h"

namespace tessera {
namespace {

using Address = unsigned long long;

/// Calls cuBLASLt for the product of two 4 x 4 matrices of ones, with the vendor's constants. Each step can be replaced
/// by an incorrect one.
class Lt {
 public:
  Lt() : cuda_(os::Library::open(test::fake_library("cuda"))), lt_(os::Library::open(test::fake_library("cublaslt"))) {
    driver("cuInit", 0u);
    use(0);
    for (Address& m : memory) driver("cuMemAlloc_v2", &m, std::size_t{1 << 18});
    driver("cuMemsetD32Async", memory[0], 0x3f800000u, std::size_t{64}, nullptr);
    driver("cuMemsetD32Async", memory[1], 0x3f800000u, std::size_t{64}, nullptr);
    driver("cuStreamCreate", &stream, 1u);
    driver("cuCtxSynchronize");
    call("cublasLtCreate", &library);
    call("cublasLtMatmulDescCreate", &product, 68, 0);
    call("cublasLtMatmulPreferenceCreate", &preference);
    const std::uint64_t most = 1 << 20;
    call("cublasLtMatmulPreferenceSetAttribute", preference, 1, static_cast<const void*>(&most), sizeof most);
    layout(4);
  }
  template <class... A>
  int driver(const char* name, A... arguments) {
    return cuda_.function<int(A...)>(name)(arguments...);
  }
  template <class... A>
  int call(const char* name, A... arguments) {
    return lt_.function<int(A...)>(name)(arguments...);
  }
  void use(int device) {
    void* context = nullptr;
    driver("cuDevicePrimaryCtxRetain", &context, device);
    driver("cuCtxSetCurrent", context);
  }
  void layout(std::int64_t ld, std::uint64_t rows = 4) {
    for (void*& l : layouts) call("cublasLtMatrixLayoutCreate", &l, 0, rows, std::uint64_t{4}, ld);
  }
  int choose() {
    int found = 0;
    return call("cublasLtMatmulAlgoGetHeuristic", library, product, layouts[0], layouts[1], layouts[2], layouts[2],
                preference, 1, static_cast<void*>(result), &found);
  }
  int multiply() {
    const float one = 1, zero = 0;
    const auto at = [&](int i) { return reinterpret_cast<void*>(memory[i] + offset); };
    return call("cublasLtMatmul", library, product, static_cast<const void*>(&one), static_cast<const void*>(at(0)),
                layouts[0], static_cast<const void*>(at(1)), layouts[1], static_cast<const void*>(&zero),
                static_cast<const void*>(at(2)), layouts[2], at(2), layouts[2], static_cast<const void*>(result),
                reinterpret_cast<void*>(memory[3]), workspace, stream);
  }
  static std::string breaches() { return test::breaches(test::fake_library("cuda")); }

  Address memory[4] = {};
  void *stream = nullptr, *library = nullptr, *product = nullptr, *preference = nullptr, *layouts[3] = {};
  unsigned char result[96] = {};
  std::size_t workspace = 1 << 18;
  Address offset = 0;

 private:
  os::Library cuda_, lt_;
};

TEST(FakeBlas, DetectsMisuse) {
  struct Misuse {
    const char* words;
    std::function<void(Lt&)> work;
  };
  const Misuse misuses[] = {
      {"a leading dimension is less than the number of rows", [](Lt& lt) { lt.layout(3), lt.choose(); }},
      {"the layouts do not match",
       [](Lt& lt) {
         lt.call("cublasLtMatrixLayoutCreate", &lt.layouts[1], 0, std::uint64_t{5}, std::uint64_t{4}, std::int64_t{5});
         lt.choose();
       }},
      {"an algorithm that was not chosen", [](Lt& lt) { lt.multiply(); }},
      {"less aligned than declared", [](Lt& lt) { lt.choose(), lt.offset = 4, lt.multiply(); }},
      {"a handle that was destroyed",
       [](Lt& lt) { lt.call("cublasLtMatrixLayoutDestroy", lt.layouts[1]), lt.choose(); }},
      {"a handle of the wrong kind", [](Lt& lt) { lt.product = lt.preference, lt.choose(); }},
      {"an attribute of the wrong size",
       [](Lt& lt) {
         const char one = 1;
         lt.call("cublasLtMatmulDescSetAttribute", lt.product, 3, static_cast<const void*>(&one), sizeof one);
       }},
      {"the handle does not belong to the current device", [](Lt& lt) { lt.choose(), lt.use(1), lt.multiply(); }},
      {"the stream and the handle belong to different devices",
       [](Lt& lt) {
         lt.choose(), lt.use(1), lt.driver("cuStreamCreate", &lt.stream, 1u), lt.use(0);
         lt.multiply();
       }},
      {"sums of a type other than f32",
       [](Lt& lt) { lt.call("cublasLtMatmulDescCreate", &lt.product, 64, 2), lt.choose(); }},
      {"a bias without an address",
       [](Lt& lt) {
         const std::uint32_t bias = 4;
         lt.call("cublasLtMatmulDescSetAttribute", lt.product, 7, static_cast<const void*>(&bias), sizeof bias);
         lt.choose();
       }},
      {"past the end of its allocation", [](Lt& lt) { lt.layout(1 << 17), lt.choose(), lt.multiply(); }},
      {"no event orders them",
       [](Lt& lt) {
         lt.choose(), lt.multiply(), lt.driver("cuStreamCreate", &lt.stream, 1u);
         lt.driver("cuMemsetD32Async", lt.memory[2], 0u, std::size_t{4}, lt.stream);
       }},
  };
  for (const Misuse& misuse : misuses)
    test::expect_contains(test::run_in_child(test::with_fakes({{"TESSERA_FAKE_DEVICES", "2"}}),
                                             [&] {
                                               Lt lt;
                                               if (const std::string said = lt.breaches(); !said.empty())
                                                 return "before: " + said;
                                               misuse.work(lt);
                                               return lt.breaches();
                                             }),
                          {misuse.words});
}

TEST(FakeBlas, DetectsRocblasAllocationsAndStreamsOfOtherDevices) {
  const auto rocblas = [](const std::function<void(os::Library&, os::Library&, void*)>& work) {
    return test::run_in_child(test::with_fakes({{"TESSERA_FAKE_DEVICES", "2"}}), [&] {
      os::Library hip = os::Library::open(test::fake_library("hip")),
                  blas = os::Library::open(test::fake_library("rocblas"));
      hip.function<int(int)>("hipSetDevice")(0);
      void* handle = nullptr;
      blas.function<int(void**)>("rocblas_create_handle")(&handle);
      work(hip, blas, handle);
      return test::breaches(test::fake_library("hip"));
    });
  };
  test::expect_contains(rocblas([](os::Library& hip, os::Library& blas, void* handle) {
                          void* stream = nullptr;
                          hip.function<int(int)>("hipSetDevice")(1);
                          hip.function<int(void**, unsigned)>("hipStreamCreateWithFlags")(&stream, 1);
                          hip.function<int(int)>("hipSetDevice")(0);
                          blas.function<int(void*, void*)>("rocblas_set_stream")(handle, stream);
                        }),
                        {"the stream and the handle belong to different devices"});
  test::expect_contains(rocblas([](os::Library&, os::Library& blas, void* handle) {
                          std::size_t bytes = 0;
                          blas.function<int(void*, std::size_t*)>("rocblas_stop_device_memory_size_query")(handle,
                                                                                                           &bytes);
                        }),
                        {"no query was begun"});
}

}  // namespace
}  // namespace tessera
