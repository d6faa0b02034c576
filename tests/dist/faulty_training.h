// SPDX-License-Identifier: Apache-2.0
// The training that faulty_ranks disturbs and rank_faults_test repeats without a fault.
#pragma once

#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "tessera/array/safetensors.h"
#include "tessera/dist/world.h"
#include "tessera/nn/fit.h"
#include "tessera/nn/losses.h"
#include "tessera/nn/sequential.h"

namespace tessera::test {

constexpr std::uint64_t training_steps = 12, fault_step = 6;  // the fault happens after this step

using TrainingBatch = std::tuple<Array, Array>;
inline auto faulty_network(std::int64_t hidden = 256) {
  return setup(sequential(Dense{64, hidden}, relu, Dense{hidden, 8}), {.seed = 3});
}
using FaultyNetwork = decltype(faulty_network());

/// What differs from a training without faults.
struct Disturbance {
  std::uint64_t steps = training_steps;
  bool resume = false;
  Callback<void(std::uint64_t step)> after_step = {};
  Callback<void()> validation = {};
};

/// Trains on all ranks, with a validation every three steps and a checkpoint after each step.
inline void train_with_faults(dist::World& world, const std::string& checkpoint, const Disturbance& disturbance) {
  const Array x = random_uniform({120, 64}, 5, -1, 1).eval();
  const Array y = argmax(x.slice(1, 0, 8), 1).astype(DType::i32).eval();
  FitOptions<FaultyNetwork, TrainingBatch> o;
  o.loss = [](const FaultyNetwork& m, const TrainingBatch& b) {
    return cross_entropy(m(std::get<0>(b)), std::get<1>(b));
  };
  o.validation = [&](const FaultyNetwork&) {
    if (disturbance.validation) disturbance.validation();
    return Figures{{"loss", 1.0}};
  };
  o.callbacks.step = [&](std::uint64_t step) {
    if (disturbance.after_step) disturbance.after_step(step);
    return true;
  };
  o.steps = disturbance.steps, o.validate_every = 3, o.checkpoint = checkpoint, o.checkpoint_every = 1;
  o.resume = disturbance.resume, o.ranks = &world;
  fit(faulty_network(), batches(x, y, {.size = 12, .shuffle = true, .seed = 2}), o);
}

/// Returns the arrays of a checkpoint. Throws if the file is damaged.
inline std::map<std::string, std::vector<std::byte>> checkpoint_arrays(const std::string& path) {
  const SafetensorsFile file = SafetensorsFile::open(path);
  std::map<std::string, std::vector<std::byte>> out;
  for (const SafetensorsTensor& t : file.tensors()) out[t.name] = file.data(t);
  return out;
}

}  // namespace tessera::test
