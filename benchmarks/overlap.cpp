// SPDX-License-Identifier: Apache-2.0
// Measures how much of the exchange of gradients is hidden by the backward pass: steps of a network of 7 layers with
// buckets, with one exchange after the backward pass, and without an exchange, in alternation. Messages arrive late, as
// on a network of 100 MB/s whose transfers need no processor time.
//
//   TESSERA_THREADS=1 script/cluster 2 --bind build/release/benchmarks/overlap [SAMPLES [MB/S]]
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "benchmarks/median.h"
#include "tessera/dist/launcher.h"
#include "tessera/dist/mpi_transport.h"
#include "tessera/dist/transport.h"
#include "tessera/dist/world.h"
#include "tessera/nn/losses.h"
#include "tessera/nn/sequential.h"
#include "tessera/nn/trainer.h"

namespace tessera {
namespace {

/// Delays long messages as a network of a given rate does.
class Delayed final : public dist::Transport {
 public:
  Delayed(std::unique_ptr<Transport> transport, double bytes_per_second)
      : transport_(std::move(transport)), rate_(bytes_per_second) {}
  int rank() const override { return transport_->rank(); }
  int size() const override { return transport_->size(); }
  std::string name() const override { return transport_->name(); }
  bool any_thread() const override { return transport_->any_thread(); }
  void send(dist::Transfer& t, int to, int tag, std::span<const std::byte> message) override {
    transport_->send(t, to, tag, message);
  }
  void receive(dist::Transfer& t, int from, int tag, std::span<std::byte> room) override {
    transport_->receive(t, from, tag, room);
    if (from != any_rank && room.size() > least) arrivals_[&t] = 0;
  }
  bool test(dist::Transfer& t) override {
    if (!transport_->test(t)) return false;
    const auto late = arrivals_.find(&t);
    if (late == arrivals_.end()) return true;
    if (late->second == 0) late->second = free_ = std::max(now(), free_) + static_cast<double>(t.bytes) / rate_;
    if (now() < late->second) return false;
    arrivals_.erase(late);
    return true;
  }
  void cancel(dist::Transfer& t) override { transport_->cancel(t); }
  void abort(int code) override { transport_->abort(code); }
  void close(bool regular) override { transport_->close(regular); }

 private:
  static constexpr std::size_t least = 65536;  ///< shorter messages are not delayed
  const std::unique_ptr<Transport> transport_;
  const double rate_;
  double free_ = 0;                                   ///< when the network can begin with the next message
  std::map<const dist::Transfer*, double> arrivals_;  ///< of received messages; 0: not sent yet
};

int run(std::int64_t samples, double megabytes) {
  constexpr std::int64_t width = 512, warm_up = 4, steps = 41;
  const std::optional<dist::Launch> launch = dist::find_launch();
  if (!launch) {
    fmt::print(stderr, "error: start it with script/cluster 2 (see the source)\n");
    return 2;
  }
  dist::World world([&] { return std::make_unique<Delayed>(dist::open_mpi(*launch), megabytes * 1e6); });
  const auto model = setup(
      sequential(dense<width, width>, relu, dense<width, width>, relu, dense<width, width>, relu, dense<width, width>,
                 relu, dense<width, width>, relu, dense<width, width>, relu, dense<width, width>),
      {.seed = 1});
  using Model = std::remove_const_t<decltype(model)>;
  using Batch = std::tuple<Array, Array>;
  const auto loss = [](const Model& m, const Batch& b) { return mse_loss(m(std::get<0>(b)), std::get<1>(b)); };
  const auto batch_of = [&](std::int64_t n) {
    return Batch(random_uniform({n, width}, 1, -1, 1).eval(), random_uniform({n, width}, 2, -1, 1).eval());
  };
  const Batch whole = batch_of(samples * world.size()), part = batch_of(samples);
  struct Way {
    const char* name;
    std::unique_ptr<Trainer<Model>> trainer;
    const Batch& batch;
    std::vector<double> seconds = {};
  };
  const auto trainer = [&](Exchange* ranks, std::size_t bytes) {
    return std::make_unique<Trainer<Model>>(model, Sgd(model, {.lr = 1e-3}), loss,
                                            TrainerOptions{.ranks = ranks, .bucket_bytes = bytes});
  };
  std::vector<Way> ways;
  ways.push_back({"no exchange", trainer(nullptr, 0), part});
  ways.push_back({"exchange afterwards", trainer(&world, 0), whole});
  ways.push_back(
      {"exchange of a layer at a time, during the backward pass", trainer(&world, width * width * 4), whole});
  for (std::int64_t i = -warm_up; i < steps; ++i)
    for (Way& way : ways) {
      world.barrier();
      const double begin = now();
      static_cast<void>(way.trainer->step(way.batch).item<float>());
      world.barrier();
      if (i >= 0) way.seconds.push_back(now() - begin);
    }
  if (!world.first()) return 0;
  fmt::print("{} ranks, {}; {} samples per rank, 7 layers of {} x {}; medians of {} steps\n", world.size(),
             world.name(), samples, width, width, steps);
  for (const Way& way : ways) {
    const auto [least, most] = std::ranges::minmax(way.seconds);
    fmt::print("{:6.1f} ms ({:.1f} to {:.1f})  {}\n", median(way.seconds) * 1e3, least * 1e3, most * 1e3, way.name);
  }
  const double alone = median(ways[0].seconds), after = median(ways[1].seconds), during = median(ways[2].seconds);
  fmt::print("exchange {:.1f} ms, of which {:.0f} % are hidden\n", (after - alone) * 1e3,
             100 * (after - during) / (after - alone));
  return 0;
}

}  // namespace
}  // namespace tessera

int main(int count, char** arguments) {
  try {
    return tessera::run(count > 1 ? std::atoll(arguments[1]) : 1024, count > 2 ? std::atof(arguments[2]) : 100);
  } catch (const tessera::Error& e) {
    fmt::print(stderr, "error: {}\n", e.what());
    return 1;
  }
}
