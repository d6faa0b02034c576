// SPDX-License-Identifier: Apache-2.0
// Training on several ranks, compared with one process that computes the parts of each batch one after another and adds
// their gradients in the tree.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <barrier>
#include <cmath>
#include <thread>

#include "tessera/nn/clip.h"
#include "tessera/nn/evaluate.h"
#include "tessera/nn/fit.h"
#include "tests/dist/worlds.h"
#include "tests/nn/small_network.h"
#include "tests/support/errors.h"
#include "tests/support/folder.h"

namespace tessera {
namespace {

using dist::World;
using test::Batch;
using test::expect_throw;
using test::loss_of;
using test::network;
using test::Network;
using test::on_ranks;
using test::rank_counts;
using test::Values;
using test::values;

/// BatchNorm needs two samples on each rank.
const std::vector<std::int64_t> sizes = {16, 16, 9, 16, 8, 33, 16, 16, 16, 16};

Batch data(std::int64_t n, std::uint64_t seed) {
  const Array x = random_uniform({n, 6}, seed, -1, 1).eval();
  return {x, argmax(x.slice(1, 0, 3), 1).astype(DType::i32).eval()};
}

struct Trained {
  Values parameters;
  std::vector<float> losses;
  std::uint64_t replays = 0;
};

Trained train(Exchange& ranks, TrainerOptions options, std::size_t steps) {
  const Network model = network();
  options.ranks = &ranks, options.seed = 7;
  Trainer<Network> trainer(model, Adam(model, {.lr = 1e-2}), loss_of, options);
  Trained out;
  for (std::size_t i = 0; i < steps; ++i)
    out.losses.push_back(trainer.step(data(sizes[i % sizes.size()], 5 + i)).item<float>());
  trainer.share_state();
  out.parameters = values(trainer.trained());
  out.replays = trainer.replays();
  return out;
}

/// Ranks that are threads, with an implementation of its own: all data are in one memory, and sums are computed by
/// recursion.
class SharedMemory {
 public:
  explicit SharedMemory(int n) : size_(n), turns_(n), rows_(static_cast<std::size_t>(n)) {}
  class Rank final : public Exchange {
   public:
    Rank(SharedMemory& all, int rank) : all_(all), rank_(rank) {}
    int rank() const override { return rank_; }
    int size() const override { return all_.size_; }
    void start_sum(std::uint64_t, const Array& array) override { started_.push_back(array); }
    void sum_step(std::uint64_t, std::span<const Array> rows, StepFlags&) override {
      sum(std::exchange(started_, {}));
      sum(rows);
    }
    void sum(std::span<const Array> arrays) override {
      for (const Array& a : arrays) {
        mine() = a.to_vector<float>();
        all_.turns_.arrive_and_wait();
        std::vector<float> sum = all_.tree_sum(0, std::bit_ceil(all_.rows_.size()));
        all_.turns_.arrive_and_wait();
        Array(a).assign(Array::from(std::span<const float>(sum), a.shape()));
      }
    }
    void broadcast(std::span<const Array>, const std::string&) override {}  // models are equal here
    std::string broadcast(const std::string& text, int) override { return text; }
    std::vector<std::uint64_t> gather(std::uint64_t number) override {
      return std::vector<std::uint64_t>(all_.rows_.size(), number);
    }

   private:
    std::vector<float>& mine() { return all_.rows_[static_cast<std::size_t>(rank_)]; }
    SharedMemory& all_;
    int rank_;
    std::vector<Array> started_;
  };

 private:
  std::vector<float> tree_sum(std::size_t begin, std::size_t width) const {
    if (width == 1) return rows_[begin];
    std::vector<float> left = tree_sum(begin, width / 2);
    if (begin + width / 2 >= rows_.size()) return left;
    const std::vector<float> right = tree_sum(begin + width / 2, width / 2);
    for (std::size_t i = 0; i < left.size(); ++i) left[i] += right[i];
    return left;
  }
  const int size_;
  std::barrier<> turns_;
  std::vector<std::vector<float>> rows_;
};

/// Trains n parts in this process. Returns the result of the first one, which has the model's state.
Trained train_by_parts(int n, const TrainerOptions& options, std::size_t steps) {
  SharedMemory all(n);
  std::vector<Trained> out(static_cast<std::size_t>(n));
  std::vector<std::thread> threads;
  for (int k = 0; k < n; ++k)
    threads.emplace_back([&, k] {
      const DeviceScope scope(test::device_of(k));
      SharedMemory::Rank rank(all, k);
      out[static_cast<std::size_t>(k)] = train(rank, options, steps);
    });
  for (std::thread& t : threads) t.join();
  return out[0];
}

/// Processes of a launcher often have to share few cores.
bool launched() { return test::launched_world != nullptr; }

const std::vector<std::pair<const char*, TrainerOptions>> cases = {
    {"plain", {}},
    {"buckets", {.clip_norm = 0.3, .bucket_bytes = 64}},
    {"direct buckets", {.recorded = false, .bucket_bytes = 128}},
    {"clipped", {.clip_norm = 0.3}},
    {"accumulated", {.accumulate = 3}},
    {"direct", {.recorded = false}},
    {"bf16", {.clip_norm = 0.3, .precision = {.dtype = DType::bf16}, .bucket_bytes = 100}},
    {"f16", {.precision = {.dtype = DType::f16}}}};

TEST(RanksTraining, StepsMatchPartsInOneProcessBitForBit) {
  for (const int n : rank_counts())
    for (const auto& [name, options] : cases) {
      if (launched() && !options.recorded) continue;
      SCOPED_TRACE(std::string(name) + " on " + std::to_string(n));
      TrainerOptions parts = options;
      parts.bucket_bytes = 0;
      const Trained want = train_by_parts(n, parts, 24);
      on_ranks(n, [&](World& world) {
        const Trained got = train(world, options, 24);
        EXPECT_EQ(got.parameters, want.parameters);
        EXPECT_EQ(got.losses, want.losses);
        EXPECT_EQ(got.replays > 0, options.recorded) << "steps are recorded, with the exchange between their pieces";
      });
    }
}

/// Counts the calls of training.
class Counted final : public Exchange {
 public:
  explicit Counted(Exchange& ranks) : ranks_(ranks) {}
  int rank() const override { return ranks_.rank(); }
  int size() const override { return ranks_.size(); }
  void start_sum(std::uint64_t step, const Array& array) override {
    ++started, elements += array.size();
    if (started == fails_at) throw OutOfMemory("in a bucket");
    ranks_.start_sum(step, array);
  }
  void sum_step(std::uint64_t step, std::span<const Array> rows, StepFlags& flags) override {
    rows_after = rows.size();
    if (std::exchange(fails_once, false)) throw OutOfMemory("in the exchange");
    ranks_.sum_step(step, rows, flags);
  }
  void sum(std::span<const Array> arrays) override { ranks_.sum(arrays); }
  void broadcast(std::span<const Array> arrays, const std::string& what) override { ranks_.broadcast(arrays, what); }
  std::string broadcast(const std::string& text, int root) override { return ranks_.broadcast(text, root); }
  std::vector<std::uint64_t> gather(std::uint64_t number) override { return ranks_.gather(number); }

  std::size_t started = 0, rows_after = 0, fails_at = 0;
  bool fails_once = false;
  std::int64_t elements = 0;

 private:
  Exchange& ranks_;
};

TEST(RanksTraining, BucketsAreSentFromTheLastLayerToTheFirst) {
  for (const int n : rank_counts())
    for (const bool recorded : {true, false})
      on_ranks(n, [&](World& world) {
        if (n == 1) return;
        const auto model = setup(sequential(dense<6, 8>, relu, dense<8, 4>, relu, dense<4, 3>), {.seed = 3});
        using Model = std::remove_const_t<decltype(model)>;
        const auto loss = [](const Model& m, const Batch& b) {
          return cross_entropy(m(std::get<0>(b)), std::get<1>(b));
        };
        Counted ranks(world);
        // Weights and biases of 48, 8, 32, 4, 12 and 3 elements: the last three, 8 and 32, and the first one.
        Trainer<Model> trainer(model, Sgd(model), loss,
                               {.recorded = recorded, .ranks = &ranks, .bucket_bytes = 48 * 4});
        for (std::uint64_t step = 1; step <= 6; ++step) {
          ranks.started = 0, ranks.elements = 0;
          trainer.step(data(16, step));
          EXPECT_EQ(ranks.rows_after, step == 1 ? 2u : 1u) << "the gradient and the loss, or the loss";
          EXPECT_EQ(ranks.started, step == 1 ? 0u : 3u) << step;
          EXPECT_EQ(ranks.elements, step == 1 ? 0 : 56 + 36 + 15) << step;
        }
        EXPECT_EQ(trainer.replays() > 0, recorded);
      });
}

TEST(RanksTraining, FirstStepCanBeRepeatedByOneRank) {
  for (const std::size_t bytes : {std::size_t{0}, std::size_t{64}})
    on_ranks(rank_counts().back(), [&](World& world) {
      const Network model = network();
      Counted ranks(world);
      ranks.fails_once = world.rank() == 0;
      Trainer<Network> trainer(model, Sgd(model), loss_of, {.recorded = false, .ranks = &ranks, .bucket_bytes = bytes});
      if (world.rank() == 0) {
        EXPECT_THROW(trainer.step(data(16, 1)), OutOfMemory);
      }
      for (int i = 0; i < 3; ++i) trainer.step(data(16, 1));
      EXPECT_EQ(ranks.started > 0, bytes > 0);
    });
}

TEST(RanksTraining, SmallGradientsOfSeveralGroupsAreSentTogether) {
  on_ranks(rank_counts().back(), [&](World& world) {
    const Network model = network();
    Counted ranks(world);
    Trainer<Network> trainer(model, AdamW(model, {.groups = {{.pattern = "*bias", .weight_decay = 0.0}}}), loss_of,
                             {.ranks = &ranks});
    for (int i = 0; i < 3; ++i) trainer.step(data(16, 1));
    EXPECT_EQ(ranks.started, 0u);
    EXPECT_EQ(ranks.rows_after, 3u);
  });
}

TEST(RanksTraining, StepsAreRefusedAfterAFailureBetweenBuckets) {
  if (launched()) GTEST_SKIP() << "the other ranks of the job would be ended";
  std::atomic<int> others = 0;
  dist::threads(2, [&](World& world) {
    const auto model = setup(sequential(dense<6, 8>, relu, dense<8, 3>), {.seed = 3});
    using Model = std::remove_const_t<decltype(model)>;
    const auto loss = [](const Model& m, const Batch& b) { return cross_entropy(m(std::get<0>(b)), std::get<1>(b)); };
    Counted ranks(world);
    Trainer<Model> trainer(model, Sgd(model), loss, {.recorded = false, .ranks = &ranks, .bucket_bytes = 64});
    trainer.step(data(16, 1));
    ranks.fails_at = world.rank() == 0 ? 2 : 0;
    try {
      trainer.step(data(16, 2));
    } catch (const OutOfMemory&) {
      EXPECT_EQ(world.rank(), 0);
      expect_throw<Error>([&] { trainer.step(data(16, 3)); }, {"a part of its gradient", "checkpoint"});
    } catch (const ConnectionError& e) {
      EXPECT_EQ(world.rank(), 1) << e.what();
      ++others;
    }
  });
  EXPECT_EQ(others, 1) << "the end of the first rank ends the other";
}

/// One step, compared with the gradient of the whole batch.
TEST(RanksTraining, RanksComputeTheGradientOfTheWholeBatch) {
  const auto model = setup(sequential(dense<6, 12>, relu, dense<12, 3>), {.seed = 3});
  using Model = std::remove_const_t<decltype(model)>;
  const auto loss = [](const Model& m, const Batch& b) { return cross_entropy(m(std::get<0>(b)), std::get<1>(b)); };
  const std::size_t steps = launched() ? 20 : 200;
  const auto run = [&](Exchange* ranks) {
    Trainer<Model> trainer(model, Sgd(model, {.lr = 0.1}), loss, {.ranks = ranks});
    std::vector<float> losses;
    for (std::size_t i = 0; i < steps; ++i) losses.push_back(trainer.step(data(33, 5 + i % 9)).item<float>());
    return std::pair(losses, values(trainer.trained()));
  };
  const auto [losses, want] = run(nullptr);
  for (const int n : rank_counts())
    on_ranks(n, [&](World& world) {
      const auto [mine, got] = run(&world);
      test::expect_near(got, want, 1e-5);
      test::expect_near({mine}, {losses}, 1e-5);
    });
}

TEST(RanksTraining, RanksWithoutSamplesAddZeros) {
  const auto model = setup(sequential(dense<6, 3>), {.seed = 3});
  using Model = std::remove_const_t<decltype(model)>;
  const auto loss = [](const Model& m, const Batch& b) { return cross_entropy(m(std::get<0>(b)), std::get<1>(b)); };
  const auto run = [&](Exchange* ranks) {
    Trainer<Model> trainer(model, Sgd(model, {.lr = 0.5}), loss, {.accumulate = 2, .ranks = ranks});
    for (const std::int64_t size : {1, 2, 1, 7, 3, 1, 1, 1, 1, 1, 1, 1}) trainer.step(data(size, 1));
    return values(trainer.trained());
  };
  const Values want = run(nullptr);
  for (const int n : rank_counts()) on_ranks(n, [&](World& world) { test::expect_near(run(&world), want, 1e-6); });
}

TEST(RanksTraining, NotFiniteOnOneRankStopsAll) {
  for (const int n : rank_counts())
    for (const bool recorded : {true, false})
      on_ranks(n, [&](World& world) {
        const Network model = network();
        Trainer<Network> trainer(model, Sgd(model, {.lr = 0.1}), loss_of, {.recorded = recorded, .ranks = &world});
        for (int i = 0; i < 4; ++i) trainer.step(data(8, 1));
        const Values before = values(trainer.trained());
        Batch bad = data(8, 2);
        std::get<0>(bad) = std::get<0>(bad).copy();
        std::get<0>(bad).slice(0, 7, 8).fill(NAN);  // the last rank's sample
        trainer.step(bad);
        trainer.step(data(8, 3));
        expect_throw<NotFinite>(
            [&] { trainer.check(); },
            {"step = 5", n == 1 ? "the batch" : "on rank " + std::to_string(n - 1) + ": the batch"});
        EXPECT_EQ(values(trainer.trained()), before);
        trainer.step(data(8, 3));
        EXPECT_NE(values(trainer.trained()), before);
      });
}

/// Trains for `steps` steps, from a checkpoint if `resume` is set. Returns the model's values.
template <class Model>
Values fit_on(World& world, const Model& model, std::uint64_t steps, const std::string& checkpoint, bool resume) {
  const auto [x, y] = data(56, 3);
  FitOptions<Model, Batch> o;
  o.loss = [](const Model& m, const Batch& b) { return cross_entropy(m(std::get<0>(b)), std::get<1>(b)); };
  o.steps = steps, o.checkpoint = checkpoint, o.resume = resume, o.ranks = &world;
  const auto [trained, result] = fit(model, batches(x, y, {.size = 12, .shuffle = true, .seed = 2}), o);
  EXPECT_EQ(result.steps, steps);
  return values(trained);
}

TEST(RanksTraining, CheckpointsResumeOnAnyNumberOfRanks) {
  if (test::launched_world != nullptr) GTEST_SKIP() << "needs several numbers of ranks";
  const test::Folder folder;
  const std::string file = (folder.path() / "c.safetensors").string();
  const auto run = [&](const auto& model, int others) {
    Values whole;
    dist::threads(4, [&](World& world) {
      const Values mine = fit_on(world, model, 60, "", false);
      if (world.first()) whole = mine;
      world.barrier();
      EXPECT_EQ(mine, whole) << "all ranks return the same model";
      fit_on(world, model, 30, file, false);
    });
    for (int n = 4; n > 4 - others; --n) {
      std::filesystem::copy_file(file, file + "2", std::filesystem::copy_options::overwrite_existing);
      dist::threads(n, [&](World& world) {
        const Values resumed = fit_on(world, model, 60, file + "2", true);
        if (n == 4) {
          EXPECT_EQ(resumed, whole);
        }
        test::expect_near(resumed, whole, 1e-5);
      });
    }
  };
  run(network(), 1);  // other parts draw other numbers in Dropout
  run(setup(sequential(dense<6, 12>, relu, dense<12, 3>), {.seed = 3}), 4);
}

TEST(RanksTraining, EachSampleIsSeenOncePerEpoch) {
  for (const int n : rank_counts())
    on_ranks(n, [&](World& world) {
      const Array ids = Array::arange(50).astype(DType::f32).reshape({50, 1});
      auto model = setup(sequential(dense<1, 1>), {.seed = 1});
      FitOptions<decltype(model), std::tuple<Array>> o;
      std::vector<std::uint64_t> seen(50);
      o.loss = [&](const auto& m, const auto& batch) {
        for (const float id : std::get<0>(batch).reshape({-1}).template to_vector<float>())
          ++seen[static_cast<std::size_t>(id)];
        return mean(m(std::get<0>(batch)));
      };
      o.epochs = 2, o.trainer.recorded = false, o.ranks = &world;
      fit(model, batches(ids, {.size = 12, .shuffle = true, .seed = 4}), o);
      std::uint64_t mine = 0;
      for (const std::uint64_t count : seen) mine += count;
      EXPECT_LE(mine, 2 * (50 / static_cast<std::uint64_t>(n) + 5)) << "a rank reads only its part";
      std::vector<std::int64_t> counts(seen.begin(), seen.end());
      const Array all = all_reduce(world, Array::from(std::span<const std::int64_t>(counts)));
      EXPECT_EQ(all.to_vector<std::int64_t>(), std::vector<std::int64_t>(50, 2));
    });
}

TEST(RanksTraining, FitStopsOnAllRanksTogether) {
  for (const int n : rank_counts())
    on_ranks(n, [&](World& world) {
      const auto [x, y] = data(56, 3);
      FitOptions<Network, Batch> o;
      o.loss = loss_of, o.epochs = 50, o.ranks = &world;
      o.callbacks.step = [&](std::uint64_t step) { return world.rank() != world.size() - 1 || step < 6; };
      const FitResult stopped = fit(network(), batches(x, y, {.size = 12}), o).result;
      EXPECT_EQ(stopped.end, FitResult::End::stopped);
      EXPECT_EQ(stopped.steps, n == 1 ? 6u : 7u);
      o.callbacks.step = {};
      int validations = 0;
      o.validation = [&](const Network&) {  // differs between ranks: the first rank's figures count
        return Figures{{"loss", world.first() && validations++ > 1 ? 2.0 : 1.0 - world.rank()}};
      };
      o.early_stopping = EarlyStopping{.patience = 3};
      const FitResult early = fit(network(), batches(x, y, {.size = 12}), o).result;
      EXPECT_EQ(early.end, FitResult::End::early);
      EXPECT_EQ(world.gather(early.steps), std::vector<std::uint64_t>(static_cast<std::size_t>(n), early.steps));
    });
}

TEST(RanksTraining, EvaluateDividesBatchesAmongRanks) {
  const Network model = network();
  const Batch all = data(100, 3);
  const auto figures = [&](Exchange* ranks, std::atomic<std::size_t>& computed) {
    const auto loss = [&](const Network& m, const auto& batch) {
      ++computed;
      return loss_of(m, batch);
    };
    const auto list = batches(std::get<0>(all), std::get<1>(all), {.size = 16});
    return evaluate(model, list,
                    {{"loss", loss}, {"negative", [&](const Network& m, const auto& b) { return -loss(m, b); }}},
                    {.ranks = ranks});
  };
  std::atomic<std::size_t> alone = 0;
  const Figures expected = figures(nullptr, alone);
  EXPECT_EQ(alone, 14u);
  for (const int n : rank_counts())
    on_ranks(n, [&](World& world) {
      std::atomic<std::size_t> computed = 0;
      const Figures got = figures(&world, computed);
      EXPECT_NEAR(static_cast<double>(computed), 14.0 / n, 2) << world.rank();
      ASSERT_EQ(got.size(), expected.size());
      for (std::size_t i = 0; i < got.size(); ++i) {
        EXPECT_EQ(got[i].first, expected[i].first);
        EXPECT_NEAR(got[i].second, expected[i].second, 1e-12);
      }
      // A metric that throws on one rank ends the evaluation of all.
      const auto fails = [&](const Network& m, const auto& batch) {
        if (world.rank() == n - 1) throw ShapeError("a metric");
        return loss_of(m, batch);
      };
      test::expect_throw<Error>(
          [&] {
            evaluate(model, batches(std::get<0>(all), std::get<1>(all), {.size = 8}), {{"loss", fails}},
                     {.ranks = &world});
          },
          {"a metric"});
    });
}

TEST(RanksTraining, OnlyTheFirstRankWritesFiles) {
  const test::Folder folder;
  for (const int n : rank_counts())
    on_ranks(n, [&](World& world) {
      const std::filesystem::path mine = folder.path() / std::to_string(n) / std::to_string(world.rank());
      std::filesystem::create_directories(mine);
      const auto [x, y] = data(56, 3);
      FitOptions<Network, Batch> o;
      o.loss = loss_of, o.epochs = 2, o.ranks = &world;
      o.csv = (mine / "a.csv").string(), o.checkpoint = (mine / "a.safetensors").string();
      fit(network(), batches(x, y, {.size = 12}), o);
      EXPECT_EQ(std::filesystem::exists(o.csv), world.first());
      EXPECT_EQ(std::filesystem::exists(o.checkpoint), world.first());
    });
}

TEST(RanksTraining, FailedCheckpointIsReportedOnAllRanks) {
  for (const int n : rank_counts())
    on_ranks(n, [&](World& world) {
      const Network model = network();
      Trainer<Network> trainer(model, Sgd(model), loss_of, {.ranks = &world});
      trainer.step(data(8, 1));
      expect_throw<Error>([&] { trainer.save("/proc/none/file"); }, {"/proc/none/file"});
      expect_throw<Error>([&] { trainer.load("/proc/none/file"); }, {"/proc/none/file"});
      trainer.step(data(8, 2));  // the ranks can continue
    });
}

TEST(RanksTraining, ParametersAreComparedRegularly) {
  for (const int n : rank_counts()) {
    if (n == 1 || launched()) continue;
    dist::threads(n, [&](World& world) {
      const auto model = setup(sequential(dense<6, 3>), {.seed = 3});
      using Model = std::remove_const_t<decltype(model)>;
      const auto loss = [](const Model& m, const Batch& b) { return cross_entropy(m(std::get<0>(b)), std::get<1>(b)); };
      Trainer<Model> trainer(model, Sgd(model, {.lr = 1e-3}), loss, {.ranks = &world});
      const Batch batch = data(8, 1);
      for (int i = 0; i < 1999; ++i) {
        trainer.step(batch);
        if (i == 1500 && world.rank() == n - 1) Array(trainer.model().template get<0>().bias).fill(1);
      }
      expect_throw<ArgumentError>([&] { trainer.step(batch); },
                                  {"parameters of rank " + std::to_string(n - 1), "step = 2000"});
    });
  }
}

TEST(RanksTraining, OptimisersThatDifferAreReported) {
  for (const int n : rank_counts()) {
    if (n == 1 || launched()) continue;
    dist::threads(n, [&](World& world) {
      const auto [x, y] = data(56, 3);
      FitOptions<Network, Batch> o;
      o.loss = loss_of, o.ranks = &world, o.steps = 8;
      o.optimiser = Sgd(network(), {.lr = world.rank() == n - 1 ? 0.1 : 0.2});
      expect_throw<ArgumentError>([&] { fit(network(), batches(x, y, {.size = 12}), o); },
                                  {"parameters of rank " + std::to_string(n - 1), "optimiser settings"});
    });
  }
}

TEST(RanksTraining, ModelsThatDifferAreReported) {
  for (const int n : rank_counts()) {
    if (n == 1 || test::launched_world != nullptr) continue;
    std::atomic<int> thrown = 0;
    dist::threads(n, [&](World& world) {
      auto model = setup(sequential(Dense{6, world.rank() == n - 1 ? 5 : 4}), {.seed = 1});
      const auto loss = [](const auto& m, const auto& batch) { return mean(m(std::get<0>(batch))); };
      try {
        Trainer trainer(model, Sgd(model), loss, {.ranks = &world});
      } catch (const MismatchError& e) {
        EXPECT_NE(std::string(e.what()).find("rank " + std::to_string(n - 1)), std::string::npos) << e.what();
        EXPECT_NE(std::string(e.what()).find("(5, 6)"), std::string::npos) << e.what();
        ++thrown;
      }
    });
    EXPECT_EQ(thrown, n);
  }
}

}  // namespace
}  // namespace tessera
