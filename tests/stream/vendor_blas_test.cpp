// SPDX-License-Identifier: Apache-2.0
// Large products with fakes of cuBLASLt, hipBLASLt and rocBLAS. The fakes compute in double on memory of the fake
// drivers, and check layouts, alignment, streams, workspaces and handles. Every kind of product must be correct. If the
// library is missing or incomplete, rejects a product, or fails, Tessera's kernels must compute the product, and the
// reason must be reported.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <random>

#include "tessera/array/array.h"
#include "tessera/base/error.h"
#include "tessera/base/os/library.h"
#include "tessera/base/test_seed.h"
#include "tessera/device/placement/placement_scope.h"
#include "tessera/device/placement/verify_on.h"
#include "tessera/device/queue/sequence.h"
#include "tessera/ops/linear_input.h"
#include "tessera/ops/product.h"
#include "tessera/ops/transformer_layer.h"
#include "tests/nn/small_network.h"
#include "tests/ops/product_check.h"
#include "tests/support/errors.h"
#include "tests/support/fake_backends.h"
#include "tests/support/run_in_child.h"

namespace tessera {
namespace {

using test::compare_product;
using test::expect_contains;
using test::message;
using test::product_cases;
using test::ProductCase;
using test::random_array;
using test::Variables;

struct Maker {
  const char* name;  ///< name of the fake library
  Backend backend;
  const char* counted;
  const char* variable;
  bool epilogues;
};
constexpr Maker makers[] = {{"cublaslt", Backend::cuda, "cublasLt: product", "TESSERA_CUBLAS_LIBRARY", true},
                            {"hipblaslt", Backend::rocm, "hipblasLt: product", "TESSERA_HIPBLASLT_LIBRARY", true},
                            {"rocblas", Backend::rocm, "rocblas: product", "TESSERA_ROCBLAS_LIBRARY", false}};

class VendorBlas : public ::testing::TestWithParam<Maker> {
 protected:
  static const Maker& maker() { return GetParam(); }
  static Device device(int index = 0) { return {maker().backend, index}; }
  static os::Library library() { return os::Library::open(test::fake_library(maker().name)); }
  static std::uint64_t count(const char* what) {
    return library().function<std::uint64_t(const char*)>("tessera_fake_blas")(what);
  }
  static std::string run(const Variables& changed, const std::function<std::string()>& work) {
    Variables all = {{"TESSERA_BLAS", "vendor"},
                     {"TESSERA_CUBLAS_LIBRARY", "none"},
                     {"TESSERA_HIPBLASLT_LIBRARY", "none"},
                     {"TESSERA_ROCBLAS_LIBRARY", "none"},
                     {maker().variable, test::fake_library(maker().name)}};
    all.insert(all.end(), changed.begin(), changed.end());
    return test::run_in_child(
        test::with_fakes(all),
        [&] {
          std::string text = work();
          return text + test::breach_lines(test::fake_library(test::fake_backend(maker().backend).driver));
        },
        120);
  }
  /// Returns the number of products that the library computed within a scope.
  static std::uint64_t by_library(const PlacementLog& log) {
    std::uint64_t products = 0;  // on all devices
    for (const auto& k : log.kernels)
      if (k.kernel == maker().counted) products += k.launches;
    return products;
  }

  /// Computes a product without bias. Returns "right by the library", "right by Tessera's kernel", or a description of
  /// the error.
  static std::string plain(Device on = device(), std::int64_t m = 33, std::int64_t n = 20, std::int64_t k = 70) {
    std::mt19937_64 source(test_seed());
    const Array a = random_array(source, {m, k}, DType::f32, on), b = random_array(source, {k, n}, DType::f32, on);
    Placement scope;
    const Array c = matmul(a, b);
    const bool library_did = by_library(scope.log()) != 0;
    const std::string wrong = compare_product(c, a, b);
    return !wrong.empty() ? wrong : library_did ? "right by the library" : "right by Tessera's kernel";
  }
};
INSTANTIATE_TEST_SUITE_P(Makers, VendorBlas, ::testing::ValuesIn(makers),
                         [](const auto& info) { return std::string(info.param.name); });

TEST_P(VendorBlas, ComputesAllKindsOfProducts) {
  const std::string text = run({}, []() -> std::string {
    std::mt19937_64 source(test_seed());
    std::string wrong;
    for (const DType t : {DType::f32, DType::f16, DType::bf16}) {
      const auto make = [&](Shape shape) { return random_array(source, std::move(shape), t, device()); };
      for (const ProductCase& c : product_cases(make)) {
        Placement scope;
        const Array got = matmul(c.a, c.b);
        if (got.dtype() != t) wrong += std::string("\n") + c.name + ": another dtype";
        if (by_library(scope.log()) != 1) wrong += std::string("\n") + c.name + ": not by the library";
        if (const auto said = compare_product(got, c.a, c.b); !said.empty())
          wrong += "\n" + std::string(dtype_name(t)) + " " + c.name + said;
      }
    }
    return wrong.empty() ? "right" : wrong;
  });
  EXPECT_EQ(text, "right");
}

TEST_P(VendorBlas, BiasAndActivationGiveTheSameResultWithAndWithoutEpilogue) {
  const std::string text = run({}, []() -> std::string {
    std::mt19937_64 source(test_seed());
    std::string wrong;
    for (const DType t : {DType::f32, DType::f16, DType::bf16})
      for (const Activation activation : {Activation::none, Activation::relu, Activation::silu, Activation::gelu})
        for (const int kind : {0, 1, 2}) {
          const Array a = random_array(source, {2, 15, 70}, t, device()),
                      b = random_array(source, {70, 33}, t, device());
          a.eval(), b.eval();
          a.select(0, 1).select(0, 3).slice(0, 5, 6).fill(NAN);  // a row of NaN
          Epilogue e;
          e.activation = activation;
          if (kind == 1) e.bias = random_array(source, {33}, t, device());
          if (kind == 2)
            e.bias =
                random_array(source, {66}, DType::f32, device()).slice(0, 0, 66, 2);  // with gaps between its elements
          if (e.bias) e.bias->eval();
          Placement scope;
          const Array got = matmul(a, b, e);
          const auto log = scope.log();
          const std::string said = compare_product(got, a, b, e);
          const std::string name = std::string(dtype_name(t)) + ", activation " +
                                   std::to_string(static_cast<int>(activation)) + ", bias " + std::to_string(kind);
          // hipBLASLt does not support bf16 products with f32 output, so Tessera's kernel computes them.
          const bool possible = maker().name != std::string_view("hipblaslt") || t != DType::bf16;
          if (possible && by_library(log) != 1) wrong += "\n" + name + ": not by the library";
          if (got.dtype() != t || !said.empty()) wrong += "\n" + name + said;
          // If the library supports the epilogue, there is only one call.
          const bool fused = maker().epilogues && kind != 2 && activation == Activation::none;
          if (fused && log.kernels.size() != 1) wrong += "\n" + name + ": more kernels than the library's call";
        }
    return wrong.empty() ? "right" : wrong;
  });
  EXPECT_EQ(text, "right");
}

TEST_P(VendorBlas, CachesPlansAndFreesWorkspaces) {
  const std::string text = run({}, [] {
    std::string all;
    for (int i = 0; i < 5; ++i) all = plain();
    all += ", " + std::to_string(count("multiplied")) + " products";
    if (maker().epilogues) all += ", chosen " + std::to_string(count("chosen"));
    for (std::int64_t m = 1; m <= 100; ++m) plain(device(), m, 5, 5);  // so many plans that the oldest ones are evicted
    all += ", " + std::to_string(count("libraries")) + " library";
    if (count("preferences") != 0 || count("products") > 64 || count("layouts") > 192) all += ", and too many objects";
    const auto before = memory_stats(device()).live_bytes;
    plain();
    if (memory_stats(device()).live_bytes != before) all += ", memory leaked";
    trim(device());
    return all;
  });
  EXPECT_EQ(text,
            std::string("right by the library, 5 products") + (maker().epilogues ? ", chosen 1" : "") + ", 1 library");
}

TEST_P(VendorBlas, ReusesAPlanForOtherAddressesAndBiases) {
  const std::string text = run({}, []() -> std::string {
    std::mt19937_64 source(test_seed());
    const Array base = random_array(source, {10, 40}, DType::f32, device()),
                b = random_array(source, {20, 12}, DType::f32, device());
    std::string wrong;
    std::vector<Array> kept;  // keeps the memory of each bias, so that the next bias has a different address
    for (const std::int64_t from : {0, 0, 1, 2, 4}) {  // all are less aligned than the first one
      const Array a = base.slice(1, from, from + 20);
      Epilogue e;
      kept.push_back(random_array(source, {12}, DType::f32, device()).eval());
      e.bias = kept.back();
      const Array c = matmul(a, b, e);
      wrong += compare_product(c, a, b, e);
    }
    return wrong.empty() ? "right" : wrong;
  });
  EXPECT_EQ(text, "right");
}

TEST_P(VendorBlas, IsUsedOnlyForLargeProductsByDefault) {
  const auto sizes = [] {
    return plain() + "; " + plain(device(), 512, 256, 512) + "; " + plain(device(), 1, 4096, 4096);
  };
  EXPECT_EQ(run({{"TESSERA_BLAS", "auto"}}, sizes),
            "right by Tessera's kernel; right by the library; right by the library");
  EXPECT_EQ(run({{"TESSERA_BLAS", "off"}}, [] { return plain() + ", " + std::to_string(count("libraries")); }),
            "right by Tessera's kernel, 0");
  EXPECT_EQ(run({{"TESSERA_BLAS", "off"}}, [] { return plain(device(), 512, 256, 512); }), "right by Tessera's kernel");
  expect_contains(run({{"TESSERA_BLAS", "sometimes"}}, [] { return message([] { plain(); }); }),
                  {"TESSERA_BLAS", "sometimes", "off, vendor or auto"});
}

TEST_P(VendorBlas, UsesTf32OnlyOnRequest) {
  if (!maker().epilogues) return;  // rocBLAS does not support TF32
  EXPECT_EQ(run({}, [] { return plain() + (count("tf32") == 0 ? "" : ", rounded"); }), "right by the library");
  EXPECT_EQ(run({{"TESSERA_TF32", "1"}},
                [] {
                  std::string all = plain() + ", ";
                  std::mt19937_64 source(test_seed());
                  matmul(random_array(source, {9, 9}, DType::f16, device()),
                         random_array(source, {9, 9}, DType::f16, device()));
                  return all + std::to_string(count("tf32"));
                }),
            "right by the library, 1");
}

TEST_P(VendorBlas, FallsBackWithoutWorkspaceMemory) {
  EXPECT_EQ(run({},
                [] {
                  std::string all = plain() + "; ";
                  trim(device());
                  // Enough for the operands, but not for the workspace of the library.
                  set_memory_limit(device(), 60000);
                  all += plain() + "; ";
                  set_memory_limit(device(), 0);
                  return all + plain();
                }),
            "right by the library; right by Tessera's kernel; right by the library");
}

TEST_P(VendorBlas, TesseraKernelsComputeUnsupportedDtypes) {
  EXPECT_EQ(run({},
                []() -> std::string {
                  std::mt19937_64 source(test_seed());
                  std::string all;
                  const auto pair = [&](DType x, DType y) {
                    const Array a = random_array(source, {9, 30}, x, device()),
                                b = random_array(source, {30, 9}, y, device());
                    Placement scope;
                    const Array c = matmul(a, b);
                    const bool did = by_library(scope.log()) != 0;
                    all += c.to_vector<double>().size() == 81 && !did ? "ours " : "theirs ";
                  };
                  pair(DType::f64, DType::f64);
                  const Array a = random_array(source, {9, 30}, DType::f16, device()),
                              b = random_array(source, {30, 9}, DType::f32, device());
                  Placement scope;
                  all += compare_product(matmul(a, b), a, b);
                  return all + std::to_string(by_library(scope.log()));
                }),
            "ours 0");
}

// Errors of the library are reported and never cause wrong results.

TEST_P(VendorBlas, FallsBackIfLibraryIsMissingOrIncomplete) {
  EXPECT_EQ(run({{maker().variable, "/nonexistent/libblas.so"}}, [] { return plain(); }), "right by Tessera's kernel");
  EXPECT_EQ(run({{maker().variable, "none"}}, [] { return plain(); }), "right by Tessera's kernel");
  if (maker().epilogues) {
    EXPECT_EQ(run({{maker().variable, test::fake_library(std::string(maker().name) + "_incomplete")}},
                  [] { return plain(); }),
              "right by Tessera's kernel");
  }
}

TEST_P(VendorBlas, FallsBackIfLibraryFailsToInitialise) {
  EXPECT_EQ(run({{"TESSERA_FAKE_FAULT", "blas-create"}}, [] { return plain() + "; " + plain(); }),
            "right by Tessera's kernel; right by Tessera's kernel");
  EXPECT_EQ(run({{"TESSERA_FAKE_FAULT", "blas-create@0"}, {"TESSERA_FAKE_DEVICES", "2"}},
                [] { return plain(device(0)) + "; " + plain(device(1)); }),
            "right by Tessera's kernel; right by the library");
}

TEST_P(VendorBlas, FailedCallDisablesLibraryWithAWarning) {
  for (const char* fault : {"blas=1", "blas-choose=1"}) {
    // rocBLAS chooses the algorithm itself.
    if (!maker().epilogues && fault == std::string_view("blas-choose=1")) continue;
    testing::internal::CaptureStderr();
    const std::string text = run({{"TESSERA_FAKE_FAULT", fault}, {"TESSERA_FAKE_DEVICES", "2"}}, [] {
      std::string all = plain() + "; ";
      all += plain() + "; ";
      all += plain(device(1)) + ", called ";
      return all + std::to_string(count("multiplied"));
    });
    const std::string said = testing::internal::GetCapturedStderr();
    const bool chosen = fault != std::string_view("blas=1");
    EXPECT_EQ(text, std::string("right by Tessera's kernel; right by Tessera's kernel; right by the library, called ") +
                        (chosen ? "1" : "2"));
    expect_contains(
        said, {to_string(device()), "failed and will not be used again", "returned", "now use Tessera's kernels"});
    EXPECT_EQ(said.find("not be used again"), said.rfind("not be used again")) << said;
  }
}

TEST_P(VendorBlas, FallsBackWithoutWarningIfAProductIsRejected) {
  testing::internal::CaptureStderr();
  EXPECT_EQ(run({{"TESSERA_FAKE_FAULT", "blas-none"}}, [] { return plain() + "; " + plain(); }),
            "right by Tessera's kernel; right by Tessera's kernel");
  EXPECT_EQ(testing::internal::GetCapturedStderr().find("not be used again"), std::string::npos);
}

TEST_P(VendorBlas, LibraryNewerThanTheDriverIsNotUsed) {
  if (maker().backend != Backend::cuda) return;  // AMD's libraries are part of their runtime
  EXPECT_EQ(run({{"TESSERA_FAKE_FAULT", "compiler=13000"}}, [] { return plain(); }), "right by Tessera's kernel");
}

TEST_P(VendorBlas, LostDeviceThrowsAndOtherDevicesRemainUsable) {
  const std::string text = run({{"TESSERA_FAKE_FAULT", "lost=60+@0"}, {"TESSERA_FAKE_DEVICES", "2"}}, [] {
    std::string all = message([] {
      for (int i = 0; i < 100; ++i) plain(device(0));
    });
    return all + "\n" + plain(device(1));
  });
  expect_contains(text, {"[" + to_string(device(0)) + "] the device is lost", "\nright by the library"});
  EXPECT_EQ(text.find("BREACH"), text.npos) << text;
}

TEST_P(VendorBlas, IsOrderedWithOtherWorkAndRespectsPlacement) {
  const std::string text = run({{"TESSERA_FAKE_DELAY_US", "3000"}, {"TESSERA_FAKE_DEVICES", "2"}}, []() -> std::string {
    std::mt19937_64 source(test_seed());
    const Array a = random_array(source, {20, 64}, DType::f32, device()),
                b = random_array(source, {64, 20}, DType::f32, device());
    const std::vector<float> first = a.to_vector<float>();
    Queue other(device()), third(device());
    Array sum = Array::zeros({20, 20}, DType::f32, device());
    for (int i = 0; i < 10; ++i) {
      const Array c = matmul(a * 1.0f, b);  // one operand is pending, and the result uses memory that was just freed
      const Array copy = Array::empty({20, 20}, DType::f32, device());
      other.copy(copy.view(), c.view());
      sum = sum + copy;
    }
    std::string wrong = compare_product(sum * 0.1f, a, b);
    // Another queue has just written the operands, and overwrites them as soon as the product is enqueued.
    const Array x = Array::empty({20, 64}, DType::f32, device()), bias = Array::empty({20}, DType::f32, device());
    const Array shift = Array::full({20}, 0.5, DType::f32, device());
    Epilogue with_bias;
    with_bias.bias = bias;
    for (int i = 0; i < 5; ++i) {
      other.copy(x.view(), a.view());
      other.copy(bias.view(), shift.view());
      const Array c = matmul(x, b, with_bias);
      for (const std::int64_t bytes : {100000, 50000})  // likely to reuse the memory of the workspace
        third.fill(Array::empty({bytes}, DType::u8, device()).view(), 0);
      other.fill(x.view(), 0);
      other.fill(bias.view(), 0);
      Epilogue expected;
      expected.bias = shift;
      wrong += compare_product(c, a, b, expected);
    }
    wrong += message([&] {
      const Placement strict = Placement::strict({device(1)});
      matmul(a, b).to_vector<float>();
    });
    return wrong;
  });
  expect_contains(text, {maker().counted, "strict placement does not allow"});
  EXPECT_EQ(text.find("BREACH"), text.npos) << text;
}

// If the library fails in a capture, replays call it piece by piece.

TEST_P(VendorBlas, RecordedWorkUsesTheLibrary) {
  for (const char* fault : {"", "blas-capture", "blas-capture:801"}) {
    const bool rejects = *fault != '\0';
    testing::internal::CaptureStderr();
    const std::string text =
        run({{"TESSERA_FAKE_FAULT", fault}, {"TESSERA_FAKE_DEVICES", "2"}}, [rejects]() -> std::string {
          std::mt19937_64 source(test_seed());
          std::string all;
          for (const Device on : {device(0), device(1)}) {
            const Array a = random_array(source, {33, 70}, DType::f32, on),
                        b = random_array(source, {70, 20}, DType::f32, on);
            Array x = a.copy(), y = Array::zeros({33, 20}, DType::f32, on);
            y.eval();
            const auto work = [&] { y += matmul(x, b); };
            Sequence sequence = Sequence::record(Queue::of(on), work);
            if (sequence.one_call() == rejects) return "it is captured although the library rejects it, or the reverse";
            for (const float factor : {2.0f, 3.0f}) {
              x.assign(a * factor);  // the replay reads the current operands
              Placement scope;
              sequence.replay();
              if (by_library(scope.log()) != 1) return "the replay does not use the library";
            }
            if (!sequence.record_again(work).empty()) return "the same work differs";
            all += compare_product(y * (1.0f / 9), a, b) + ", " + std::to_string(count("multiplied")) + " calls";
          }
          return all;
        });
    const std::string said = testing::internal::GetCapturedStderr();
    if (rejects) expect_contains(said, {"piece by piece", "TESSERA_BLAS=off"});
    EXPECT_EQ(said.find("piece by piece"), said.rfind("piece by piece")) << said;
    // Calls on each device: the recording, its capture, the replays, and the second recording and capture.
    EXPECT_EQ(text, rejects ? ", 6 calls, 12 calls" : ", 4 calls, 8 calls");
  }
}

// A trainer records its second step, compares the third one with it, replays the fourth one and compares again. It does
// not record steps whose batch is split.
TEST_P(VendorBlas, EveryTrainingStepUsesTheLibrary) {
  for (const char* fault : {"", "blas-capture"}) {
    const bool rejects = *fault != '\0';
    testing::internal::CaptureStderr();
    const std::string text = run({{"TESSERA_FAKE_FAULT", fault}, {"TESSERA_FAKE_DEVICES", "2"}}, [] {
      std::string all;
      for (const std::vector<Device>& devices : {std::vector{device(0)}, {device(1)}, {device(0), device(1)}}) {
        const DeviceScope scope(devices[0]);
        const test::Network model = test::network();
        const test::Batch batch = test::data(32);
        std::vector<float> losses[2];
        for (const bool recorded : {false, true}) {
          TrainerOptions options{.recorded = recorded};
          if (devices.size() > 1) options.devices = devices;
          auto trainer = test::trainer_of(model, Adam(model, {.lr = 1e-2}), options);
          all += recorded ? "; recorded:" : "eager:";
          for (int step = 0; step < 5; ++step) {
            Placement counted;
            losses[recorded].push_back(trainer.step(batch).item<float>());
            all += " " + std::to_string(by_library(counted.log()));
          }
          trainer.check();
          all += ", " + std::to_string(trainer.replays()) + " replayed";
        }
        all += losses[0] == losses[1] ? "\n" : ", and the losses differ\n";
      }
      return all;
    });
    const std::string said = testing::internal::GetCapturedStderr();
    EXPECT_EQ(said.find("piece by piece") != said.npos, rejects) << said;
    EXPECT_EQ(said.find("piece by piece"), said.rfind("piece by piece")) << said;
    const std::string one = "eager: 5 5 5 5 5, 0 replayed; recorded: 5 5 5 5 5, 1 replayed\n",
                      two = "eager: 10 10 10 10 10, 0 replayed; recorded: 10 10 10 10 10, 0 replayed\n";
    EXPECT_EQ(text, one + one + two) << fault;
  }
}

// Weights of two formats, one of which has too few tokens for the library. A huge activation of one token must not
// change the products of the others. If the library fails, the stored activations are converted for our kernels.
TEST_P(VendorBlas, MultipliesPromptsByConvertedWeights) {
  for (const bool fails : {false, true}) {
    const Variables fault = fails ? Variables{{"TESSERA_FAKE_FAULT", "blas=1"}} : Variables{};
    const std::string text = run(fault, [&]() -> std::string {
      std::mt19937_64 source(test_seed());
      const auto array = [&](Shape shape) { return random_array(source, std::move(shape), DType::f32, device()); };
      for (const std::int64_t tokens : {20, 64}) {
        const std::vector<Weight> weights = {Weight::of(array({96, 64}), WeightFormat::f16, device()),
                                             Weight::of(array({32, 64}), WeightFormat::q8_0, device())};
        Array x = array({tokens, 64}).copy();
        x.slice(0, 3, 4).fill(1e15f);
        const Array norm = Array::ones({64}, DType::f32, device()),
                    zero = Array::zeros(x.shape(), DType::f32, device());
        Placement scope;
        ops::LinearInput rows = ops::add_rms_norm(x, zero, norm, 1e-5f, weights).normalised;
        const std::vector<Array> direct = linear(x, weights), normalised = ops::linear(rows, weights);
        const bool library_did = by_library(scope.log()) != 0;
        const bool expected = !fails && std::ranges::any_of(weights, [&](const Weight& w) {
          return ops::multiplied_by_library(w, tokens);
        });
        if (library_did != expected || (expected != !fails && tokens == 64))
          return "the library computed " + std::to_string(by_library(scope.log()));
        for (std::size_t w = 0; w < weights.size(); ++w)
          for (std::int64_t t = 0; t < tokens; ++t) {
            const Array row = x.slice(0, t, t + 1).copy();
            const auto error = [&](const Array& got, const Array& from) {
              const Array want = linear(from, weights[w]);
              return (max(abs(got.slice(0, t, t + 1) - want)) / max(abs(want))).to_vector<float>()[0];
            };
            if (!(error(direct[w], row) < 0.03f)) return "token " + std::to_string(t) + " is wrong";
            if (!(error(normalised[w], rms_norm(row, norm, 1e-5f)) < 0.03f))
              return "normalised token " + std::to_string(t) + " is wrong";
          }
      }
      return "right";
    });
    EXPECT_TRUE(text.ends_with("right")) << text;
  }
}

TEST_P(VendorBlas, VerifyOnUsesTesseraKernels) {
  EXPECT_EQ(run({},
                []() -> std::string {
                  const auto reports = verify_on({Backend::interp, 0}, [] { plain(); });
                  return reports.kernels.empty() ? "nothing was verified" : plain();
                }),
            "right by the library");
}

}  // namespace
}  // namespace tessera
