// SPDX-License-Identifier: Apache-2.0
// A job in which one rank fails, started by rank_faults_test. usage: faulty_ranks FAULT RANK FOLDER MICROSECONDS. The
// fault happens on rank RANK, if it is a kill after so many microseconds. Just before, its time is written to
// FOLDER/fault. Errors are printed with the rank, and the exit code is then 3.
#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <stdexcept>
#include <thread>
#include <utility>

#include "tessera/task/block_array.h"
#include "tests/dist/faulty_training.h"

namespace {

using namespace tessera;
using dist::Reduce;
using dist::World;
using std::chrono::microseconds;
using std::chrono::steady_clock;

struct Return {};  ///< leaves the training without an error

struct Job {
  World& world;
  std::string fault;
  bool is_faulty;
  std::filesystem::path folder;
  microseconds delay;

  bool is(const char* name) const { return fault == name; }
  bool starts(const char* name) const { return is(name) && (mark(), true); }
  std::string checkpoint() const { return (folder / "checkpoint.safetensors").string(); }

  void mark() const {
    const std::string file = (folder / "fault").string();
    std::FILE* const out = std::fopen((file + "2").c_str(), "w");
    std::fprintf(out, "%lld %d\n", static_cast<long long>(steady_clock::now().time_since_epoch() / microseconds(1)),
                 static_cast<int>(::getpid()));
    std::fclose(out);
    std::filesystem::rename(file + "2", file);
  }
  /// Kills this process at a moment of the work that follows.
  void kill_later() const {
    std::thread([this] {
      std::this_thread::sleep_for(delay);
      mark();
      std::raise(SIGKILL);
    }).detach();
  }
  /// Kills this process while a checkpoint is written.
  void kill_in_checkpoint() const {
    std::thread([this] {
      for (;;)  // the new contents are written to a temporary file
        for (const auto& entry : std::filesystem::directory_iterator(folder)) {
          if (entry.path().filename() == "checkpoint.safetensors") continue;
          std::this_thread::sleep_for(delay);
          mark();
          std::raise(SIGKILL);
        }
    }).detach();
  }

  /// One of the calls below differs on the faulty rank. Arrays are long, so that their data are messages of their own.
  void diverge() const {
    const auto array = [](std::int64_t n, DType dtype = DType::f32) { return Array::zeros({n}, dtype); };
    const auto on_faulty = [&](auto there, auto here) { return is_faulty ? there : here; };
    if (is_faulty) mark();
    if (is("collective") && is_faulty) all_gather(world, array(90'000));
    if (is("size")) all_reduce(world, array(on_faulty(80'000, 90'000)));
    if (is("dtype")) all_reduce(world, array(90'000, on_faulty(DType::i32, DType::f32)));
    if (is("operation")) all_reduce(world, array(90'000), on_faulty(Reduce::max, Reduce::sum));
    if (is("root")) reduce(world, array(90'000), on_faulty(2, 0));
    if (is("broadcast root")) dist::broadcast(world, array(90'000), on_faulty(2, 0));
    if (is("short size")) all_reduce(world, array(on_faulty(3'000, 6'000)));  // parts are sent in several pieces
    all_reduce(world, array(90'000));
  }

  void after_step(std::uint64_t step) const {
    if (is("step less") && is_faulty && step == test::training_steps - 1) mark();
    if (step != test::fault_step) return;
    if (is("kill")) {
      if (is_faulty) kill_later();
      for (const Array x = Array::zeros({1 << 20});;) all_reduce(world, x);
    }
    if (!is_faulty) return;
    if (is("checkpoint")) return kill_in_checkpoint();
    if (starts("throw") || starts("uncaught")) throw std::runtime_error("the program's own error");
    if (starts("return")) throw Return();
    if (starts("exit")) std::exit(0);
    if (starts("stop")) std::raise(SIGSTOP);
    if (starts("link") && std::system("ip link set eth0 down") != 0)
      throw std::runtime_error("the interface is still up");
  }

  /// Regions of tasks over all ranks, one of which fails in round 3.
  void run_regions() const {
    const BlockArray a = BlockArray::random_uniform({64, 64}, {8, 8}, 1, world.all());
    std::atomic<bool> failed = false;
    for (int round = 0; round < 1'000'000; ++round) {
      const bool now = is_faulty && round == 3;
      if (now && is("region kill")) kill_later();
      if (now && starts("region stop")) std::raise(SIGSTOP);
      Region r;
      for (std::int64_t i = 0; i < 64; ++i) {
        const Tile from = a.tile(i % 8, i / 8), to = a.tile((i + 3) % 8, (i + 5) / 8 % 8);
        const auto task = [this, now, &failed](const Array& x, Array& y) {
          if (now && is("region task") && !failed.exchange(true)) {
            mark();
            throw std::runtime_error("the task's own error");
          }
          y.assign(x * 0.5 + y * 0.5);
        };
        if (now && i == 20 && starts("region left")) throw std::runtime_error("the program's own error");
        if (now && i == 20 && starts("region differs"))
          r.spawn({.name = "update"}, task, in(to), inout(from));
        else
          r.spawn({.name = "update"}, task, in(from), inout(to));
      }
      r.wait();
    }
  }

  void run() const {
    if (fault.starts_with("region")) return run_regions();
    if (is("shape")) {
      auto model = test::faulty_network(is_faulty ? 128 : 256);
      if (is_faulty) mark();
      const auto loss = [](const auto& m, const auto& b) { return mean(m(std::get<0>(b))); };
      Trainer<test::FaultyNetwork, test::TrainingBatch>(model, Sgd(model), loss, {.ranks = &world});
    }
    test::Disturbance d;
    d.after_step = [this](std::uint64_t step) { after_step(step); };
    d.validation = [this] {
      if (is_faulty && starts("validation")) std::raise(SIGKILL);
      static bool waited = false;
      if (is("long validation") && is_faulty && !std::exchange(waited, true)) std::this_thread::sleep_for(delay);
    };
    if (is("step less") && is_faulty) d.steps = test::training_steps - 1;
    try {
      test::train_with_faults(world, checkpoint(), d);
    } catch (const Return&) {
      return;
    }
    if (is("checkpoint") && is_faulty) {  // on occupied cores, the thread may have missed all checkpoints
      mark();
      std::raise(SIGKILL);
    }
    if (is("collective") || is("size") || is("dtype") || is("operation") || is("root") || is("broadcast root") ||
        is("short size"))
      diverge();
  }
};

}  // namespace

int main(int count, char** arguments) {
  if (count != 5) return 2;
  int rank = -1;
  const auto run = [&] {
    World world;
    rank = world.rank();
    Job{world, arguments[1], rank == std::atoi(arguments[2]), arguments[3], microseconds(std::atoi(arguments[4]))}
        .run();
  };
  if (std::string(arguments[1]) == "uncaught") return run(), 0;
  try {
    run();
  } catch (const std::exception& e) {
    std::fprintf(stderr, "[%d] %s\n", rank, e.what());
    return 3;
  }
}
