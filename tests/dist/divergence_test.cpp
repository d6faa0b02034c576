// SPDX-License-Identifier: Apache-2.0
// Programs in which one rank makes another call than the others, ends, fails or does not answer.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <thread>

#include "tessera/dist/thread_transport.h"
#include "tests/dist/worlds.h"
#include "tests/support/errors.h"

namespace tessera {
namespace {

using dist::Reduce;
using dist::World;

/// A call of a collective, and the line at which it is made.
struct Statement {
  unsigned line;
  void (*run)(World&);
};
#define STATEMENT(call)                                  \
  Statement {                                            \
    __LINE__, +[](World& w) { static_cast<void>(call); } \
  }

const Statement statements[] = {
    STATEMENT(w.barrier()),
    STATEMENT(all_reduce(w, Array::zeros({3}))),
    STATEMENT(all_reduce(w, Array::zeros({4}))),
    STATEMENT(all_reduce(w, Array::zeros({3}), Reduce::max)),
    STATEMENT(all_reduce(w, Array::zeros({3}, DType::i32))),
    STATEMENT(all_reduce(w, Array::zeros({9000}))),
    STATEMENT(reduce(w, Array::zeros({3}), 0)),
    STATEMENT(reduce(w, Array::zeros({3}), 1)),
    STATEMENT(all_gather(w, Array::zeros({3}))),
    STATEMENT(reduce_scatter(w, Array::zeros({3}))),
    STATEMENT(all_reduce_async(w, Array::zeros({5})).get()),
    STATEMENT(dist::broadcast(w, Array::zeros({3}), 0)),
    STATEMENT(dist::broadcast(w, Array::zeros({3}), 2)),
};

/// Runs `program` on three ranks and returns what each of them threw.
std::vector<std::string> errors_of(const Callback<void(World&)>& program) {
  std::vector<std::string> errors(3);
  dist::threads(3, [&](World& world) {
    try {
      program(world);
    } catch (const ConnectionError& e) {
      errors[static_cast<std::size_t>(world.rank())] = e.what();
    }
  });
  return errors;
}

TEST(Divergence, EachDifferentCallIsDetectedWithBothPlaces) {
  int programs = 0;
  for (const Statement& ours : statements)
    for (const Statement& theirs : statements) {
      if (&ours == &theirs) continue;
      ++programs;
      const int differs = programs % 3;
      const auto begun = std::chrono::steady_clock::now();
      const std::vector<std::string> errors = errors_of([&](World& world) {
        world.barrier();
        (world.rank() == differs ? theirs : ours).run(world);
        world.barrier();
      });
      for (const std::string& error : errors)
        for (const unsigned line : {ours.line, theirs.line})
          EXPECT_NE(error.find("divergence_test.cpp:" + std::to_string(line)), std::string::npos)
              << "lines " << ours.line << " and " << theirs.line << ": " << error;
      EXPECT_LT(std::chrono::steady_clock::now() - begun, std::chrono::seconds(5));
    }
  EXPECT_EQ(programs, 156);
}

/// No rank sends a message here, because each waits for one of another root.
TEST(Divergence, RanksThatWaitForEachOtherInDifferentCallsAreFound) {
  const std::vector<std::string> errors = errors_of([&](World& world) {
    world.barrier();
    dist::broadcast(world, Array::zeros({3}), (world.rank() + 1) % 3);
  });
  for (const std::string& error : errors)
    EXPECT_NE(error.find("ranks made different calls"), std::string::npos) << error;
}

TEST(Divergence, CallThatOnlyOneRankMakesIsDetected) {
  for (int differs = 0; differs < 3; ++differs) {
    const std::vector<std::string> errors = errors_of([&](World& world) {
      if (world.rank() == differs) all_reduce(world, Array::zeros({3}));
      world.barrier();
    });
    for (const std::string& error : errors)
      EXPECT_NE(error.find("all_reduce (sum) of 3 f32"), std::string::npos) << error;
  }
}

TEST(Divergence, RankThatEndsEarlyIsReported) {
  for (int ends = 0; ends < 3; ++ends) {
    const std::vector<std::string> errors = errors_of([&](World& world) {
      world.barrier();
      if (world.rank() != ends) all_reduce(world, Array::zeros({3}));
    });
    for (int rank = 0; rank < 3; ++rank) {
      const std::string& error = errors[static_cast<std::size_t>(rank)];
      if (rank == ends) continue;
      EXPECT_NE(error.find("rank " + std::to_string(ends) + " has ended after"), std::string::npos) << error;
    }
  }
}

TEST(Divergence, ExceptionOnOneRankEndsTheOthers) {
  for (const bool in_flight : {false, true}) {
    std::atomic<int> others = 0;
    const auto program = [&](World& world) {
      world.barrier();
      if (world.rank() == 0 && in_flight) all_reduce_async(world, Array::zeros({3}));
      if (world.rank() == 0) throw std::runtime_error("the program's own error");
      try {
        std::this_thread::sleep_for(std::chrono::milliseconds(50));
        all_reduce(world, Array::zeros({3}));
      } catch (const ConnectionError& e) {
        test::expect_contains(e.what(), {"rank 0", "an exception left the scope of its World, after barrier"});
        ++others;
      }
    };
    EXPECT_THROW(dist::threads(3, program), std::runtime_error);
    EXPECT_EQ(others, 2);
  }
}

TEST(Divergence, AnErrorIsReportedAgain) {
  const std::vector<std::string> errors = errors_of([&](World& world) {
    for (int i = 0; i < 2; ++i) {
      try {
        all_reduce(world, Array::zeros({world.rank() == 0 ? 2 : 3}));
        ADD_FAILURE() << "no error";
      } catch (const MismatchError&) {}
    }
    world.barrier();
  });
  for (const std::string& error : errors) EXPECT_NE(error.find("different calls"), std::string::npos) << error;
}

/// A rank whose messages stop, like those of a machine that was disconnected.
class Disconnected final : public dist::Transport {
 public:
  Disconnected(std::unique_ptr<Transport> inner, const std::atomic<bool>& cut) : inner_(std::move(inner)), cut_(cut) {}
  int rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }
  std::string name() const override { return inner_->name(); }
  bool any_thread() const override { return true; }
  void send(dist::Transfer& t, int to, int tag, std::span<const std::byte> message) override {
    if (cut_)
      t = {.active = true, .peer = to};
    else
      inner_->send(t, to, tag, message);
  }
  void receive(dist::Transfer& t, int from, int tag, std::span<std::byte> room) override {
    inner_->receive(t, from, tag, room);
  }
  bool test(dist::Transfer& t) override { return (!t.active || t.handle != 0 || !cut_) && inner_->test(t); }
  void cancel(dist::Transfer& t) override { inner_->cancel(t); }
  void abort(int code) override { inner_->abort(code); }
  void close(bool) override {}

 private:
  std::unique_ptr<Transport> inner_;
  const std::atomic<bool>& cut_;
};

TEST(Divergence, RankThatDoesNotAnswerEndsTheJob) {
  ::setenv("TESSERA_RANKS_TIMEOUT", "2", 1);
  auto transports = dist::thread_transports(3);
  std::atomic<bool> cut = false;
  std::atomic<int> ended = 0;
  std::vector<std::thread> ranks;
  const auto begun = std::chrono::steady_clock::now();
  for (std::size_t k = 0; k < 3; ++k)
    ranks.emplace_back([&, k] {
      try {
        World world([&]() -> std::unique_ptr<dist::Transport> {
          if (k != 2) return std::move(transports[k]);
          return std::make_unique<Disconnected>(std::move(transports[k]), cut);
        });
        world.barrier();
        if (k == 2) cut = true;
        world.barrier();
      } catch (const ConnectionError& e) {
        ++ended;
        if (k != 2 && std::string(e.what()).find("another rank") == std::string::npos) {
          EXPECT_NE(std::string(e.what()).find("rank 2 has not answered"), std::string::npos) << e.what();
        }
      }
    });
  for (std::thread& t : ranks) t.join();
  EXPECT_EQ(ended, 3);
  EXPECT_LT(std::chrono::steady_clock::now() - begun, std::chrono::seconds(10));
  ::unsetenv("TESSERA_RANKS_TIMEOUT");
}

TEST(Divergence, RankThatComputesForLongEndsNothing) {
  ::setenv("TESSERA_RANKS_TIMEOUT", "1", 1);
  dist::threads(3, [](World& world) {
    world.barrier();
    if (world.first()) std::this_thread::sleep_for(std::chrono::seconds(3));  // its communicator answers
    world.barrier();
  });
  ::unsetenv("TESSERA_RANKS_TIMEOUT");
}

}  // namespace
}  // namespace tessera
