// SPDX-License-Identifier: Apache-2.0
// `tessera train` on several ranks, with SIGINT and SIGTERM at random moments, to the launcher or to a rank.
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <random>

#include "tests/dist/cluster_job.h"
#include "tests/dist/faulty_training.h"

namespace tessera {
namespace {

using test::ClusterJob;
using test::Outcome;
using test::seconds_since_boot;
using test::TemporaryFolder;

constexpr const char* steps = "150";

struct Signal {
  int number;
  int rank;  ///< that receives it; -1: the launcher
  int hosts = 0;
};

class RankSignals : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (test::run({"1", "--mpi", GetParam(), "true"}).code == 77)
      GTEST_SKIP() << "not installed: mpirun." << GetParam();
  }
  ClusterJob job(int hosts) const { return {GetParam(), hosts, TRAINING_PROGRAM, {{"TESSERA_RANKS_TIMEOUT", "20"}}}; }
  /// Trains on all ranks. The exit code of rank k is written to the file FOLDER/k.
  static std::vector<std::string> command(const TemporaryFolder& folder, const std::vector<std::string>& more) {
    std::vector<std::string> out = {"sh",
                                    "-c",
                                    R"(trap : INT TERM; "$@"; echo $? >"$0/${OMPI_COMM_WORLD_RANK:-$PMI_RANK}")",
                                    folder.path(),
                                    TRAINING_PROGRAM,
                                    "train",
                                    "digits",
                                    "--out",
                                    folder / "out"};
    out.insert(out.end(), more.begin(), more.end());
    return out;
  }
  static const std::vector<std::string> fresh;

  /// Sends a signal while a job trains. Returns what is wrong; empty: nothing. `want` are the arrays of a training that
  /// was not interrupted.
  std::string problems_of(const Signal& signal, std::size_t seed,
                          const std::map<std::string, std::vector<std::byte>>& want) const {
    const TemporaryFolder folder;
    const ClusterJob training = job(signal.hosts);
    std::minstd_rand random(static_cast<unsigned>(seed) + 1);
    const double delay = std::uniform_real_distribution(0.0, 1.0)(random);
    double written_at = 0;
    bool sent = false;
    const auto send = [&](const std::string&, const std::string&) {
      const double now = seconds_since_boot();
      if (written_at == 0 && std::filesystem::exists(folder / "out")) written_at = now;
      if (sent || written_at == 0 || now < written_at + delay) return false;
      sent = true;
      if (signal.rank < 0) return true;
      const std::string rank = std::to_string(signal.rank);
      for (const char* variable : {"OMPI_COMM_WORLD_RANK=", "PMI_RANK="})
        for (const pid_t process : os::processes_with(variable + rank))
          if (std::ranges::count(training.ranks(), process) != 0) return ::kill(process, signal.number), false;
      return false;
    };
    const Outcome o = training.run(command(folder, fresh), {.limit = 60, .interrupt = send, .signal = signal.number});
    std::string wrong;
    if (!training.wait(5)) wrong += "processes are left; ";
    if (o.late) wrong += "the job did not end; ";
    // Open MPI's mpirun kills ranks that have not ended a second after SIGTERM.
    const bool may_be_killed = std::string_view(GetParam()) == "openmpi" && signal.rank < 0;
    std::map<std::string, int> codes;
    for (int rank = 0; rank < test::job_ranks; ++rank) ++codes[test::text_of(folder / std::to_string(rank))];
    const int stopped = codes["130\n"] + codes["143\n"] + (may_be_killed ? codes[""] : 0);
    if (codes["0\n"] == test::job_ranks)
      ++complete_;
    else if (stopped != test::job_ranks)
      wrong += fmt::format("exit codes {}; ", fmt::join(codes, " "));
    if (o.err.find("error:") != o.err.npos) wrong += "an error was printed; ";
    const Outcome resumed = job(0).run(command(folder, {"--resume", folder / "out", "--steps", steps}), {.limit = 60});
    if (resumed.code != 0)
      wrong += "the file cannot be resumed: " + resumed.err;
    else if (test::checkpoint_arrays(folder / "out") != want)
      wrong += "resuming leads to another result; ";
    return wrong.empty() ? "" : fmt::format("{} ({:.2f} s after the first file)\n{}{}", wrong, delay, o.out, o.err);
  }

  TemporaryFolder cache_;                          ///< of kernels
  mutable std::atomic<std::size_t> complete_ = 0;  ///< jobs that ended before the signal
};
const std::vector<std::string> RankSignals::fresh = {"--model", "mlp", "--batch", "32", "--steps", steps};
INSTANTIATE_TEST_SUITE_P(Launchers, RankSignals, testing::Values("openmpi", "mpich"),
                         [](const auto& info) { return std::string(info.param); });

TEST_P(RankSignals, StopAllRanksAfterTheSameStep) {
  const TemporaryFolder folder;
  const Outcome whole = job(0).run(command(folder, fresh), {.limit = 60});
  ASSERT_EQ(whole.code, 0) << whole.err;
  const auto want = test::checkpoint_arrays(folder / "out");

  std::vector<Signal> signals = {{SIGTERM, -1}, {SIGINT, 1}};
  if (test::repetitions() != 0) {
    signals.insert(signals.end(), {{SIGINT, -1}, {SIGTERM, 0}, {SIGINT, 2}});
    if (test::can_use_namespaces()) signals.insert(signals.end(), {{SIGINT, -1, 3}, {SIGTERM, -1, 3}, {SIGTERM, 1, 3}});
  }
  const std::size_t times = std::max<std::size_t>(1, static_cast<std::size_t>(test::repetitions()) / 5);
  std::vector<std::string> wrong(times * signals.size());
  test::for_each_job(wrong.size(),
                     [&](std::size_t i) { wrong[i] = problems_of(signals[i % signals.size()], i, want); });
  EXPECT_LT(complete_, (wrong.size() + 1) / 2) << "most jobs ended before the signal";
  for (std::size_t s = 0; s < signals.size(); ++s) {
    const std::string name = fmt::format("signal {} to {}{}", signals[s].number,
                                         signals[s].rank < 0 ? "the launcher" : fmt::format("rank {}", signals[s].rank),
                                         signals[s].hosts == 0 ? "" : " on namespaces");
    int failed = 0;
    for (std::size_t i = s; i < wrong.size(); i += signals.size()) {
      EXPECT_EQ(wrong[i], "") << name;
      failed += wrong[i].empty() ? 0 : 1;
    }
    fmt::print("{}: {} runs, {} failed\n", name, times, failed);
  }
}

TEST_P(RankSignals, EveryTaskTrainsToTheSameBits) {
  const TemporaryFolder folder;
  std::string text;
  for (int i = 0; i < 400; ++i) text += fmt::format("The square of {} is {}. ", i, i * i);
  test::write_file(folder / "text", text);
  const std::map<std::string, std::vector<std::string>> tasks = {
      {"lm",
       {"--text", folder / "text", "--layers", "1", "--width", "32", "--heads", "2", "--hidden", "32", "--ctx", "16",
        "--vocabulary", "300", "--dropout", "0.1"}},
      {"spirals", {}},
      {"digits", {"--batch", "32", "--precision", "bf16"}}};
  for (const auto& [task, more] : tasks) {
    std::map<std::string, std::vector<std::byte>> first;
    for (const int hosts : {0, test::can_use_namespaces() ? 3 : 0}) {
      std::vector<std::string> command = {TRAINING_PROGRAM,         "train", task, "--steps", "20", "-q", "--out",
                                          folder / (task + ".gguf")};
      command.insert(command.end(), more.begin(), more.end());
      const Outcome o = job(hosts).run(command, {.limit = 60});
      ASSERT_EQ(o.code, 0) << task << ": " << o.err;
      const auto arrays = test::checkpoint_arrays(folder / (task + (task == "lm" ? ".safetensors" : ".gguf")));
      EXPECT_FALSE(arrays.empty());
      if (!first.empty()) {
        EXPECT_EQ(arrays, first) << task << " on namespaces";
      }
      first = arrays;
    }
  }
}

}  // namespace
}  // namespace tessera
