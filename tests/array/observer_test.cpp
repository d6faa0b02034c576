// SPDX-License-Identifier: Apache-2.0
// Observers of array operations. Each public operation is reported once, with enough information to differentiate it.
#include "tessera/array/observer.h"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <functional>
#include <list>
#include <map>
#include <random>
#include <regex>
#include <set>
#include <sstream>
#include <variant>

#include "tessera/array/dlpack.h"
#include "tessera/array/functions.h"
#include "tessera/array/generator.h"
#include "tessera/array/history.h"
#include "tessera/array/move.h"
#include "tessera/array/npy.h"
#include "tessera/array/rearrange.h"
#include "tessera/array/safetensors.h"
#include "tessera/array/statistics.h"
#include "tessera/fft/fft.h"
#include "tessera/linalg/linalg.h"
#include "tessera/ops/attention.h"
#include "tessera/ops/convolution.h"
#include "tessera/ops/distributions.h"
#include "tessera/ops/einsum.h"
#include "tessera/ops/linear_algebra.h"
#include "tessera/ops/product.h"
#include "tessera/ops/transformer.h"
#include "tessera/ops/weight.h"
#include "tessera/testing/testing.h"
#include "tests/support/every_device.h"
#include "tests/support/folder.h"

namespace tessera {
namespace {

using test::OnEveryDevice;
TESSERA_ON_EVERY_DEVICE();

class Names : public ArrayObserver {
 public:
  void made(const ArrayOperation& operation) override {
    all.emplace_back(operation.name);
    in_place = operation.in_place;
    operands = operation.operands.size();
    for (const Array& r : operation.results) shapes.push_back(r.shape());
    has_history = operation.results[0].has_history();
  }
  std::vector<std::string> all;
  bool in_place = false, has_history = false;
  std::size_t operands = 0;
  std::vector<Shape> shapes;
};

struct Call {
  const char* function;  ///< the name as declared in the header
  const char* told;      ///< the name that an observer receives
  std::size_t operands;
  std::function<void()> call;
  bool in_place = false;
};

// Calls of all functions in installed headers that return or write arrays, except functions that only call other
// functions. `make` creates their operands.
std::vector<Call> calls(const std::function<Array(Array)>& make = [](Array x) { return x; }) {
  const Array a = make(Array::from({1.f, 2.f, 3.f, 4.f}, Shape{2, 2})), b = make(Array::ones({2, 2})), c = a > 2;
  const Array ids = Array::from({std::int32_t{1}, std::int32_t{0}}), i = a.astype(DType::i32);
  const Array row = make(Array::ones({2})), heads = make(Array::ones({2, 1, 8})), cache = Array::zeros({1, 4, 8});
  const Array image = make(Array::ones({1, 1, 2, 2})), windows = make(Array::ones({1, 2, 2, 1, 1, 1})),
              one = make(Array::ones({1})), definite = make(Array::from({2.f, 0.f, 1.f, 2.f}, Shape{2, 2})),
              tokens = make(Array::ones({1, 2, 3, 8}));
  const Array id_row = ids.unsqueeze(0), failure = Array::zeros({1}, DType::i32);
  const std::vector<std::byte> zeros(2 * 32 * 4);
  const Weight weight = Weight::pack(WeightFormat::f32, zeros, 2, 32, a.device());
  const Array wide = make(Array::ones({1, 32}));
  static const test::Folder folder;
  const std::string path = folder / "a.npy";
  save_npy(a, path);
  const std::string tensors = folder / "a.safetensors";
  save_safetensors(tensors, {{"a", a}});
  auto written = [](Array target, auto&& write) { return [target, write]() mutable { write(target); }; };
  const Array t = Array::from({1.f, 2.f, 3.f, 4.f}, Shape{2, 2});
  std::vector<Call> list = {
      {"empty", "empty", 0, [] { Array::empty({2}); }},
      {"full", "full", 0, [] { Array::full({2}, 1); }},
      {"zeros", "zeros", 0, [] { Array::zeros({2}); }},
      {"ones", "ones", 0, [] { Array::ones({2}); }},
      {"arange", "arange", 0, [] { Array::arange(3); }},
      {"linspace", "linspace", 0, [] { Array::linspace(0, 1, 3); }},
      {"eye", "eye", 0, [] { Array::eye(3); }},
      {"from", "from", 0, [] { Array::from({1.f}); }},
      {"wrap", "wrap", 0, [] { Array::wrap(Storage::allocate(current_device(), 8), DType::f32, {2}); }},
      {"reshape", "reshape", 1, [=] { a.reshape({4}); }},
      {"transpose", "transpose", 1, [=] { a.transpose(); }},
      {"permute", "permute", 1,
       [=] {
         a.permute({1, 0});
       }},
      {"broadcast_to", "broadcast_to", 1,
       [=] {
         a.broadcast_to({3, 2, 2});
       }},
      {"slice", "slice", 1, [=] { a.slice(0, 0, 1); }},
      {"select", "select", 1, [=] { a.select(0, 1); }},
      {"unsqueeze", "unsqueeze", 1, [=] { a.unsqueeze(0); }},
      {"squeeze", "squeeze", 1, [=] { row.unsqueeze(0).squeeze(0); }},
      {"as_contiguous", "as_contiguous", 1, [=] { a.as_contiguous(); }},
      {"astype", "astype", 1, [=] { a.astype(DType::i32); }},
      {"to", "to", 1,
       [=] {
         a.to({Backend::interp, 0});
       }},
      {"to", "to", 1,
       [=] {
         to(std::vector<Array>{a}, Device{Backend::interp, 0});
       }},
      {"copy", "copy", 1, [=] { a.copy(); }},
      {"where", "where", 3, [=] { where(c, a, 0); }},
      {"sum", "sum", 1, [=] { sum(a, {1}, true); }},
      {"mean", "mean", 1, [=] { mean(a); }},
      {"max", "max", 1, [=] { max(a); }},
      {"min", "min", 1, [=] { min(a); }},
      {"any", "any", 1, [=] { any(a); }},
      {"all", "all", 1, [=] { all(a, {0}); }},
      {"argmax", "argmax", 1, [=] { argmax(a); }},
      {"concatenate", "concatenate", 2,
       [=] {
         concatenate({a, b});
       }},
      {"take", "take", 2, [=] { take(a, ids); }},
      {"argmin", "argmin", 1, [=] { argmin(a); }},
      {"clip", "clip", 3, [=] { clip(a, 0, 1); }},
      {"stack", "stack", 2,
       [=] {
         stack({a, b});
       }},
      {"split", "split", 1, [=] { split(a, 2); }},
      {"pad", "pad", 1,
       [=] {
         pad(row, {{1, 1}});
       }},
      {"flip", "flip", 1, [=] { flip(a); }},
      {"masked_select", "masked_select", 2, [=] { masked_select(a, c); }},
      {"nonzero", "nonzero", 1, [=] { nonzero(a); }},
      {"sort", "sort", 1, [=] { sort(a, 0); }},
      {"argsort", "argsort", 1, [=] { argsort(a); }},
      {"unique", "unique", 1, [=] { unique(a); }},
      {"tril", "tril", 1, [=] { tril(a); }},
      {"triu", "triu", 1, [=] { triu(a, 1); }},
      {"one_hot", "one_hot", 1, [=] { one_hot(ids, 3); }},
      {"var", "var", 1, [=] { var(a, {1}); }},
      {"std", "std", 1, [=] { tessera::std(a); }},
      {"stddev", "std", 1, [=] { stddev(a); }},
      {"logsumexp", "logsumexp", 1, [=] { logsumexp(a, {0}); }},
      {"cumsum", "cumsum", 1, [=] { cumsum(a); }},
      {"cumprod", "cumprod", 1, [=] { cumprod(a); }},
      {"cummax", "cummax", 1, [=] { cummax(a); }},
      {"cummin", "cummin", 1, [=] { cummin(a); }},
      {"take_along_axis", "take_along_axis", 2, [=] { take_along_axis(a, id_row); }},
      {"scatter", "scatter", 3, [=] { scatter(a, ids, b); }},
      {"scatter_add", "scatter_add", 3, [=] { scatter_add(a, ids, b); }},
      {"update_slice", "update_slice", 2,
       [=] {
         update_slice(a, b, {0, 0});
       }},
      {"moveaxis", "moveaxis", 1, [=] { moveaxis(a, 0, 1); }},
      {"swapaxes", "swapaxes", 1, [=] { swapaxes(a, 0, 1); }},
      {"diag", "diag", 1, [=] { diag(a); }},
      {"trace", "trace", 1, [=] { tessera::trace(a); }},
      {"roll", "roll", 1, [=] { roll(a, 1); }},
      {"repeat", "repeat", 1, [=] { repeat(a, 2, 0); }},
      {"tile", "tile", 1,
       [=] {
         tile(a, {2, 1});
       }},
      {"diff", "diff", 1, [=] { diff(a); }},
      {"meshgrid", "meshgrid", 2,
       [=] {
         meshgrid({row, row});
       }},
      {"median", "median", 1, [=] { median(a, {1}); }},
      {"quantile", "quantile", 1, [=] { quantile(a, 0.3); }},
      {"prod", "prod", 1, [=] { prod(a, {1}); }},
      {"nanprod", "nanprod", 1, [=] { nanprod(a); }},
      {"nansum", "nansum", 1, [=] { nansum(a); }},
      {"nanmean", "nanmean", 1, [=] { nanmean(a); }},
      {"nanmax", "nanmax", 1, [=] { nanmax(a); }},
      {"nanmin", "nanmin", 1, [=] { nanmin(a); }},
      {"searchsorted", "searchsorted", 2, [=] { searchsorted(row, a); }},
      {"isin", "isin", 2, [=] { isin(a, row); }},
      {"interpolate", "interpolate", 3, [=] { interpolate(a, row, row); }},
      {"topk", "topk", 1, [=] { topk(a, 1); }},
      {"bincount", "bincount", 1, [=] { bincount(ids); }},
      {"unique_counts", "unique_counts", 1, [=] { unique_counts(t); }},
      {"unique_inverse", "unique_inverse", 1, [=] { unique_inverse(t); }},
      {"histogram", "histogram", 1, [=] { histogram(t, 2, 0, 1); }},
      {"einsum", "einsum", 2,
       [=] {
         einsum("ij,jk", {a, b});
       }},
      {"tensordot", "tensordot", 2, [=] { tensordot(a, b, 1); }},
      {"kron", "kron", 2, [=] { kron(a, b); }},
      {"outer", "outer", 2, [=] { outer(a, b); }},
      {"solve", "linalg::solve", 2, [=] { linalg::solve(a, row); }},
      {"inv", "linalg::inv", 1, [=] { linalg::inv(a); }},
      {"det", "linalg::det", 1, [=] { linalg::det(a); }},
      {"slogdet", "linalg::slogdet", 1, [=] { linalg::slogdet(a); }},
      {"matrix_power", "linalg::matrix_power", 1, [=] { linalg::matrix_power(a, 3); }},
      {"lu", "linalg::lu", 1, [=] { linalg::lu(a); }},
      {"qr", "linalg::qr", 1, [=] { linalg::qr(a); }},
      {"cholesky", "linalg::cholesky", 1, [=] { linalg::cholesky(definite); }},
      {"eigh", "linalg::eigh", 1, [=] { linalg::eigh(a); }},
      {"eigvalsh", "linalg::eigvalsh", 1, [=] { linalg::eigvalsh(a); }},
      {"svd", "linalg::svd", 1, [=] { linalg::svd(a, false); }},
      {"svdvals", "linalg::svdvals", 1, [=] { linalg::svdvals(a); }},
      {"lstsq", "linalg::lstsq", 2, [=] { linalg::lstsq(a, row); }},
      {"pinv", "linalg::pinv", 1, [=] { linalg::pinv(a); }},
      {"matrix_rank", "linalg::matrix_rank", 1, [=] { linalg::matrix_rank(a); }},
      {"matrix_norm", "linalg::matrix_norm", 1, [=] { linalg::matrix_norm(a); }},
      {"vector_norm", "linalg::vector_norm", 1, [=] { linalg::vector_norm(a); }},
      {"cond", "linalg::cond", 1, [=] { linalg::cond(a); }},
      {"cross", "linalg::cross", 2,
       [=] {
         const Array line = concatenate({row, one});
         linalg::cross(line, line);
       }},
      {"vecdot", "linalg::vecdot", 2, [=] { linalg::vecdot(a, row); }},
      {"irfft", "fft::irfft", 2, [=] { fft::irfft(Complex(a, a)); }},
      {"irfftn", "fft::irfftn", 2, [=] { fft::irfftn(Complex(a, a)); }},
      {"hfft", "fft::hfft", 2, [=] { fft::hfft(Complex(a, a)); }},
      {"fftshift", "fft::fftshift", 1, [=] { fft::fftshift(a); }},
      {"ifftshift", "fft::ifftshift", 1, [=] { fft::ifftshift(a); }},
      {"fftfreq", "fft::fftfreq", 0, [] { fft::fftfreq(4); }},
      {"rfftfreq", "fft::rfftfreq", 0, [] { fft::rfftfreq(4); }},
      {"angle", "atan2", 2, [=] { angle(Complex(a, a)); }},
      {"matrix_transpose", "linalg::matrix_transpose", 1, [=] { linalg::matrix_transpose(a); }},
      {"random_integers", "random_integers", 0, [] { random_integers({3}, 1, 0, 9); }},
      {"random_permutation", "random_permutation", 0, [] { random_permutation(3, 1); }},
      {"random_choice", "random_choice", 0, [] { random_choice(3, {2}, 1); }},
      {"random_exponential", "random_exponential", 0, [] { random_exponential({3}, 1); }},
      {"random_gamma", "random_gamma", 0, [] { random_gamma({3}, 1, 2); }},
      {"random_beta", "random_beta", 0, [] { random_beta({3}, 1, 2, 3); }},
      {"random_poisson", "random_poisson", 0, [] { random_poisson({3}, 1, 4); }},
      {"random_binomial", "random_binomial", 0, [] { random_binomial({3}, 1, 5, 0.5); }},
      {"random_multivariate_normal", "random_multivariate_normal", 2,
       [=] { random_multivariate_normal(row, definite, {3}, 1); }},
      {"convolve", "convolve", 2, [=] { convolve(row, row); }},
      {"conv2d", "conv2d", 3, [=] { conv2d(image, image, one); }},
      {"max_pool2d", "max_pool2d", 1, [=] { max_pool2d(image, {.kernel = 2}); }},
      {"average_pool2d", "average_pool2d", 1, [=] { average_pool2d(image, {.kernel = 2}); }},
      {"windows2d", "windows2d", 1, [=] { windows2d(image, {.kernel = 2}); }},
      {"fold2d", "fold2d", 1, [=] { fold2d(windows, 2, {.kernel = 2}); }},
      {"random_uniform", "random_uniform", 0, [] { random_uniform({3}, 1); }},
      {"random_normal", "random_normal", 0, [] { random_normal({3}, 1); }},
      {"random_bits", "random_bits", 0, [] { random_bits({3}, 1); }},
      {"random_uniform_part", "random_uniform", 0, [] { random_uniform_part({4}, {1}, {2}, 1); }},
      {"random_normal_part", "random_normal", 0, [] { random_normal_part({4}, {1}, {2}, 1); }},
      {"random_bits_part", "random_bits", 0, [] { random_bits_part({4}, {1}, {2}, 1); }},
      {"uniform", "random_uniform", 0, [] { Generator(1).uniform({3}); }},
      {"normal", "random_normal", 0, [] { Generator(1).normal({3}); }},
      {"bits", "random_bits", 0, [] { Generator(1).bits({3}); }},
      {"load_npy", "load_npy", 0, [=] { load_npy(path); }},
      {"map", "map_npy", 0, [=] { NpyFile::open(path).map(); }},
      {"load", "load_safetensors", 0, [=] { SafetensorsFile::open(tensors).load("a"); }},
      {"from_dlpack", "from_dlpack", 0, [=] { dlpack::from_dlpack(dlpack::to_dlpack(t)); }},
      {"matmul", "matmul", 3, [=] { matmul(a, b, {.bias = row}); }},
      {"solve_triangular", "solve_triangular", 2, [=] { solve_triangular(a, b); }},
      {"cholesky", "cholesky", 1, [=] { cholesky(definite); }},
      {"linear", "linear", 1, [=] { linear(wide, weight); }},
      {"embedding_rows", "embedding_rows", 1, [=] { embedding_rows(weight, ids); }},
      {"dequantize", "dequantize", 0, [=] { dequantize(weight); }},
      {"rms_norm", "rms_norm", 2, [=] { rms_norm(a, row, 1e-5f); }},
      {"softmax", "softmax", 1, [=] { softmax(a); }},
      {"silu_gate", "silu_gate", 2, [=] { silu_gate(a, b); }},
      {"gelu_gate", "gelu_gate", 2, [=] { gelu_gate(a, b); }},
      {"rotary", "rotary", 1, [=] { rotary(heads, 0, {}); }},
      {"scaled_dot_product_attention", "scaled_dot_product_attention", 3,
       [=] { scaled_dot_product_attention(tokens, tokens, tokens); }},
      {"rotary", "rotary", 1, [=] { rotary(tokens, 0, {}); }},
      {"attention", "attention", 3, [=] { attention(heads, cache, cache, 0, 1); }},
      {"cache_store", "cache_store", 2, written(cache, [=](Array& x) { cache_store(x, heads, 0); }), true},
      {"multiply_into", "multiply_into", 3, written(t, [=](Array& x) { multiply_into(x, a, b); }), true},
      {"solve_triangular_into", "solve_triangular_into", 2, written(t, [=](Array& x) { solve_triangular_into(a, x); }),
       true},
      {"cholesky_into", "cholesky_into", 2,
       written(make(Array::ones({1, 1})), [told = Array(failure)](Array& x) mutable { cholesky_into(x, told); }), true},
      {"assign", "assign", 2, written(t, [=](Array& x) { x.assign(b); }), true},
      {"assign_all", "assign_all", 4,
       written(t,
               [=](Array& x) {
                 assign_all({{x, b}, {x, b}});
               }),
       true},
      {"fill", "fill", 1, [=] { make(t).fill(3); }, true},
      {"operator+=", "+=", 2, written(t, [=](Array& x) { x += b; }), true},
      {"operator-=", "-=", 2, [=] { Array(make(t)) -= 1; }, true},
      {"operator*=", "*=", 2, written(t, [=](Array& x) { x *= row; }), true},
      {"operator/=", "/=", 2, [=] { Array(make(t)) /= 2; }, true},
      {"view_for_writing", "view_for_writing", 1, [=] { make(t).view_for_writing(); }, true},
      {"host_access", "host_access", 1, [=] { make(t).copy().host_access(); }, true},
      {"operator!", "!", 1, [=] { !c; }},
  };
  for (const char* op : {"+", "-", "*", "/", "%", "&", "|", "^", "<<", ">>", "==", "!=", "<", "<=", ">", ">="}) {
    static std::map<std::string, Array (*)(ArrayOperand, ArrayOperand)> functions = {
        {"+", operator+ },
         {"-", operator- },
          {"*", operator* },
           {"/", operator/ },
            {"%", operator% },
             {"&", operator& },
              {"|", operator| },
               {"^", operator^ },
                {"<<", operator<< },
                 {">>", operator>> },
                  {"==", operator== },
                   {"!=", operator!= }, {"<", operator<}, {"<=", operator<= }, {">", operator> }, {">=", operator>= } };
    static std::list<std::string> names;
    const char* name = names.emplace_back("operator" + std::string(op)).c_str();
    const bool bits = std::set<std::string_view>{"&", "|", "^", "<<", ">>"}.count(op) != 0;
    list.push_back({name, op, 2, [f = functions.at(op), x = bits ? i : a] { f(x, 2); }});
  }
  for (const auto& [name, f] : std::initializer_list<std::pair<const char*, Array (*)(Array)>>{
           {"abs", abs},         {"sqrt", sqrt},   {"rsqrt", rsqrt}, {"exp", exp},           {"exp2", exp2},
           {"log", log},         {"log2", log2},   {"sin", sin},     {"cos", cos},           {"tanh", tanh},
           {"erf", erf},         {"floor", floor}, {"ceil", ceil},   {"trunc", trunc},       {"rint", rint},
           {"sigmoid", sigmoid}, {"silu", silu},   {"relu", relu},   {"gelu", gelu},         {"log1p", log1p},
           {"expm1", expm1},     {"sign", sign},   {"isnan", isnan}, {"isfinite", isfinite}, {"tan", tan},
           {"asin", asin},       {"acos", acos},   {"atan", atan},   {"sinh", sinh},         {"cosh", cosh},
           {"log10", log10},     {"round", round}, {"isinf", isinf}})
    list.push_back({name, name, 1, [f = f, a] { f(a); }});
  for (const auto& [name, f] :
       std::initializer_list<std::pair<const char*, Array (*)(ArrayOperand, ArrayOperand)>>{{"minimum", minimum},
                                                                                            {"maximum", maximum},
                                                                                            {"pow", pow},
                                                                                            {"atan2", atan2},
                                                                                            {"hypot", hypot},
                                                                                            {"copysign", copysign},
                                                                                            {"nextafter", nextafter}})
    list.push_back({name, name, 2, [f = f, a] { f(a, 2); }});
  return list;
}

TEST(Observer, EachPublicOperationIsReportedOnce) {
  for (const Call& c : calls()) {
    Names seen;
    {
      const ObserverScope scope(&seen);
      c.call();
    }
    // Some calls create their operand with another operation.
    const bool twice =
        std::set<std::string_view>{"squeeze", "from_dlpack", "host_access", "cross"}.count(c.function) != 0;
    ASSERT_EQ(seen.all.size(), twice ? 2u : 1u) << c.function;
    EXPECT_EQ(seen.all.back(), c.told) << c.function;
    EXPECT_EQ(seen.operands, c.operands) << c.function;
    EXPECT_EQ(seen.in_place, c.in_place) << c.function;
  }
}

// Functions of array/ and ops/ that return arrays by calling other functions, or that return stored arrays.
const std::set<std::string> others = {"array",         "memory",
                                      "parts",         "take",
                                      "eval",          "from_bytes",
                                      "with_view",     "cross_entropy",
                                      "mse_loss",      "bce_with_logits",
                                      "accuracy",      "pending_state",
                                      "predict",       "predict_in_batches",
                                      "step",          "loss_of",
                                      "step_number",   "snapshot",
                                      "step_arrays",   "scaled",
                                      "inverse",       "is_at_min_scale",
                                      "copies",        "sum_over_ranks",
                                      "complex_equal", "index"};

TEST(Observer, CasesCoverEveryFunctionOfInstalledHeaders) {
  std::set<std::string> known;
  for (const Call& c : calls()) known.insert(c.function);
  const std::regex declaration(R"(^\s*(?:static )?(?:const )?(?:std::vector<)?Array>?&? (operator[^(]+|\w+)\()");
  std::set<std::string> missing;
  std::size_t found = 0;
  for (const char* header : {"array/array.h",       "fft/complex.h",        "fft/fft.h",
                             "array/dlpack.h",      "array/functions.h",    "array/generator.h",
                             "array/index.h",       "array/npy.h",          "array/rearrange.h",
                             "array/safetensors.h", "array/statistics.h",   "linalg/linalg.h",
                             "nn/evaluate.h",       "nn/losses.h",          "nn/mode.h",
                             "nn/precision.h",      "nn/trainer.h",         "nn/trainer_base.h",
                             "ops/attention.h",     "ops/convolution.h",    "ops/distributions.h",
                             "ops/einsum.h",        "ops/linear_algebra.h", "ops/product.h",
                             "ops/transformer.h",   "ops/weight.h"}) {
    std::ifstream file(std::string(TESSERA_SOURCE_DIR "/tessera/") + header);
    ASSERT_TRUE(file) << header;
    for (std::string line; std::getline(file, line);) {
      std::smatch m;
      if (!std::regex_search(line, m, declaration)) continue;
      ++found;
      const std::string name = m[1];
      if (!known.count(name) && !others.count(name)) missing.insert(std::string(header) + ": " + name);
    }
  }
  EXPECT_GT(found, 80u);
  EXPECT_EQ(missing, std::set<std::string>{}) << "an operation without an observer test";
}

// How each of these functions is differentiated. New functions must be added here.
const std::set<std::string> with_gradient = {
    // with their own rules
    "operator+", "operator-", "operator*", "operator/", "operator%", "minimum", "maximum", "pow", "where", "abs",
    "sqrt", "rsqrt", "exp", "exp2", "log", "log2", "sin", "cos", "tanh", "erf", "sigmoid", "silu", "relu", "gelu",
    "reshape", "transpose", "permute", "broadcast_to", "slice", "select", "unsqueeze", "squeeze", "copy", "to", "sum",
    "mean", "max", "min", "concatenate", "take", "matmul", "linear", "rms_norm", "softmax", "rotary",
    "scaled_dot_product_attention", "log1p", "expm1", "clip", "pad", "update_slice", "cumsum", "take_along_axis", "tan",
    "asin", "acos", "atan", "atan2", "sinh", "cosh", "log10", "hypot", "copysign", "nextafter", "flip", "scatter",
    "scatter_add", "solve_triangular", "cholesky", "windows2d", "fold2d", "max_pool2d", "average_pool2d", "solve",
    "inv", "det", "qr", "eigh", "svd", "svdvals", "pinv", "lstsq",
    // compositions of the functions above
    "sort", "masked_select", "as_contiguous", "silu_gate", "gelu_gate", "stack", "split", "tril", "triu", "var", "std",
    "stddev", "logsumexp", "conv2d", "moveaxis", "swapaxes", "diag", "trace", "roll", "repeat", "tile", "diff",
    "meshgrid", "median", "quantile", "nansum", "nanmean", "nanmax", "nanmin", "interpolate", "topk", "einsum",
    "tensordot", "kron", "outer", "cumprod", "cummax", "cummin", "prod", "nanprod", "convolve", "eigvalsh", "irfft",
    "irfftn", "hfft", "fftshift", "ifftshift", "angle", "matrix_power", "matrix_norm", "vector_norm", "cond", "cross",
    "vecdot", "matrix_transpose", "random_multivariate_normal"};
const std::map<std::string, const char*> without_gradient = {
    {"floor", "it is zero"},
    {"ceil", "it is zero"},
    {"trunc", "it is zero"},
    {"rint", "it is zero"},
    {"round", "it is zero"},
    {"isinf", "returns bools"},
    {"isin", "returns bools"},
    {"searchsorted", "returns integers"},
    {"bincount", "takes integers"},
    {"unique_counts", "the values are those of unique"},
    {"unique_inverse", "the values are those of unique"},
    {"histogram", "returns integers"},
    {"nonzero", "returns integers"},
    {"argsort", "returns integers"},
    {"linspace", "takes no arrays"},
    {"eye", "takes no arrays"},
    {"astype", "conversion to integers, as here, has none; between floats it has one"},
    {"sign", "it is zero"},
    {"isnan", "returns bools"},
    {"isfinite", "returns bools"},
    {"one_hot", "takes integers"},
    {"any", "returns bools"},
    {"all", "returns bools"},
    {"argmax", "returns integers"},
    {"argmin", "returns integers"},
    {"operator&", "takes integers"},
    {"operator|", "takes integers"},
    {"operator^", "takes integers"},
    {"operator<<", "takes integers"},
    {"operator>>", "takes integers"},
    {"operator!", "takes bools"},
    {"operator==", "returns bools"},
    {"operator!=", "returns bools"},
    {"operator<", "returns bools"},
    {"operator<=", "returns bools"},
    {"operator>", "returns bools"},
    {"operator>=", "returns bools"},
    {"embedding_rows", "takes integers, and a Weight is constant"},
    {"dequantize", "a Weight is constant"},
    {"empty", "takes no arrays"},
    {"full", "takes no arrays"},
    {"zeros", "takes no arrays"},
    {"ones", "takes no arrays"},
    {"arange", "takes no arrays"},
    {"from", "takes no arrays"},
    {"wrap", "takes no arrays"},
    {"random_uniform", "takes no arrays"},
    {"random_normal", "takes no arrays"},
    {"random_bits", "takes no arrays"},
    {"random_uniform_part", "takes no arrays"},
    {"random_normal_part", "takes no arrays"},
    {"random_bits_part", "takes no arrays"},
    {"uniform", "takes no arrays"},
    {"normal", "takes no arrays"},
    {"bits", "takes no arrays"},
    {"matrix_rank", "returns integers"},
    {"slogdet", "it is zero for the sign; the logarithm has one"},
    {"random_integers", "takes no arrays"},
    {"fftfreq", "takes no arrays"},
    {"rfftfreq", "takes no arrays"},
    {"random_permutation", "takes no arrays"},
    {"random_choice", "takes no arrays"},
    {"random_exponential", "takes no arrays"},
    {"random_gamma", "takes no arrays"},
    {"random_beta", "takes no arrays"},
    {"random_poisson", "takes no arrays"},
    {"random_binomial", "takes no arrays"},
    {"load_npy", "takes no arrays"},
    {"map", "takes no arrays"},
    {"load", "takes no arrays"},
    {"from_dlpack", "takes no arrays"},
};
const std::set<std::string> refuse_history = {
    "unique",        "lu",         "multiply_into",    "solve_triangular_into",
    "cholesky_into", "attention",  "cache_store",      "assign",
    "assign_all",    "fill",       "operator+=",       "operator-=",
    "operator*=",    "operator/=", "view_for_writing", "host_access"};

TEST(Observer, EachFunctionRecordsHistoryRejectsItOrHasNoGradient) {
  const auto argument = [](Array x) {
    x.set_step(detail::Step::leaf(x, detail::Step::next_number(), x.dtype()));
    return x;
  };
  for (const Call& c : calls(argument)) {
    const std::string name = c.function;
    const std::size_t lists = with_gradient.count(name) + without_gradient.count(name) + refuse_history.count(name);
    EXPECT_EQ(lists, 1u) << name << ": add it to exactly one of the lists above";
    Names seen;
    const ObserverScope scope(&seen);
    if (refuse_history.count(name)) {
      EXPECT_THROW(c.call(), ArgumentError) << name;
    } else {
      c.call();
      EXPECT_EQ(seen.has_history, with_gradient.count(name) != 0) << name;
    }
  }
}

TEST(Observer, ObserverCanThrowAndUseArrays) {
  struct Throws : ArrayObserver {
    void made(const ArrayOperation& operation) override {
      EXPECT_EQ(sum(operation.results[0] + 1).item<float>(), 6.f);  // not reported again
      fail<ArgumentError>({.wrong = "no"});
    }
  } throws;
  Names after;
  const Array a = Array::ones({2});
  {
    const ObserverScope scope(&throws);
    EXPECT_THROW(a * 2, ArgumentError);
    const ObserverScope no_observer(nullptr);
    EXPECT_NO_THROW(a * 2);
  }
  const ObserverScope scope(&after);
  static_cast<void>(a + 1);
  EXPECT_EQ(after.all.size(), 1u);
}

TEST_P(OnEveryDevice, ReadersDeferredByAnObserverAreComputedBeforeTheWrite) {
  struct Defers : ArrayObserver {
    void made(const ArrayOperation& operation) override { made_of.push_back(operation.results[0] + 1); }
    std::vector<Array> made_of;
  } defers;
  const Array x = Array::from({1.f, 2.f});
  const bool on_host = GetParam().backend == Backend::cpu || GetParam().backend == Backend::interp;
  if (on_host) {
    const ObserverScope scope(&defers);
    const HostAccess host = x.host_access();
    host.as<float>()[0] = 20;
  } else {
    const ObserverScope scope(&defers);
    Queue::of(GetParam()).fill(x.view_for_writing(), 0);
  }
  ASSERT_EQ(defers.made_of.size(), 1u);
  EXPECT_EQ(defers.made_of[0].to_vector<float>(), (std::vector<float>{2, 3}));
  defers.made_of.clear();
  if (!on_host) return;
  const Array y = Array::from({1.f, 2.f});
  dlpack::Owned<dlpack::Managed> tensor;
  {
    const ObserverScope scope(&defers);
    tensor = dlpack::to_dlpack_unversioned(y);
  }
  static_cast<float*>(tensor->tensor.data)[0] = 20;
  ASSERT_EQ(defers.made_of.size(), 1u);
  EXPECT_EQ(defers.made_of[0].to_vector<float>(), (std::vector<float>{2, 3}));
}

TEST_P(OnEveryDevice, SnapshotsKeepTheirValues) {
  const Array x = Array::from({1.f, 2.f, 3.f, 4.f}, Shape{2, 2}), y = Array::ones({2, 2});
  std::optional<ArraySnapshot> pending, view, computed;
  {
    Array p = x * 2 + y;
    pending.emplace(p), view.emplace(p.transpose());
  }
  computed.emplace(x);
  EXPECT_TRUE(pending->expression());
  EXPECT_FALSE(computed->expression());
  EXPECT_EQ(pending->array().to_vector<float>(), (std::vector<float>{3, 5, 7, 9}));
  EXPECT_EQ(view->array().to_vector<float>(), (std::vector<float>{3, 7, 5, 9}));
  EXPECT_EQ(computed->array().to_vector<float>(), (std::vector<float>{1, 2, 3, 4}));
  // The result is overwritten, but the memory from which it was computed still exists.
  Array held = x * 2 + y;
  const ArraySnapshot before(held);
  held += 1;
  EXPECT_EQ(before.array().to_vector<float>(), (std::vector<float>{3, 5, 7, 9}));
  EXPECT_EQ(held.to_vector<float>(), (std::vector<float>{4, 6, 8, 10}));
  // The memory from which it was computed is overwritten.
  Array z = x;
  z += 1;
  for (const auto& kept : {*pending, *view, *computed, before}) EXPECT_THROW(kept.array(), ArgumentError);
}

// Reverse mode, implemented with an observer only.
struct Step {
  std::string name;
  std::vector<OperandSnapshot> operands;
  std::map<std::string, std::vector<std::int64_t>> axes;
  std::optional<Array> adjoint;
  std::size_t number = 0;
};
using StepPointer = std::shared_ptr<Step>;

class Tape : public ArrayObserver {
 public:
  void made(const ArrayOperation& o) override {
    auto step = std::make_shared<Step>();
    step->name = o.name;
    step->operands.assign(o.operands.begin(), o.operands.end());
    for (const Attribute& p : o.attributes)
      if (const auto* v = std::get_if<std::vector<std::int64_t>>(&p.value)) step->axes[std::string(p.name)] = *v;
    step->number = ++count_;
    o.results[0].set_history(step);
  }

 private:
  std::size_t count_ = 0;
};

StepPointer step_of(const std::shared_ptr<void>& history) { return std::static_pointer_cast<Step>(history); }

Array summed_to(Array g, const Shape& shape) {
  while (g.rank() > static_cast<int>(shape.size())) g = sum(g, {0});
  for (int d = 0; d < g.rank(); ++d)
    if (shape[static_cast<std::size_t>(d)] == 1 && g.shape(d) != 1) g = sum(g, {d}, true);
  return g;
}

void backward(const Array& loss) {
  std::map<std::size_t, StepPointer, std::greater<>> open;  // latest step first
  const auto add = [&](const OperandSnapshot& operand, const std::function<Array()>& adjoint) {
    const auto* a = std::get_if<ArraySnapshot>(&operand);
    if (a == nullptr || !a->history()) return;  // a constant
    const StepPointer step = step_of(a->history());
    const Array g = summed_to(adjoint(), a->shape());
    step->adjoint = step->adjoint ? *step->adjoint + g : g;
    open[step->number] = step;
  };
  const StepPointer last = step_of(loss.history());
  last->adjoint = Array::ones(loss.shape(), loss.dtype(), loss.device());
  open[last->number] = last;
  while (!open.empty()) {
    const StepPointer s = open.extract(open.begin()).mapped();
    const Array g = *s->adjoint;
    const auto x = [&](std::size_t i) {
      const auto* a = std::get_if<ArraySnapshot>(&s->operands[i]);
      return a != nullptr ? a->array() : Array::full({1}, std::get<ScalarSnapshot>(s->operands[i]).value);
    };
    const auto first = [&](auto&& f) { add(s->operands[0], f); };
    const auto second = [&](auto&& f) { add(s->operands[1], f); };
    if (s->name == "+") {
      first([&] { return g; }), second([&] { return g; });
    } else if (s->name == "-") {
      first([&] { return g; }), second([&] { return -g; });
    } else if (s->name == "*") {
      first([&] { return g * x(1); }), second([&] { return g * x(0); });
    } else if (s->name == "tanh") {
      first([&] { return g * (1 - tanh(x(0)) * tanh(x(0))); });
    } else if (s->name == "relu") {
      first([&] { return where(x(0) > 0, g, 0); });
    } else if (s->name == "sum") {
      first([&] { return g.broadcast_to(std::get<ArraySnapshot>(s->operands[0]).shape()); });
    } else if (s->name == "matmul") {
      first([&] { return matmul(g, x(1).transpose()); }), second([&] { return matmul(x(0).transpose(), g); });
    } else if (s->name != "leaf") {
      FAIL() << "no rule for " << s->name;
    }
  }
}

TEST_P(OnEveryDevice, ObserverCanImplementReverseMode) {
  std::mt19937_64 random(testing::seed());
  std::uniform_real_distribution<float> uniform(-1, 1);
  const auto make = [&](Shape shape) {
    std::vector<float> v(static_cast<std::size_t>(element_count(shape)));
    for (float& x : v) x = uniform(random);
    return v;
  };
  const std::vector<Shape> shapes = {{3, 5}, {5}, {5, 2}, {1, 2}};
  std::vector<std::vector<float>> values;
  Array x;
  const Array y = Array::from(make({4, 2}), Shape{4, 2});
  for (float from_kink = 0; from_kink < 0.02f;) {  // away from the kink of relu, where differences are not derivatives
    values.clear();
    for (const Shape& s : shapes) values.push_back(make(s));
    x = Array::from(make({4, 3}), Shape{4, 3});
    const Array hidden = tanh(matmul(x, Array::from(values[0], shapes[0])) + Array::from(values[1], shapes[1]));
    from_kink = min(abs(hidden + 0.5)).item<float>();
  }
  const auto network = [&](const std::vector<Array>& p) {
    Array hidden = tanh(matmul(x, p[0]) + p[1]);
    Array error = matmul(relu(std::move(hidden) + 0.5), p[2]) * 2 + p[3] - y;
    return sum(error * error);
  };
  const auto parameters = [&] {
    std::vector<Array> p;
    for (std::size_t i = 0; i < shapes.size(); ++i) p.push_back(Array::from(values[i], shapes[i]));
    return p;
  };
  std::vector<Array> p = parameters();
  std::vector<StepPointer> leaves;
  for (Array& a : p) {
    leaves.push_back(std::make_shared<Step>());
    leaves.back()->name = "leaf";
    a.set_history(leaves.back());
  }
  Tape tape;
  std::optional<Array> loss;
  {
    const ObserverScope scope(&tape);
    loss = network(p);
  }
  backward(*loss);
  for (std::size_t i = 0; i < shapes.size(); ++i) {
    ASSERT_TRUE(leaves[i]->adjoint);
    const std::vector<float> got = leaves[i]->adjoint->to_vector<float>();
    for (std::size_t e = 0; e < values[i].size(); ++e) {
      const float kept = values[i][e], step = 1e-2f;
      const auto at = [&](float v) {
        values[i][e] = v;
        return static_cast<double>(network(parameters()).item<float>());
      };
      const double want = (at(kept + step) - at(kept - step)) / (2 * static_cast<double>(step));
      values[i][e] = kept;
      ASSERT_NEAR(got[e], want, 0.02 * (1 + std::abs(want))) << "parameter " << i << ", element " << e;
    }
  }
}

}  // namespace
}  // namespace tessera
