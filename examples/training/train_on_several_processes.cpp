// SPDX-License-Identifier: Apache-2.0
// How do I train on several processes or machines?
// usage: mpirun -n 2 example_train_on_several_processes. Without mpirun, the program trains alone.
#include <tessera/tessera.h>

#include <cstdio>

using namespace tessera;

int main() {
  dist::World world;  // the processes that mpirun or srun started
  // Every process has the whole data set and computes its part of each batch.
  const Array x = random_uniform({512, 16}, 3, -1, 1).eval();
  const Array y = argmax(x.slice(1, 0, 4), 1).astype(DType::i32).eval();
  const auto net = setup(sequential(dense<16, 64>, relu, dense<64, 4>), {.seed = 1});
  using Net = std::remove_const_t<decltype(net)>;
  const auto loss = [](const Net& m, const auto& batch) {
    return cross_entropy(m(std::get<0>(batch)), std::get<1>(batch));
  };
  const auto data = batches(x, y, {.size = 64, .shuffle = true, .seed = 2});
  const auto [trained, result] =
      fit(net, data, {.loss = loss, .optimiser = Adam(net, {.lr = 1e-2}), .epochs = 10, .ranks = &world});

  // A collective: the number of samples that each process gets right, added up.
  const std::int64_t part = 512 / world.size(), begin = world.rank() * part;
  const Array right =
      (argmax(trained(x.slice(0, begin, begin + part)), 1).astype(DType::i32) == y.slice(0, begin, begin + part));
  const auto total = all_reduce(world, sum(right.astype(DType::i64))).item<std::int64_t>();
  if (world.first())  // only one process prints and writes files
    std::printf("%d process%s: %lld of %lld samples are right\n", world.size(), world.size() == 1 ? "" : "es",
                static_cast<long long>(total), static_cast<long long>(part * world.size()));
  return total > 460 ? 0 : 1;
}

// Output:
// 1 process: 5... of 512 samples are right
