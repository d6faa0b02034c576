// SPDX-License-Identifier: Apache-2.0
// Checks docs/arrays.md and docs/devices.md. This file contains all C++ blocks of these pages; it compiles and runs
// them.
#include <gtest/gtest.h>
#include <tessera/tessera.h>

#include <cmath>
#include <complex>
#include <filesystem>
#include <functional>
#include <iostream>
#include <numbers>
#include <sstream>

#include "tests/support/docs_page.h"
#include "tests/support/folder.h"

using namespace tessera;

namespace {

/// Returns the standard output of `f`.
std::string output_of(const std::function<void()>& f) {
  testing::internal::CaptureStdout();
  f();
  return testing::internal::GetCapturedStdout();
}

TEST(ArraysDocs, AllBlocksAreCompiled) {
  test::DocsPage("docs/arrays.md").expect_blocks_in("tests/array/arrays_docs_test.cpp", 14);
}
TEST(DevicesDocs, AllBlocksAreCompiled) {
  test::DocsPage("docs/devices.md").expect_blocks_in("tests/array/arrays_docs_test.cpp", 4);
}

TEST(DevicesDocs, HeaderExamplesAreCompiled) {
  test::expect_examples_of_header("tessera/device/queue/sequence.h", "tests/array/arrays_docs_test.cpp");
}

TEST(ArraysDocs, NamesOfTheArrayApiStandardAreListed) {
  // All functions and constants of version 2025.12, except the inspection of Python modules.
  const std::string names =
      "arange asarray empty empty_like eye from_dlpack full full_like linspace meshgrid ones ones_like tril triu zeros "
      "zeros_like astype broadcast_arrays broadcast_shapes broadcast_to can_cast finfo iinfo isdtype result_type abs "
      "acos acosh add "
      "asin "
      "asinh atan atan2 atanh bitwise_and bitwise_left_shift bitwise_invert bitwise_or bitwise_right_shift bitwise_xor "
      "ceil clip conj copysign cos cosh divide equal exp expm1 floor floor_divide greater greater_equal hypot imag "
      "isfinite isinf isnan less less_equal log log1p log2 log10 logaddexp logical_and logical_not logical_or "
      "logical_xor maximum minimum multiply negative nextafter not_equal positive pow real reciprocal remainder round "
      "sign signbit sin sinh square sqrt subtract tan tanh trunc take take_along_axis matmul matrix_transpose "
      "tensordot "
      "vecdot concat expand_dims flip moveaxis permute_dims repeat reshape roll squeeze stack tile unstack argmax "
      "argmin "
      "count_nonzero nonzero searchsorted where unique_all unique_counts unique_inverse unique_values argsort sort "
      "cumulative_prod cumulative_sum max mean min prod std sum var all any diff cholesky cross det diagonal eigh "
      "eigvalsh inv matrix_norm matrix_power matrix_rank outer pinv qr slogdet solve svd svdvals trace vector_norm fft "
      "ifft fftn ifftn rfft irfft rfftn irfftn hfft ihfft fftfreq rfftfreq fftshift ifftshift eig eigvals isin e inf "
      "nan newaxis pi";
  std::string page = test::DocsPage("docs/arrays.md").text();
  page = page.substr(page.find("## Names in NumPy"));
  page.resize(page.find("\n## ", 5));
  std::istringstream words(names);
  for (std::string name; words >> name;) EXPECT_NE(page.find("`" + name + "`"), page.npos) << name;
}

// The blocks must match the pages exactly.
// clang-format off

TEST(ArraysDocs, EvaluatesExpressions) {
Array x = Array::from({1.f, 2.f, 3.f, 4.f}, Shape{2, 2});
Array y = exp(-0.5 * x * x) / sum(x, {1}, true);  // so far, only the sum has run
auto values = y.to_vector<float>();               // one kernel

  ASSERT_EQ(values.size(), 4u);
  EXPECT_NEAR(values[1], std::exp(-2.f) / 3, 1e-6);
  EXPECT_NEAR(values[2], std::exp(-4.5f) / 7, 1e-6);
}

TEST(ArraysDocs, EvaluatesSeveralArraysTogether) {
  Array p = Array::ones({3}), m = Array::zeros({3}), v = Array::zeros({3}), gradient = Array::full({3}, 2.);
Array m1 = 0.9 * m + 0.1 * gradient;
Array v1 = 0.99 * v + 0.01 * (gradient * gradient);
Array p1 = p - 0.5 * m1 / (sqrt(v1) + 1e-8);
assign_all({{p, std::move(p1)}, {m, std::move(m1)}, {v, std::move(v1)}});

  EXPECT_NEAR(m.to_vector<float>()[0], 0.2, 1e-6);
  EXPECT_NEAR(v.to_vector<float>()[1], 0.04, 1e-6);
  EXPECT_NEAR(p.to_vector<float>()[2], 0.5, 1e-5);
}

TEST(ArraysDocs, GathersScattersSortsAndSelects) {
Array table = Array::arange(6).reshape({3, 2});
Array ids = Array::from({2, 0, 2});
Array rows = take(table, ids);                        // [[4, 5], [0, 1], [4, 5]]
Array counts = scatter_add(Array::zeros({3}), ids, Array::ones({3}));       // [1, 0, 2]

  EXPECT_EQ(rows.astype(DType::i32).to_vector<int>(), (std::vector{4, 5, 0, 1, 4, 5}));
  EXPECT_EQ(counts.to_vector<float>(), (std::vector{1.f, 0.f, 2.f}));

Array grid = Array::arange(12).reshape({3, 4});
Array corner = index(grid, {Slice{1}, Slice{{}, {}, -1}});       // grid[1:, ::-1]
Array picked = index(grid, {Array::from({0, -1}), Array::from({1, 2})});  // grid[[0, -1], [1, 2]]: [1, 10]
index_assign(grid, {0, Array::from({true, false, false, true})}, 9);      // grid[0, mask] = 9
index_add(grid, {Array::from({2, 2}), 0}, 0.5);                           // np.add.at(grid, ([2, 2], 0), 0.5)

  EXPECT_EQ(corner.to_vector<float>(), (std::vector{7.f, 6.f, 5.f, 4.f, 11.f, 10.f, 9.f, 8.f}));
  EXPECT_EQ(picked.to_vector<float>(), (std::vector{1.f, 10.f}));
  EXPECT_EQ(grid.to_vector<float>(), (std::vector{9.f, 1.f, 2.f, 9.f, 4.f, 5.f, 6.f, 7.f, 9.f, 9.f, 10.f, 11.f}));

Array scores = Array::from({0.3f, 2.5f, -1.f, 2.5f});
Array order = argsort(scores);                       // [2, 0, 1, 3]
Array best = take(scores, flip(order)).slice(0, 0, 2);
Array positive = masked_select(scores, scores > 0);  // [0.3, 2.5, 2.5]

  EXPECT_EQ(order.astype(DType::i32).to_vector<int>(), (std::vector{2, 0, 1, 3}));
  EXPECT_EQ(best.to_vector<float>(), (std::vector{2.5f, 2.5f}));
  EXPECT_EQ(positive.to_vector<float>(), (std::vector{0.3f, 2.5f, 2.5f}));
}

TEST(ArraysDocs, RearrangesAndContracts) {
Array points = Array::from({0.f, 0.f, 3.f, 4.f}, Shape{2, 2});
Array between = points.unsqueeze(1) - points.unsqueeze(0);
Array squares = einsum("ijk,ijk->ij", {between, between});  // [[0, 25], [25, 0]]
Array board = tile(Array::eye(2), {2, 2});                  // 4 x 4 squares in two colours

  EXPECT_EQ(squares.to_vector<float>(), (std::vector{0.f, 25.f, 25.f, 0.f}));
  EXPECT_EQ(board.to_vector<float>(), (std::vector{1.f, 0.f, 1.f, 0.f, 0.f, 1.f, 0.f, 1.f, 1.f, 0.f, 1.f, 0.f, 0.f, 1.f, 0.f, 1.f}));
}

// Names of the other headers of the library must not clash with these.
TEST(ArraysDocs, NamesAreUnambiguous) {
  const Array line = Array::from({1.f, 2.f}), square = outer(line, line);
  for (const Array& a : {diag(square), trace(square), roll(line, 1), repeat(line, 2), tile(line, {2}), diff(line), moveaxis(square, 0, 1), swapaxes(square, 0, 1),
                         median(line), quantile(line, 0.5), nansum(line), nanmean(line), nanmax(line), nanmin(line), interpolate(line, line, line),
                         topk(line, 1).values, kron(line, line), tensordot(line, line, 1), histogram(line, 2, 0, 3).edges})
    EXPECT_GE(sum(a).item<float>(), 0);
  EXPECT_EQ(searchsorted(line, line).size(), 2);
  EXPECT_TRUE(all(isin(line, line)).item<bool>());
  EXPECT_EQ(bincount(Array::from({1, 1})).size(), 2);
  EXPECT_EQ(unique_counts(line).counts.size() + unique_inverse(line).indices.size(), 4);
  EXPECT_EQ(meshgrid({line, line}).size(), 2u);
}

TEST(ArraysDocs, SolvesSystemsAndFactorises) {
Array a = Array::from({4.f, 1.f, 1.f, 3.f}, Shape{2, 2}), b = Array::from({1.f, 2.f});
Array x = linalg::solve(a, b);                       // [0.0909, 0.6364]
auto [w, v] = linalg::eigh(a);                       // eigenvalues [2.3820, 4.6180]
auto [u, s, vh] = linalg::svd(a, false);             // a = u diag(s) vh
auto fit = linalg::lstsq(Array::ones({3, 1}), Array::from({1.f, 2.f, 6.f}));  // fit.x is [3]
Array size = linalg::vector_norm(b);                 // 2.2361

  EXPECT_NEAR(x.to_vector<float>()[0], 0.0909, 1e-4);
  EXPECT_NEAR(w.to_vector<float>()[1], 4.6180, 1e-4);
  EXPECT_LT(max(abs(matmul(u * s, vh) - a)).item<float>(), 1e-5);
  EXPECT_LT(max(abs(matmul(v * w, v.transpose()) - a)).item<float>(), 1e-5);
  EXPECT_NEAR(fit.x.item<float>(), 3, 1e-5);
  EXPECT_NEAR(size.item<float>(), 2.2361, 1e-4);
}

TEST(ArraysDocs, TransformsASignal) {
Array t = Array::arange(1000, 0, 0.001);                            // 1000 samples per second
Array signal = sin(2 * std::numbers::pi * 50 * t) + 0.5;
Complex spectrum = fft::rfft(signal);                               // 501 frequencies
Array frequencies = fft::rfftfreq(1000, 0.001);                     // 0, 1, ..., 500 Hz
Array loudest = argmax(abs(spectrum).slice(0, 1, 501)) + 1;         // 50
Array filtered = fft::irfft(spectrum * (frequencies < 10));         // 0.5 everywhere
auto z = Complex::from(std::vector<std::complex<float>>{{0, 1}, {2, 0}});
auto back = (z * z).to_vector<std::complex<float>>();               // -1, 4

  EXPECT_EQ(loudest.item<std::int64_t>(), 50);
  EXPECT_LT(max(abs(filtered - 0.5)).item<float>(), 1e-4);
  EXPECT_EQ(back, (std::vector<std::complex<float>>{{-1, 0}, {4, 0}}));
}

TEST(ArraysDocs, DrawsRandomNumbers) {
  Array x = Array::arange(6).reshape({3, 2});
Array dice = random_integers({1000}, 7, 1, 7);
Array rows = take(x, random_permutation(x.shape(0), 8));     // shuffled
Array colours = random_choice(3, {10}, 9, true, {0.5, 0.3, 0.2});
Array waits = random_gamma({2, 3}, 10, 2.5, 0.1);

  EXPECT_EQ(min(dice).item<std::int64_t>(), 1);
  EXPECT_EQ(max(dice).item<std::int64_t>(), 6);
  EXPECT_EQ(sum(rows).item<float>(), 15);
  EXPECT_LE(max(colours).item<std::int64_t>(), 2);
  EXPECT_GT(min(waits).item<float>(), 0);
}

TEST(ArraysDocs, FactorisesAMatrixInPlace) {
  // [4 2; 2 10] in tiles of one element: its factor is [2 0; 1 3].
  Array a11 = Array::full({1, 1}, 4.), a21 = Array::full({1, 1}, 2.), a22 = Array::full({1, 1}, 10.);
Array failure = Array::zeros({1}, DType::i32);                              // one for all tiles
cholesky_into(a11, failure);                                                // a11 = l11
solve_triangular_into(a11, a21, {.side = Side::right, .transposed = true});  // a21 = a21 l11^-T
multiply_into(a22, a21, a21.transpose(), {.alpha = -1, .lower = true});
cholesky_into(a22, failure, a11.shape(0));                                  // rows of the matrix above this tile
check_cholesky(failure);                                                    // the only call that blocks the host

  EXPECT_FLOAT_EQ(a11.item<float>(), 2);
  EXPECT_FLOAT_EQ(a21.item<float>(), 1);
  EXPECT_FLOAT_EQ(a22.item<float>(), 3);
}

TEST(ArraysDocs, MultipliesSparseMatrices) {
sparse::Coo entries(Array::from({4.f, 1.f, 1.f, 3.f, 2.f}), Array::from({0, 0, 1, 1, 2}),  // values, rows,
                    Array::from({0, 1, 0, 1, 2}), {3, 3});                                // columns, shape
sparse::Csr a = to_csr(entries);                             // sorted; entries at the same place are added
Array y = matmul(a, Array::from({1.f, 2.f, 3.f}));           // [6, 7, 6]
Array z = matmul(transpose(a) / 2, Array::ones({3, 16}));    // (3, 16)
sparse::Csr same(a.values, a.columns, a.offsets, {3, 3});    // from the parts of SciPy's csr_array
check_indices(same);                                         // throws if an index is invalid

  EXPECT_EQ(y.to_vector<float>(), (std::vector<float>{6, 7, 6}));
  EXPECT_EQ(z.shape(), (Shape{3, 16}));
  EXPECT_EQ(z.select(1, 3).to_vector<float>(), (std::vector<float>{2.5, 2, 1}));
}

struct Linear { Array weight, bias; };
struct Model { std::vector<Linear> layers; std::map<std::string, Array> extra; };

Model small_model() { return {{{Array::ones({8, 4}), Array::zeros({4})}}, {{"a.b", Array::ones({2})}}}; }

TEST(ArraysDocs, SavesAndLoadsStructures) {
  Model model = small_model();
  testing::internal::CaptureStdout();
for_each_array(model, [](const Array& a, const Path& path) { std::cout << path.text() << " " << a.bytes() << "\n"; });
Model halves = map_arrays(model, [](const Array& a) { return a.astype(DType::f16); });

  const std::string printed = testing::internal::GetCapturedStdout();
  EXPECT_EQ(printed, "layers.0.weight 128\nlayers.0.bias 16\nextra[\"a.b\"] 8\n");
  EXPECT_EQ(halves.layers[0].weight.dtype(), DType::f16);

  // The files in the page's examples are in the working directory.
  const test::Folder folder;
  const std::filesystem::path before = std::filesystem::current_path();
  std::filesystem::current_path(folder.path());
  {
save_arrays(model, "model.safetensors", {{"step", "1200"}});
load_arrays(model, "model.safetensors");  // into existing arrays
SafetensorsFile file = SafetensorsFile::open("model.safetensors");
Array weight = file.load("layers.0.weight");

    EXPECT_EQ(weight.to_vector<float>(), std::vector<float>(32, 1));
  }
  {
save_npz("weights.npz", {{"w", Array::ones({2, 3})}, {"b", Array::zeros({3})}});
std::map<std::string, Array> arrays = load_npz("weights.npz");
save_npy(Array::arange(1'000'000).reshape({1000, 1000}), "large.npy");
NpyFile large = NpyFile::open("large.npy");
Array rows = large.load({10, 0}, {5, 1000});  // rows 10 to 14
Array mapped = large.map();

    EXPECT_EQ(arrays.at("w").shape(), (Shape{2, 3}));
    EXPECT_EQ(rows.shape(), (Shape{5, 1000}));
    EXPECT_EQ(mapped.slice(0, 10, 15).to_vector<float>(), rows.to_vector<float>());
  }
  std::filesystem::current_path(before);
}

TEST(ArraysDocs, HostAccessModifiesElements) {
  const DeviceScope scope(Device{Backend::interp});
Array x = Array::zeros({4});
{
  HostAccess access = x.host_access();
  for (float& v : access.as<float>()) v = 3;
}
float third = x.host_view().as<float>()[2];  // 3
  EXPECT_EQ(third, 3);
  EXPECT_EQ(x.to_vector<float>(), std::vector<float>(4, 3));
}

TEST(ArraysDocs, ObserversPrintOperations) {
  Array x = Array::ones({3});
  EXPECT_EQ(output_of([&] {
struct Names : ArrayObserver {
  void made(const ArrayOperation& op) override {
    std::cout << op.name << " of " << op.operands.size() << (op.in_place ? ", in place\n" : "\n");
  }
} names;
{
  const ObserverScope looking(&names);  // on this thread, until the end of the scope
  Array y = sum(silu(x) * 2.0);         // silu of 1, * of 2, sum of 1
  y += 1.0;                             // += of 2, in place
}
  }), "silu of 1\n* of 2\nsum of 1\n+= of 2, in place\n");
}

auto scale = kernel("scale", [](Buffer<float> y, Val<float> by) { y[global_id()] *= by; });

TEST(DevicesDocs, QueueAndSequenceExamplesWork) {
  const Device device{};
  const DeviceScope on(device);
  Array x = Array::ones({4}), y = Array::zeros({4});
  {
Queue mine(device);
const QueueScope with(mine);  // this thread's work on the device uses this queue
y += x;
Event here = mine.record();   // here.done(), here.wait(); other.wait(here) makes another queue wait for it
  }
  Queue& queue = Queue::of(device);
  const Scope scope = tessera::cpu();
  {
synchronize();                   // all devices and all tasks that belong to no region
synchronize(Backend::cuda);      // all devices of one backend
synchronize(scope);              // all devices of a Scope
Queue::of(device).finish();      // all work in one queue
Event here = queue.record();     // a point in a queue
if (!here.done()) here.wait();   // waits for the work up to that point, not for later work
  }
  const std::size_t n = 4;
  const std::vector<Array> batches = {Array::full({4}, 2.), Array::full({4}, 3.)};
Sequence step = Sequence::record(queue, [&] { y += x, scale.launch(n, y, 2.f); });   // runs once, and is recorded
for (const Array& next : batches) x.assign(next), step.replay();                     // runs again

  EXPECT_EQ(y.to_vector<float>(), std::vector<float>(4, ((1 + 1) * 2 + 2) * 2 * 2 + 3 * 2));
Sequence scaled = Sequence::record(queue, [&] { scale.launch(n, y, slot(0, 2.f)); });
scaled.set(0, LaunchArgument::scalar(3.f)), scaled.replay();

  EXPECT_EQ(y.to_vector<float>(), std::vector<float>(4, 30 * 6));
  {
  Sequence step = Sequence::record(queue, [&] { y += x, scale.launch(n, y, 2.f); });
  step.replay();
  }
  EXPECT_EQ(y.to_vector<float>(), std::vector<float>(4, ((180 + 3) * 2 + 3) * 2));
}

}  // namespace
