// SPDX-License-Identifier: Apache-2.0
// Checks docs/machines.md. Every C++ block of the page is contained in this file or in own_world.cpp, where it is
// compiled and run, alone and on the ranks of a launcher.
#include <gtest/gtest.h>
#include <tessera/tessera.h>
#include <unistd.h>

#include <filesystem>
#include <iostream>

#include "tessera/dist/thread_transport.h"
#include "tests/support/docs_page.h"

using namespace tessera;

namespace {

const test::DocsPage& page() {
  static const test::DocsPage one("docs/machines.md");
  return one;
}

TEST(MachinesDocs, EveryBlockIsCompiled) {
  page().expect_blocks_in("tests/dist/machines_docs_test.cpp", 6);
  page().expect_blocks_in("tests/dist/mpi/own_world.cpp", 1, "c++");
}

// The following code must be identical to the code on the page.
// clang-format off

namespace first_program {
#include <tessera/tessera.h>

#include <iostream>

using namespace tessera;

int main() {
  dist::World world;
  Array points = random_uniform({512, 2}, 7, -1, 1);
  Array inside = (sum(points * points, {1}) < 0.5).astype(DType::i32);

  auto net = setup(sequential(dense<2, 32>, relu, dense<32, 2>), {.seed = 1});
  using Net = decltype(net);
  auto loss = [](const Net& m, const auto& batch) {
    const auto& [x, y] = batch;
    return cross_entropy(m(x), y);
  };
  auto [trained, result] = fit(net, batches(points, inside, {.size = 64, .shuffle = true, .seed = 1}),
                               {.loss = loss, .optimiser = Adam(net, {.lr = 1e-2}), .epochs = 25, .ranks = &world});
  if (world.first()) {
    float right = accuracy(trained(points), inside).item<float>();
    std::cout << "more than 97 % right: " << std::boolalpha << (right > 0.97f) << "\n";
  }
  return 0;
}
}  // namespace first_program

TEST(MachinesDocs, ProgramTrainsTogether) {
  testing::internal::CaptureStdout();
  EXPECT_EQ(first_program::main(), 0);
  const std::string printed = testing::internal::GetCapturedStdout();
  EXPECT_TRUE(printed.empty() || printed == "more than 97 % right: true\n") << printed;
}

TEST(MachinesDocs, CollectivesReturnTheDocumentedResults) {
  dist::threads(3, [](dist::World& world) {
    const Array x = Array::full({2}, world.rank() + 1);
    auto net = setup(sequential(dense<2, 2>), {.seed = static_cast<std::uint64_t>(world.rank())});
Array total = dist::all_reduce(world, x);                        // sum over all ranks, on all ranks
Array largest = dist::all_reduce(world, x, dist::Reduce::max);   // also min and mean
Array on_root = dist::reduce(world, x, 0);                       // the sum on rank 0, x on the others
Array rows = dist::all_gather(world, x);                         // shape (ranks, ...)
dist::broadcast(world, net);                                     // any structure of arrays, from rank 0
world.barrier();

dist::Pending later = dist::all_reduce_async(world, x);          // returns at once
Array squares = (x * x).eval();                                  // computed while messages travel
Array sum_later = later.get();                                   // waits for the other ranks

    EXPECT_EQ(sum_later.to_vector<float>(), total.to_vector<float>());
    EXPECT_EQ(squares.to_vector<float>()[0], static_cast<float>((world.rank() + 1) * (world.rank() + 1)));
    EXPECT_EQ(total.to_vector<float>(), std::vector<float>(2, 6));
    EXPECT_EQ(largest.to_vector<float>(), std::vector<float>(2, 3));
    EXPECT_EQ(on_root.to_vector<float>(), std::vector<float>(2, world.first() ? 6 : static_cast<float>(world.rank() + 1)));
    EXPECT_EQ(rows.shape(), (Shape{3, 2}));
    const auto first = setup(sequential(dense<2, 2>), {.seed = 0});
    EXPECT_EQ(net.get<0>().weight.to_vector<float>(), first.get<0>().weight.to_vector<float>());
  });
}

TEST(MachinesDocs, BlockArraysOverRanks) {
  // The processes of a launcher run this test at the same time, and each writes a file.
  const std::filesystem::path before = std::filesystem::current_path();
  const auto folder = std::filesystem::temp_directory_path() / ("machines_docs_" + std::to_string(::getpid()));
  std::filesystem::create_directory(folder);
  std::filesystem::current_path(folder);
  const auto run = [](dist::World& world) {
BlockArray a = BlockArray::random_uniform({512, 512}, {128, 128}, 1, world.all());   // world.all(cuda): all GPUs of all ranks
BlockArray c = matmul(a, transpose(a)) + 512 * BlockArray::identity(512, {128, 128}, DType::f32, world.all());
BlockArray l = cholesky(c);
float largest = max(l).item<float>();                       // on all ranks
Array first = l.slice({0, 0}, {2, 2}).gather();             // an array on each rank

Region r;
for (std::int64_t i = 0; i < 3; ++i)
  r.spawn([](const Array& from, Array& to) { to += from; }, in(l.tile(i, 0)), inout(l.tile(i + 1, 0)));
Task<float> norm = r.spawn({.scope = world.on(world.size() - 1)},
                           [](const Array& t) { return sqrt(sum(t * t)).item<float>(); }, l.tile(3, 0));
r.wait();
float everywhere = norm.fetch();                            // from the last rank, on all ranks

std::vector<double> widths{0.5, 1, 2, 4, 8};
std::vector<double> areas = dist::map(world, widths, [](double w) { return w * w; });   // in order, on all ranks

auto seen = dist::trace(world, "ranks.json");               // on all ranks
BlockArray u = transpose(cholesky(c));
std::string table = to_string(summary());                   // of this rank: tasks, and messages by rank
seen.stop();                                                // rank 0 writes the file

    EXPECT_EQ(max(u).item<float>(), largest);
    EXPECT_NE(table.find("factor"), std::string::npos) << table;
    if (world.first()) {
      EXPECT_TRUE(std::filesystem::remove("ranks.json"));
    }
    EXPECT_EQ(areas, (std::vector<double>{0.25, 1, 4, 16, 64}));
    return std::tuple(largest, first.to_vector<float>(), everywhere);
  };
  dist::World one([] { return std::move(dist::thread_transports(1)[0]); });
  const auto expected = run(one);
  dist::threads(3, [&](dist::World& world) { EXPECT_EQ(run(world), expected); });
  std::filesystem::current_path(before);
  std::filesystem::remove_all(folder);
}

}  // namespace
