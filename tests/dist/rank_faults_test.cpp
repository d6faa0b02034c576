// SPDX-License-Identifier: Apache-2.0
// Jobs in which a rank fails, started with the launchers of Open MPI and MPICH. ctest has one entry per implementation,
// which is skipped if it is not installed. Jobs on network namespaces are left out without root. With
// TESSERA_TEST_LONG=1, each fault is repeated 100 times on this machine and on three namespaces.
// TESSERA_TEST_FAULTS=text selects the faults whose names start with this text.
#include <gtest/gtest.h>

#include <random>
#include <regex>
#include <sstream>

#include "tests/dist/cluster_job.h"
#include "tests/dist/faulty_training.h"

namespace tessera {
namespace {

using test::ClusterJob;
using test::Outcome;
using test::seconds_since_boot;
using test::TemporaryFolder;

/// What happens in a job, and how it must end.
struct Fault {
  const char* name;                                        ///< for faulty_ranks
  std::vector<const char*> texts;                          ///< regular expressions for the output
  int rank = 1;                                            ///< the faulty rank
  int timeout = 60;                                        ///< TESSERA_RANKS_TIMEOUT
  double limit = 5;                                        ///< all ranks end within so many seconds after the fault
  std::vector<std::uint64_t> states = {test::fault_step};  ///< steps of the checkpoint; empty: there is none
  bool succeeds = false;
  int least_delay = 0, most_delay = 1000;  ///< of the fault, in microseconds

  bool is(const char* other) const { return std::string_view(name) == other; }
};

// Launchers end a job when a process of it is killed. On one machine, ranks notice it before Open MPI's mpirun ends
// them; Hydra is faster.
constexpr const char* killed =
    R"(the process of rank \d has ended; rank \d waited for it in )"
    R"((training step|all_reduce|agree|broadcast|a region, for tiles|the end of a region|the end of the job))"
    R"(|process rank \d with PID \d+ on node|PID \d+ RUNNING AT .*)";
constexpr const char* ended = R"(\[training step 7 .*rank 1 has ended after 19 collectives)";
constexpr const char* silent = R"(rank [02]: rank 1 has not answered for [3-5] s, in training step 7)";
const std::vector<std::uint64_t> complete = {test::training_steps};

const std::vector<Fault> faults = {
    {.name = "stop", .texts = {silent}, .timeout = 3, .limit = 8},
    {.name = "pause", .texts = {}, .timeout = 12, .limit = 30, .states = complete, .succeeds = true},
    {.name = "long validation",
     // On occupied cores, the first answer may come after the first report.
     .texts = {R"(rank [12] has waited for .* rank 0: (computes, after training step 3|no answer))"},
     .rank = 0,
     .timeout = 2,
     .limit = 60,
     .states = complete,
     .succeeds = true,
     .least_delay = 3'500'000,
     .most_delay = 3'500'001},
    {.name = "throw",
     .texts = {R"(rank 1: an exception left the scope of its World.*training step 6)",
               R"(\[1\] the program's own error)"}},
    {.name = "uncaught", .texts = {"the program's own error", killed}},
    {.name = "kill", .texts = {killed}, .most_delay = 200'000},
    {.name = "validation", .texts = {killed}, .states = {2, 3}},
    {.name = "checkpoint", .texts = {killed}, .rank = 0, .states = {6, 7, 8, 9, 10, 11, 12}},
    {.name = "exit", .texts = {ended}},
    {.name = "return", .texts = {ended}},
    {.name = "step less", .texts = {"of rank 1 is agree", "of rank [02] is training step 12"}, .states = {11}},
    {.name = "collective",
     .texts = {R"(of rank 1 is all_gather of 90000 f32 at .*faulty_ranks.cpp:\d+)",
               R"(of rank [02] is all_reduce \(sum\) of 90000 f32 at .*faulty_ranks.cpp:\d+)"},
     .states = complete},
    {.name = "size",
     .texts = {R"(of rank 1 is all_reduce \(sum\) of 80000 f32 at .*faulty_ranks.cpp:\d+)",
               R"(of rank [02] is all_reduce \(sum\) of 90000 f32 at .*faulty_ranks.cpp:\d+)"},
     .states = complete},
    {.name = "short size",
     .texts = {R"(of rank 1 is all_reduce \(sum\) of 3000 f32)", R"(of rank [02] is all_reduce \(sum\) of 6000 f32)"},
     .states = complete},
    {.name = "dtype",
     .texts = {R"(of rank 1 is all_reduce \(sum\) of 90000 i32)", R"(of rank [02] is all_reduce \(sum\) of 90000 f32)"},
     .states = complete},
    {.name = "operation",
     .texts = {R"(of rank 1 is all_reduce \(max\))", R"(of rank [02] is all_reduce \(sum\))"},
     .states = complete},
    {.name = "root",
     .texts = {R"(of rank 1 is reduce \(sum\) to rank 2)", R"(of rank [02] is reduce \(sum\) to rank 0)"},
     .states = complete},
    {.name = "broadcast root",
     .texts = {R"(of rank 1 is broadcast from rank 2 .*faulty_ranks.cpp:\d+)",
               R"(of rank [02] is broadcast from rank 0 .*faulty_ranks.cpp:\d+)"},
     .states = complete},
    {.name = "shape",
     .texts = {R"(arrays of rank 1 are not those of rank 0: \(128, 64\) f32 instead of \(256, 64\))"},
     .states = {}},
    {.name = "region task", .texts = {R"(\[[0-2]\] rank 1: \[task update\] the task's own error)"}, .states = {}},
    {.name = "region left",
     .texts =
         // Hydra may kill rank 1 before. The end of rank 1 may arrive first. Hydra may also kill the other ranks before
         // they print their exceptions, which they have reported as warnings then.
     {R"(\[[02]\] rank 1(: the region was left by an exception after task 20)"
      R"(| failed: an exception left the scope of its World, after the end of a region))"
      R"(|warning: rank [02]: an exception left the scope of its World, after the end of a region)"},
     .states = {}},
    {.name = "region differs",
     .texts = {R"(ranks submitted different tasks: .*faulty_ranks.cpp:\d+.*faulty_ranks.cpp:\d+)"},
     .states = {}},
    {.name = "region kill", .texts = {killed}, .states = {}, .most_delay = 50'000},
    {.name = "region stop",
     .texts = {R"(rank [02]: rank 1 has not answered for [3-5] s, in (a region, for tiles|the end of a region))"},
     .timeout = 3,
     .limit = 8,
     .states = {}},
};
const Fault link_down = {.name = "link", .texts = {silent}, .timeout = 3, .limit = 8};

/// The arrays of the checkpoints of the same training without faults, by step. Computed by threads of this process.
using States = std::map<std::uint64_t, std::map<std::string, std::vector<std::byte>>>;
States train_without_faults() {
  const TemporaryFolder folder;
  const std::string file = folder / "c.safetensors";
  States states;
  dist::threads(test::job_ranks, [&](dist::World& world) {
    test::train_with_faults(world, file, {.after_step = [&](std::uint64_t step) {
                              if (world.first()) states[step] = test::checkpoint_arrays(file);
                            }});
    if (world.first()) states[test::training_steps] = test::checkpoint_arrays(file);
  });
  return states;
}

TEST(FaultyTraining, ResumesToTheSameStateFromEachCheckpoint) {
  const TemporaryFolder folder;
  const std::string file = folder / "c.safetensors";
  const States states = train_without_faults();
  EXPECT_EQ(states.size(), test::training_steps);
  for (const std::uint64_t step : {2, 6, 7, 11}) {
    dist::threads(test::job_ranks, [&](dist::World& world) {
      test::train_with_faults(world, file, {.steps = step});
      if (world.first()) {
        EXPECT_EQ(test::checkpoint_arrays(file), states.at(step));
      }
      test::train_with_faults(world, file, {.resume = true});
      if (world.first()) {
        EXPECT_EQ(test::checkpoint_arrays(file), states.at(test::training_steps));
      }
    });
    std::filesystem::remove(file);
  }
}

class RankFaults : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (test::run({"1", "--mpi", GetParam(), "true"}).code == 77)
      GTEST_SKIP() << "not installed: mpirun." << GetParam();
    if (GetParam() != std::string("mpich")) return;
    const std::string version = test::run({"--version"}, {.program = "/usr/bin/mpirun.mpich"}).out;
    loses_output_ = std::regex_search(version, std::regex("Version: +4\\.2\\."));
  }

  /// Whether the launcher is Hydra of MPICH 4.2, which loses the exit status or the output of one of about 25 jobs
  /// whose ranks end by a signal or with an error.
  bool loses_output_ = false;

  /// Runs a job with a fault. Returns what is wrong with it; empty: nothing.
  std::string problems_of(const Fault& fault, int hosts, const States& states, std::size_t seed) const {
    const TemporaryFolder folder;
    const ClusterJob job(GetParam(), hosts, FAULTY_RANKS, {{"TESSERA_RANKS_TIMEOUT", std::to_string(fault.timeout)}});
    const bool pauses = fault.is("pause");
    std::minstd_rand random(static_cast<unsigned>(seed) + 1);
    const int delay = std::uniform_int_distribution(fault.least_delay, fault.most_delay)(random);
    double fault_at = 0, ended_at = 0, looked_at = 0;
    pid_t faulty = 0;
    const auto follow = [&](const std::string&, const std::string&) {
      const double now = seconds_since_boot();
      if (fault_at == 0) std::istringstream(test::text_of(folder / "fault")) >> fault_at >> faulty, fault_at /= 1e6;
      if (pauses && faulty != 0 && now > fault_at + 5) ::kill(faulty, SIGCONT), faulty = 0;
      if (fault_at == 0 || ended_at != 0 || now < looked_at + 0.1) return false;
      looked_at = now;
      std::vector<pid_t> left = job.ranks();
      const bool is_stopped =
          std::string_view(fault.name).ends_with("stop") && hosts != 0;  // Hydra does not kill it on another machine
      if (is_stopped) std::erase(left, faulty);
      if (left.empty()) ended_at = now;
      if (left.empty() && is_stopped) ::kill(faulty, SIGKILL);
      return false;
    };
    const Outcome o = job.run(
        {FAULTY_RANKS, pauses ? "stop" : fault.name, std::to_string(fault.rank), folder.path(), std::to_string(delay)},
        {.limit = 60 + fault.limit, .interrupt = follow});
    looked_at = 0, follow("", "");
    std::string wrong;
    if (!job.wait(5)) wrong += "processes are left; ";
    if (ended_at == 0) ended_at = seconds_since_boot();
    // In the test suite, other tests occupy the cores.
    const double limit = fault.limit + (test::repetitions() != 0 ? 0 : 15);
    if (fault_at != 0 && ended_at > fault_at + limit)
      wrong += fmt::format("ended {:.1f} s after the fault; ", ended_at - fault_at);
    if (o.late) wrong += "the launcher did not end; ";
    if (fault_at == 0 && !fault.is("long validation")) wrong += "the fault did not happen; ";
    if (fault.succeeds != (o.code == 0)) wrong += fmt::format("exit status {}; ", o.code);
    for (const char* text : fault.texts)
      if (!std::regex_search(o.out + o.err, std::regex(text))) wrong += fmt::format("no \"{}\"; ", text);
    try {
      if (!fault.states.empty()) {
        const auto found = test::checkpoint_arrays(folder / "checkpoint.safetensors");
        if (std::ranges::none_of(fault.states, [&](std::uint64_t step) { return states.at(step) == found; }))
          wrong += "the checkpoint has another state; ";
      }
    } catch (const std::exception& e) {
      wrong += std::string("the checkpoint is damaged: ") + e.what();
    }
    return wrong.empty() ? "" : fmt::format("{}\n{}{}", wrong, o.out, o.err);
  }
};
INSTANTIATE_TEST_SUITE_P(Launchers, RankFaults, testing::Values("openmpi", "mpich"),
                         [](const auto& info) { return std::string(info.param); });

TEST_P(RankFaults, EndTheJobWithAMessage) {
  const States states = train_without_faults();
  struct Run {
    const Fault* fault;
    int hosts;
    std::string wrong = {};
  };
  std::vector<Run> runs;
  const char* const variable = std::getenv("TESSERA_TEST_FAULTS");
  const char* const selected = variable != nullptr ? variable : "";
  const bool namespaces = test::can_use_namespaces(), is_long = test::repetitions() != 0;
  for (int i = 0; i < std::max(1, test::repetitions()); ++i) {
    if (namespaces && *selected == '\0') runs.push_back({&link_down, 3});
    for (const Fault& fault : faults) {
      if (!std::string_view(fault.name).starts_with(selected)) continue;
      runs.push_back({&fault, 0});
      if (namespaces && (is_long || fault.is("kill") || fault.is("return") || fault.is("region left")))
        runs.push_back({&fault, 3});
    }
  }
  test::for_each_job(runs.size(), [&](std::size_t i) {
    Run& run = runs[i];
    run.wrong = problems_of(*run.fault, run.hosts, states, i);
    // On a busy machine, MPI_Init may take longer than the few seconds of a fault's timeout, so that no fault happens.
    const bool too_late = run.wrong.find("MPI_Init_thread") != run.wrong.npos;
    if (too_late || (loses_output_ && !run.wrong.empty())) run.wrong = problems_of(*run.fault, run.hosts, states, i);
  });
  std::map<std::string, std::pair<int, int>> counts;
  for (const Run& run : runs) {
    const std::string name = fmt::format("{}{}", run.fault->name, run.hosts == 0 ? "" : " on namespaces");
    EXPECT_EQ(run.wrong, "") << name;
    ++counts[name].first, counts[name].second += run.wrong.empty() ? 0 : 1;
  }
  for (const auto& [name, count] : counts) fmt::print("{}: {} runs, {} failed\n", name, count.first, count.second);
}

}  // namespace
}  // namespace tessera
