// SPDX-License-Identifier: Apache-2.0
// docs/tasks.md, kept true: every C++ block of it stands in this file, is compiled and run here, and the errors that it
// shows are compared.
#include <gtest/gtest.h>
#include <tessera/tessera.h>

#include "tests/support/docs_page.h"

using namespace tessera;

namespace {

const test::DocsPage& page() {
  static const test::DocsPage one("docs/tasks.md");
  return one;
}

TEST(TasksDocs, EveryBlockIsCompiledHere) { page().expect_blocks_in("tests/tasks_docs_test.cpp", 8); }

// What follows stands on the page as it stands here.
// clang-format off

TEST(TasksDocs, AFirstTask) {
Task<Array> squares = spawn([] { return Array::arange(1000) * Array::arange(1000); });
Task<float> total = spawn([](const Array& x) { return sum(x).item<float>(); }, squares);
float answer = total.fetch();

  EXPECT_NEAR(answer, 332833500, 100);

Task<int> broken = spawn({.name = "read the file"}, []() -> int { throw std::runtime_error("no such file"); });
Task<int> after = spawn({.name = "count words"}, [](int n) { return n + 1; }, broken);

  page().expect_error([&] { after.fetch(); });
}

TEST(TasksDocs, WhereATaskRuns) {
Scope fast = can_compute(Backend::opencl) ? opencl(all) : cpu();
Task<Device> where = spawn({.scope = fast}, [] { return this_task::device(); });
auto in_force = with({.scope = fast});                        // for all tasks made while it lives, and those they make
Task<Array> x = spawn([] { return Array::ones({1000}); });    // made on that device

  EXPECT_TRUE(fast.contains(where.fetch()));
  EXPECT_TRUE(fast.contains(x.fetch().device()));
}

TEST(TasksDocs, Regions) {
std::vector<Array> parts(8);
for (Array& p : parts) p = Array::ones({1000});
Array sums = Array::zeros({1000});

Region r;
for (Array& p : parts) {
  r.spawn([](Array& v) { v *= 2; }, inout(p));                                    // these run at once,
  r.spawn([](const Array& v, Array& s) { s += v; }, in(p), inout(sums));          // these in turn
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

Array state = Array::zeros({4});
spawn([](Array& v) { v += 1; }, inout(state));
float first = state.to_vector<float>()[0];   // waits: 1

  EXPECT_EQ(first, 1);
}

TEST(TasksDocs, WhatATaskDoesNotSay) {
Array weights = Array::wrap(Storage::allocate(Device{}, 4000, "weights"), DType::f32, {1000});
weights.fill(1);
Region checked;
checked.spawn({.name = "normalise"}, [](const Array& w) { Array(w) /= 1000; }, in(weights));

  page().expect_error([&] { checked.wait(); });
}

TEST(TasksDocs, DataOnSeveralDevices) {
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

}  // namespace
