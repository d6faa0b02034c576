// SPDX-License-Identifier: Apache-2.0
// Checks docs/machines.md. Every C++ block of the page is contained in this file or in own_world.cpp, where it is
// compiled and run, alone and on the ranks of a launcher.
#include <gtest/gtest.h>
#include <tessera/tessera.h>

#include <iostream>

#include "tests/support/docs_page.h"

using namespace tessera;

namespace {

const test::DocsPage& page() {
  static const test::DocsPage one("docs/machines.md");
  return one;
}

TEST(MachinesDocs, EveryBlockIsCompiled) {
  page().expect_blocks_in("tests/dist/machines_docs_test.cpp", 2);
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

}  // namespace
