// SPDX-License-Identifier: Apache-2.0
// Training on several devices in one process: split batches and placed models, for pairs of available devices.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "tessera/device/placement/placement_scope.h"
#include "tessera/nn/compile.h"
#include "tessera/nn/fit.h"
#include "tests/nn/small_network.h"
#include "tests/support/errors.h"
#include "tests/support/every_device.h"

namespace tessera {
namespace {

using test::Batch;
using test::expect_throw;
using test::values;
using test::Values;

auto network() { return setup(sequential(dense<6, 12>, relu, dense<12, 8>, Tanh{}, dense<8, 3>), {.seed = 3}); }
using Network = decltype(network());
Array loss_of(const Network& m, const Batch& b) {
  const Array y = m(std::get<0>(b));
  return cross_entropy(y, std::get<1>(b).to(y.device()));
}
Batch data(std::int64_t n, std::uint64_t seed = 5) {
  const Array x = random_uniform({n, 6}, seed, -1, 1).eval();
  return {x, argmax(x.slice(1, 0, 3), 1).astype(DType::i32).eval()};
}
double worst(const Values& a, const Values& b) {
  double out = a.size() == b.size() ? 0 : INFINITY;
  for (std::size_t i = 0; i < std::min(a.size(), b.size()); ++i)
    for (std::size_t j = 0; j < a[i].size(); ++j)
      out = std::max<double>(out, std::isnan(a[i][j]) ? INFINITY : std::abs(a[i][j] - b[i][j]));
  return out;
}

/// Returns pairs of each device and the next one. Leaves out interpreters with other vector widths.
std::vector<std::vector<Device>> sets() {
  std::vector<Device> all;
  for (const Device d : testing::all_devices())
    if (d.backend != Backend::interp || d.index == 0) all.push_back(d);
  if (all.size() == 1)
    all.push_back(all[0].backend == Backend::cpu ? Device{Backend::interp, 0} : Device{Backend::cpu, 0});
  std::vector<std::vector<Device>> out;
  for (std::size_t i = 0; i < all.size(); ++i)
    if (all.size() > 2 || i == 0) out.push_back({all[i], all[(i + 1) % all.size()]});
  if (all.size() > 2) out.push_back(all);
  return out;
}
std::string name_of(const std::vector<Device>& devices) {
  std::string out;
  for (const Device d : devices) out += std::string(backend_name(d.backend)) + std::to_string(d.index);
  return out;
}
class SeveralDevices : public ::testing::TestWithParam<std::vector<Device>> {
 protected:
  void SetUp() override { scope_.emplace(GetParam()[0]); }
  std::optional<DeviceScope> scope_;
};
INSTANTIATE_TEST_SUITE_P(Sets, SeveralDevices, ::testing::ValuesIn(sets()),
                         [](const auto& info) { return name_of(info.param); });

struct Trained {
  Values parameters;
  std::vector<float> losses;
  std::uint64_t skipped = 0;
};
Trained train(TrainerOptions options, std::vector<std::int64_t> sizes) {
  const Network model = network();
  Trainer<Network> trainer(model, Adam(model, {.lr = 1e-2}), loss_of, options);
  Trained out;
  for (std::size_t i = 0; i < sizes.size(); ++i)
    out.losses.push_back(trainer.step(data(sizes[i], 5 + i)).item<float>());
  out.skipped = trainer.skipped();
  out.parameters = values(trainer.trained());
  EXPECT_EQ(trainer.device(), options.devices.empty() ? current_device() : options.devices[0]);
  return out;
}

TEST_P(SeveralDevices, SplitBatchesMatchTheWholeBatch) {
  const std::vector<std::int64_t> sizes = {16, 16, 7, 16, 1, 2, 33};
  const auto expect_as_whole = [&](TrainerOptions options, double bound) {
    const Trained whole = train(options, sizes);
    options.devices = GetParam();
    const Trained parts = train(options, sizes), again = train(options, sizes);
    EXPECT_LT(worst(parts.parameters, whole.parameters), bound);
    for (std::size_t i = 0; i < sizes.size(); ++i) EXPECT_NEAR(parts.losses[i], whole.losses[i], bound) << i;
    EXPECT_EQ(worst(again.parameters, parts.parameters), 0) << "the same split, other bits";
    EXPECT_EQ(parts.skipped, whole.skipped);
  };
  expect_as_whole({}, 2e-5);
  expect_as_whole({.clip_norm = 0.1, .accumulate = 2}, 2e-5);
  expect_as_whole({.precision = {.dtype = DType::bf16}}, 0.05);
  expect_as_whole({.precision = {.dtype = DType::f16}}, 0.05);
}

TEST_P(SeveralDevices, StepCopiesParametersOnceAndReducesGradientsOnce) {
  const Network model = network();
  Trainer<Network> trainer(model, Sgd(model, {.lr = 0.1}), loss_of, {.devices = GetParam()});
  const Batch batch = data(12);
  for (int i = 0; i < 2; ++i) trainer.step(batch);
  const std::uint64_t parameters = (6 * 12 + 12 + 12 * 8 + 8 + 8 * 3 + 3) * 4;
  std::map<Device, std::uint64_t> bytes;
  std::map<Device, std::uint64_t> kernels;
  {
    const Placement counted;
    trainer.step(batch);
    const PlacementLog log = counted.log();
    for (const auto& c : log.copies) bytes[c.device] += c.to_device_bytes + c.from_peers_bytes;
    for (const auto& k : log.kernels) kernels[k.device] += k.launches;
  }
  for (std::size_t k = 0; k < GetParam().size(); ++k) {
    const Device d = GetParam()[k];
    EXPECT_GT(kernels[d], 0u) << to_string(d) << " did nothing";
    // Each device receives its samples, the parameters and a few numbers. The first device also receives the gradients.
    if (k > 0) {
      EXPECT_GE(bytes[d], parameters) << to_string(d);
    }
    if (k > 0) {
      EXPECT_LT(bytes[d], 2 * parameters + 12 * 7 * 4 + 256) << to_string(d);
    }
  }
  EXPECT_GE(bytes[GetParam()[0]], parameters);
  EXPECT_LT(bytes[GetParam()[0]], (GetParam().size() + 1) * parameters + 256);
}

TEST_P(SeveralDevices, FitUsesSeveralDevices) {
  const auto [x, y] = data(64);
  const auto options = [&](std::vector<Device> devices) {
    FitOptions<Network, Batch> o;
    o.loss = loss_of, o.epochs = 3, o.devices = std::move(devices);
    return o;
  };
  const auto all = [&] { return batches(x, y, {.size = 24, .shuffle = true, .seed = 2}); };
  const auto [one, result] = fit(network(), all(), options({}));
  const auto [several, other] = fit(network(), all(), options(GetParam()));
  EXPECT_LT(worst(values(several), values(one)), 2e-5);
  EXPECT_EQ(result.steps, other.steps);
}

TEST_P(SeveralDevices, NonFiniteNumberOnOneDeviceStopsAllDevices) {
  const Network model = network();
  Trainer<Network> trainer(model, Sgd(model, {.lr = 0.1}), loss_of, {.devices = GetParam()});
  trainer.step(data(8));
  const Values before = values(trainer.trained());
  Batch bad = data(8);
  std::get<0>(bad) = std::get<0>(bad).copy();
  std::get<0>(bad).slice(0, 7, 8).fill(NAN);
  trainer.step(bad);
  trainer.step(data(8, 9));
  expect_throw<NotFinite>([&] { trainer.check(); }, {"step = 2", "the batch contains"});
  EXPECT_EQ(values(trainer.trained()), before);
  trainer.step(data(8, 9));
  EXPECT_NE(values(trainer.trained()), before);
}

TEST_P(SeveralDevices, RejectsBatchesThatCannotBeSplit) {
  const Network model = network();
  const Device first = GetParam()[0];
  expect_throw<ArgumentError>(
      [&] {
        Trainer<Network>(model, Sgd(model, {.lr = 0.1}), loss_of, {.devices = {first, first}});
      },
      {"named twice", to_string(first)});
  Trainer<Network> trainer(model, Sgd(model, {.lr = 0.1}), loss_of, {.devices = GetParam()});
  expect_throw<ShapeError>(
      [&] {
        trainer.step({Array::zeros({4, 6}), Array::zeros({3}, DType::i32)});
      },
      {"(4, 6)", "(3,)"});
  EXPECT_EQ(trainer.steps(), 0u);
  trainer.step(data(4));
}

TEST_P(SeveralDevices, PlacedModelMatchesModelOnOneDevice) {
  const std::vector<Device>& all = GetParam();
  const Device a = all[0], b = all[1], c = all.back();
  // Devices of one backend use the same kernels here, unless only some multiply f32 matrices with matrix units.
  const auto uses_kernels_of_a = [&](Device d) {
    return d.backend == a.backend && device_info(d).can.matrix_f32 == device_info(a).can.matrix_f32;
  };
  const bool same = uses_kernels_of_a(b) && uses_kernels_of_a(c);
  const Network model = network();
  Network placed = model;
  placed.place({a, a, b, b, c});
  EXPECT_EQ(model.get<2>().weight.device(), a) << "models that share the arrays keep theirs";
  EXPECT_EQ(placed.get<0>().weight.device(), a);
  EXPECT_EQ(placed.get<2>().weight.device(), b);
  EXPECT_EQ(placed.get<4>().weight.device(), c);
  const auto [x, y] = data(10);
  Values results;
  std::uint64_t moves = 0;
  {
    const Placement counted;
    results = {placed(x).eval().to_vector<float>()};
    for (const auto& copy : counted.log().copies) moves += copy.to_device_count + copy.from_peers_count;
  }
  EXPECT_EQ(moves, 1u + (c != b)) << "one activation at each border, and nothing else";
  const auto near = [&](const Values& got, const Values& want) {
    if (same)
      EXPECT_EQ(got, want);
    else
      EXPECT_LT(worst(got, want), 2e-5);
  };
  near(results, {model(x).to_vector<float>()});

  // Gradients are copied back, and a trainer trains each layer on its device.
  const auto of = [&](const Network& m) {
    return value_and_grad([&](const Network& n) { return loss_of(n, {x, y}); })(m);
  };
  const auto [loss, gradient] = of(placed);
  const auto [loss_there, gradient_there] = of(model);
  near(values(gradient), values(gradient_there));
  EXPECT_EQ(gradient.get<2>().weight.device(), b);
  const auto trained = [&](const Network& m) {
    Trainer<Network> trainer(m, Adam(m, {.lr = 1e-2}), loss_of, {.clip_norm = 1.0});
    for (int i = 0; i < 4; ++i) trainer.step(data(10, 20 + static_cast<std::uint64_t>(i)));
    EXPECT_GT(trainer.mean_loss(), 0);
    return trainer.trained();
  };
  const Network after = trained(placed);
  EXPECT_TRUE(after.placed());
  EXPECT_EQ(after.get<4>().weight.device(), c);
  const Values on_several = values(after), on_one = values(trained(model));
  if (same)
    EXPECT_LT(worst(on_several, on_one), 1e-6);  // a norm sums over rows of different lengths
  else
    EXPECT_LT(worst(on_several, on_one), 5e-5);

  // The result is the same if each layer is set up on its device.
  Network by_scope = model;
  by_scope.get<4>() = to(model.get<4>(), c);
  if (c != a) {
    EXPECT_THROW(static_cast<void>(by_scope(x).eval()), DeviceError) << "nothing is copied implicitly";
  }
  by_scope.place();
  near({by_scope(x).to_vector<float>()}, {model(x).to_vector<float>()});
  // The model can be moved back to one device.
  near({to(placed, a)(x).to_vector<float>()}, {model(x).to_vector<float>()});
  expect_throw<ArgumentError>([&] { placed.place({a, b}); }, {"layers = 5", "devices = 2"});
  Network tied = model;
  tied.get<4>().bias = Parameter(tied.get<2>().bias);
  expect_throw<ArgumentError>([&] { tied.place({a, a, a, a, b}); }, {"2.bias", "4.bias"});
  EXPECT_EQ(tied.get<4>().weight.device(), a) << "nothing was moved";
}

}  // namespace
}  // namespace tessera
