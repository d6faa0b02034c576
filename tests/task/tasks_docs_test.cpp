// SPDX-License-Identifier: Apache-2.0
// Checks docs/tasks.md. Every C++ block of the page is contained in this file, where it is compiled and run. Error
// messages on the page are compared.
#include <gtest/gtest.h>
#include <tessera/tessera.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <latch>

#include "tests/support/docs_page.h"
#include "tests/support/folder.h"

using namespace tessera;

namespace {

const test::DocsPage& page() {
  static const test::DocsPage one("docs/tasks.md");
  return one;
}

/// Uses a new temporary folder as the working directory.
struct InFolder {
  InFolder() { std::filesystem::current_path(folder.path()); }
  ~InFolder() { std::filesystem::current_path(before); }
  std::filesystem::path before = std::filesystem::current_path();
  test::Folder folder;
};

TEST(TasksDocs, EveryBlockIsCompiledHere) { page().expect_blocks_in("tests/task/tasks_docs_test.cpp", 8); }

TEST(TasksDocs, EveryHeaderExampleIsCompiledHere) {
  const std::string all = test::DocsPage("tessera/tessera.h").text();
  int headers = 0;
  for (std::size_t at = 0; (at = all.find("tessera/task/", at)) != all.npos; ++at, ++headers)
    test::expect_examples_of_header(all.substr(at, all.find('"', at) - at), "tests/task/tasks_docs_test.cpp");
  EXPECT_GE(headers, 10);
}

// The following code must be identical to the code on the page.
// clang-format off

namespace first_program {
#include <tessera/tessera.h>

#include <iostream>

using namespace tessera;

int main() {
  Task<Array> squares = spawn([] { return Array::arange(10) * Array::arange(10); });
  Task<float> total = spawn([](const Array& x) { return sum(x).item<float>(); }, squares);
  std::cout << "0 + 1 + 4 + ... + 81 = " << total.fetch() << "\n";
  return 0;
}
}  // namespace first_program

TEST(TasksDocs, FirstProgramPrintsTheDocumentedOutput) {
  testing::internal::CaptureStdout();
  EXPECT_EQ(first_program::main(), 0);
  page().expect("```text\n" + testing::internal::GetCapturedStdout() + "```");
}

TEST(TasksDocs, RunsAFirstTask) {
Task<Array> squares = spawn([] { return Array::arange(1000) * Array::arange(1000); });
Task<float> total = spawn([](const Array& x) { return sum(x).item<float>(); }, squares);
float answer = total.fetch();

  EXPECT_NEAR(answer, 332833500, 100);

Task<int> broken = spawn({.name = "read the file"}, []() -> int { throw std::runtime_error("no such file"); });
Task<int> after = spawn({.name = "count words"}, [](int n) { return n + 1; }, broken);

  page().expect_error([&] { after.fetch(); });
}

TEST(TasksDocs, SelectsDevicesForTasks) {
Scope fast = can_compute(Backend::opencl) ? opencl(all) : cpu();
Task<Device> where = spawn({.scope = fast}, [] { return this_task::device(); });
auto in_force = with({.scope = fast});  // applies to tasks created while this object exists, and to their subtasks
Task<Array> x = spawn([] { return Array::ones({1000}); });  // created on that device

struct LeastWaiting : PlacementPolicy {
  Device choose(const TaskToPlace& task) override {
    const auto least = std::ranges::min_element(task.candidates, {}, &TaskToPlace::Candidate::waiting);
    return task.bytes == 0 ? least->device : task.default_device;
  }
};
Region spread({.scope = fast | cpu(), .policy = std::make_shared<LeastWaiting>()});
Task<Device> there = spread.spawn([] { return this_task::device(); });
spread.wait();

  EXPECT_TRUE(fast.contains(where.fetch()));
  EXPECT_TRUE(fast.contains(x.fetch().device()));
  EXPECT_TRUE((fast | cpu()).contains(there.fetch()));
}

TEST(TasksDocs, RunsTasksInRegions) {
std::vector<Array> parts(8);
for (Array& p : parts) p = Array::ones({1000});
Array sums = Array::zeros({1000});

Region r;
for (Array& p : parts) {
  r.spawn([](Array& v) { v *= 2; }, inout(p));                                    // these run concurrently
  r.spawn([](const Array& v, Array& s) { s += v; }, in(p), inout(sums));          // these run one after another
}
r.wait();

  EXPECT_EQ(sum(sums).item<float>(), 16000);

auto axpy = kernel("axpy", [](Buffer<const float> x, Buffer<float> y, Val<float> a) {
  auto i = global_id();
  y[i] += a * x[i];
});
Array x0 = Array::ones({1000}), y0 = Array::zeros({1000});
Region k;
for (int i = 0; i < 10; ++i) k.spawn(axpy, Extent{1000}, x0, y0, 0.5f);
k.wait();

  EXPECT_EQ(sum(y0).item<float>(), 5000);

std::vector<double> roots(1000);
Array total_of_chunks = Array::zeros({1}), numbers = Array::ones({1000});
Region loop;
Task<void> all_roots = loop.parallel_for(roots.size(), [&](std::size_t i) { roots[i] = std::sqrt(double(i)); });
loop.parallel_for({0, 1000, 100}, [](int begin, int end, const Array& v, Array& part) { part += sum(v.slice(0, begin, end)); },
                  in(numbers), reduce(Combine::sum, total_of_chunks));
loop.wait();

  EXPECT_TRUE(all_roots.ended());
  EXPECT_EQ(roots[900], 30);
  EXPECT_EQ(sum(total_of_chunks).item<float>(), 1000);

Array state = Array::zeros({4});
spawn([](Array& v) { v += 1; }, inout(state));
float first = state.to_vector<float>()[0];   // waits for the task; first is 1

Task<float> nested = spawn([](const Array& given) {
  Array own = Array::zeros({4});
  Region inner;
  for (int i = 0; i < 3; ++i) inner.spawn([](const Array& v, Array& to) { to += v; }, in(given), inout(own));
  return sum(own).item<float>();             // waits for the three subtasks
}, in(state));
float twelve = nested.fetch();

  EXPECT_EQ(twelve, 12);

  EXPECT_EQ(first, 1);
}

TEST(TasksDocs, RejectsUndeclaredAccesses) {
Array weights = Array::wrap(Storage::allocate(Device{}, 4000, "weights"), DType::f32, {1000});
weights.fill(1);
std::latch looked(1);  // keeps "prepare" running
Region racing;
racing.spawn({.name = "prepare"}, [&](Array& w) { looked.wait(); w *= 2; }, inout(weights));
Task<float> total = racing.spawn({.name = "total"}, [weights] { return sum(weights).item<float>(); });

  page().expect_error([&] { total.wait(); });
  looked.count_down();
  EXPECT_THROW(racing.wait(), TaskError);

Region checked;
checked.spawn({.name = "normalise"}, [](const Array& w) { Array(w) /= 1000; }, in(weights));

  page().expect_error([&] { checked.wait(); });
}

TEST(TasksDocs, CopiesDataBetweenDevices) {
Device other = can_compute(Backend::opencl) ? Device{Backend::opencl, 0} : Device{Backend::interp, 0};
Array data = Array::ones({1000}).copy();
data.eval();
TaskCopies before = task_copies();
Region remote({.scope = other});
for (int i = 0; i < 5; ++i) remote.spawn([](Array& v) { v += 1; }, inout(data));
remote.wait();
std::vector<float> at_home = data.to_vector<float>();
TaskCopies after_all = task_copies();         // fetched: 1 more, written_back: 1 more

  EXPECT_EQ(at_home, std::vector<float>(1000, 6));
  EXPECT_EQ(after_all.fetched - before.fetched, 1);
  EXPECT_EQ(after_all.written_back - before.written_back, 1);
}

TEST(TasksDocs, ComputesWithBlockArrays) {
Scope devices = can_compute(Backend::opencl) ? opencl(all) | cpu() : cpu();
BlockArray a = BlockArray::random_normal({300, 300}, {64, 64}, 1, devices);
BlockArray c = matmul(a, transpose(a)) + 300 * BlockArray::identity(300, {64, 64}, DType::f32, devices);
BlockArray l = cholesky(c);                       // tile by tile, on the tiles' devices
float largest = max(c - matmul(l, transpose(l))).item<float>();
Array whole = l.gather();                         // one array, on the current device

  EXPECT_LT(largest, 0.01);
  EXPECT_EQ(whole.shape(), (Shape{300, 300}));

BlockArray x = BlockArray::random_uniform({300, 300}, {64, 64}, 2, devices);
BlockArray centred = x - mean(x, {1}, true);      // the mean of each row, as for arrays
BlockArray scaled = where(centred > 0, sqrt(centred), 0) / max(x);
scaled += Array::ones({300});                     // in place

  EXPECT_NEAR(sum(centred).item<float>(), 0, 0.1);
  EXPECT_GE(min(scaled).item<float>(), 1);

BlockArray heat = BlockArray::zeros({64, 64}, {32, 32}, DType::f32, devices);
heat.assign({30, 30}, BlockArray::full({4, 4}, {4, 4}, 100));
for (int step = 0; step < 10; ++step)
  heat = stencil(heat, {.edge = Edge::clamp}, [](const Neighbours& n) {
    return n(0, 0) + 0.1 * (n(-1, 0) + n(1, 0) + n(0, -1) + n(0, 1) - 4 * n(0, 0));
  });

EXPECT_NEAR(sum(heat).item<float>(), 1600, 0.1);

Region own;
for (std::int64_t i = 0; i < heat.grid()[0]; ++i)
  own.spawn({.scope = devices}, [](Array& t) { t *= 2; }, inout(heat.tile(i, i)));
own.wait();

  EXPECT_GT(sum(heat).item<float>(), 1700);

BlockArray grid = BlockArray::ones({8, 8}, {4, 4}, DType::f32, devices);
Region of_grid;
of_grid.spawn([](BlockArray& g) { g.for_each_tile([](Array& t) { t *= 2; }); }, inout(grid));
Task<float> of_all = of_grid.spawn([](const BlockArray& g) { return sum(g).item<float>(); }, in(grid));
of_grid.wait();

  EXPECT_EQ(of_all.fetch(), 128);
}

TEST(TasksDocs, RunsTheExamplesOfHeaders) {
  {
Task<Array> a = spawn([] { return random_normal({1000, 1000}, 1); });
Task<Array> b = spawn({.scope = cpu(), .priority = 1}, [](const Array& x) { return x + 1; }, a);
float largest = max(b.fetch()).item<float>();
    EXPECT_GT(largest, 4);
  }
  std::vector<Array> x(100);
  for (Array& part : x) part = Array::ones({4}).copy();
  Array total = Array::zeros({4}).copy();
  const auto step = [](const Array& part, Array& all) { all += part; };
  {
Region r;
for (int i = 0; i < 100; ++i) r.spawn(step, in(x[i]), inout(total));   // sequential, because total is written
r.wait();
  }
  EXPECT_EQ(sum(total).item<float>(), 400);
  {
Scope gpus = can_compute(Backend::cuda) ? cuda(all) : cpu();
BlockArray a = BlockArray::random_normal({512, 512}, {128, 128}, 1, gpus);
BlockArray c = matmul(a, transpose(a)) + 512 * BlockArray::identity(512, {128, 128}, DType::f32, gpus);
cholesky_into(c);
    EXPECT_GT(min(c.slice({0, 0}, {1, 1})).item<float>(), 20);
  }
  {
    Array a = Array::ones({4, 4}).copy(), b = Array::ones({4, 4}).copy(), c = Array::zeros({4, 4}).copy();
    Region r;
matmul(r, out(c), in(a), in(b));
    r.wait();
    EXPECT_EQ(sum(c).item<float>(), 64);
  }
  if (can_compute(Backend::cuda)) {
struct MostIdle : PlacementPolicy {
  Device choose(const TaskToPlace& task) override {
    return std::ranges::min_element(task.candidates, {}, &TaskToPlace::Candidate::waiting)->device;
  }
};
Region r({.scope = cuda(all), .policy = std::make_shared<MostIdle>()});
    EXPECT_EQ(r.spawn([] { return this_task::device(); }).fetch().backend, Backend::cuda);
  }
  const InFolder folder;
  {
auto seen = trace("run.json");     // until the end of the scope, or of the program
Region r;
for (Array& part : x) r.spawn(step, in(part), inout(total));
r.wait();
std::ofstream("graph.dot") << dot(r);
std::puts(to_string(summary()).c_str());
  }
  EXPECT_GT(std::filesystem::file_size("run.json"), 1000u);
  EXPECT_GT(std::filesystem::file_size("graph.dot"), 1000u);
}

TEST(TasksDocs, RecordsTracesAndGraphs) {
  const InFolder folder;

auto seen = trace("run.json");
Array grid = Array::zeros({1000}), norm = Array::zeros({1});
Region steps;
for (int i = 0; i < 3; ++i) {
  steps.spawn({.name = "step"}, [](Array& g) { g += 1; }, inout(grid));
  steps.spawn({.name = "norm"}, [](const Array& g, Array& n) { n += sum(g); }, in(grid), inout(norm));
}
steps.wait();
std::string graph = dot(steps);           // for Graphviz: dot -Tsvg
std::string table = to_string(summary());
seen.stop();                              // or at the end of the scope, or of the program

  EXPECT_EQ(norm.item<float>(), 6000);
  EXPECT_NE(graph.find("step\\ncpu:0, ended"), graph.npos) << graph;
  EXPECT_NE(table.find("6 tasks: 6 ended"), table.npos) << table;
  EXPECT_GT(std::filesystem::file_size("run.json"), 1000u);
}

}  // namespace
