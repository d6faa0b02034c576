// SPDX-License-Identifier: Apache-2.0
// Starts programs with the launchers of Open MPI and MPICH. ctest has one entry per implementation, which is skipped if
// it is not installed.
#include <gtest/gtest.h>

#include <csignal>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "tessera/base/os/process_tree.h"
#include "tests/app/app_program.h"

namespace {

using tessera::test::Outcome;
using Environment = std::map<std::string, std::string>;

/// Runs a program. MPI libraries do not free all their memory.
Outcome run(std::vector<std::string> arguments, Environment environment, const std::string& program) {
  environment.emplace("ASAN_OPTIONS", "detect_leaks=0");
  Outcome outcome = tessera::test::run(std::move(arguments),
                                       {.environment = std::move(environment), .limit = 30, .program = program});
  EXPECT_FALSE(outcome.late) << outcome.out << outcome.err;
  return outcome;
}

/// An implementation and what belongs to it.
struct Implementation {
  const char* name;
  const char* text;      ///< in Transport::name()
  const char* launcher;  ///< in messages
  const char* own_program;
  const char* other_library;
  const char* other_text;
};
const Implementation open_mpi = {"openmpi",           "Open MPI ",      "mpirun (Open MPI)",
                                 OWN_PROGRAM_OPENMPI, "libmpich.so.12", "MPICH "};
const Implementation mpich = {"mpich", "MPICH ", "mpiexec (Hydra)", OWN_PROGRAM_MPICH, "libmpi.so.40", "Open MPI "};

class Mpi : public testing::TestWithParam<Implementation> {
 protected:
  void SetUp() override {
    if (start(1, {"true"}).code == 77) GTEST_SKIP() << "not installed: mpirun." << GetParam().name;
  }
  static bool is_open_mpi() { return GetParam().name == std::string("openmpi"); }
  static Outcome start(int ranks, std::vector<std::string> command, Environment environment = {},
                       std::vector<std::string> options = {}) {
    std::vector<std::string> arguments = {std::to_string(ranks), "--mpi", GetParam().name};
    arguments.insert(arguments.end(), options.begin(), options.end());
    arguments.insert(arguments.end(), command.begin(), command.end());
    return run(std::move(arguments), std::move(environment), TESSERA_PROGRAM);
  }
  /// Runs mpi_ranks, which must fail on every rank with this text within 5 s.
  static void expect_error(int ranks, const std::string& mode, const Environment& environment,
                           const std::vector<std::string>& texts, int code = 3) {
    const Outcome outcome = start(ranks, {MPI_RANKS, mode}, environment);
    EXPECT_EQ(outcome.code, code) << outcome.out << outcome.err;
    EXPECT_LT(outcome.seconds, 5);
    for (const std::string& text : texts) EXPECT_NE(outcome.err.find(text), text.npos) << text << "\n" << outcome.err;
    EXPECT_EQ(outcome.out.find("closed"), std::string::npos) << outcome.out;
  }
  static std::ptrdiff_t occurrences(const std::string& text, const std::string& part) {
    std::ptrdiff_t found = 0;
    for (std::size_t at = 0; (at = text.find(part, at)) != text.npos; at += part.size()) ++found;
    return found;
  }
};
INSTANTIATE_TEST_SUITE_P(Launchers, Mpi, testing::Values(open_mpi, mpich),
                         [](const auto& info) { return std::string(info.param.name); });

TEST_P(Mpi, ExchangesMessages) {
  for (const int ranks : {1, 2, 3, 4}) {
    const Outcome outcome = start(ranks, {MPI_RANKS, "check"});
    EXPECT_EQ(outcome.code, 0) << outcome.out << outcome.err;
    EXPECT_EQ(occurrences(outcome.out, "closed"), ranks) << outcome.out;
    for (int rank = 0; rank < ranks; ++rank) {
      const std::string line = "rank " + std::to_string(rank) + " of " + std::to_string(ranks) + ", local " +
                               std::to_string(rank) + " of " + std::to_string(ranks) + ": " + GetParam().text;
      EXPECT_EQ(occurrences(outcome.out, line), 1) << outcome.out;
    }
  }
}

TEST_P(Mpi, RejectsLibraryOfAnotherLauncher) {
  expect_error(2, "check", {{"TESSERA_MPI_LIBRARY", GetParam().other_library}},
               {std::string("TESSERA_MPI_LIBRARY: ") + GetParam().other_library + " (" + GetParam().other_text,
                std::string("does not belong to ") + GetParam().launcher});
}

TEST_P(Mpi, ReportsLauncherWithoutVariables) {
  const Outcome outcome = start(2, {"/usr/bin/env", "-i", MPI_RANKS});
  EXPECT_NE(outcome.code, 0) << outcome.out;
  EXPECT_LT(outcome.seconds, 5);
  EXPECT_NE(outcome.err.find("started this process, but the environment contains none of its variables"),
            std::string::npos)
      << outcome.err;
}

TEST_P(Mpi, IsInitialisedOnce) {
  const Outcome outcome = start(1, {MPI_RANKS, "twice"});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_NE(outcome.err.find("this process has not initialised MPI"), std::string::npos) << outcome.err;
  EXPECT_NE(outcome.err.find("this process has already initialised"), std::string::npos) << outcome.err;
}

TEST_P(Mpi, EndsJobIfOneRankLeavesAfterAnError) {
  const Outcome outcome = start(3, {MPI_RANKS, "leave"});
  EXPECT_NE(outcome.code, 0) << outcome.out;
  EXPECT_LT(outcome.seconds, 10);
  EXPECT_NE(outcome.err.find("rank 0 leaves"), std::string::npos) << outcome.err;
}

TEST_P(Mpi, AbortEndsAllRanks) {
  const Outcome outcome = start(3, {MPI_RANKS, "abort"});
  EXPECT_NE(outcome.code, 0) << outcome.out << outcome.err;  // MPICH's mpirun may report the signal of another rank
  EXPECT_LT(outcome.seconds, 10);
  EXPECT_EQ(outcome.out.find("closed"), std::string::npos) << outcome.out;
}

TEST_P(Mpi, UsesCommunicatorOfProgram) {
  if (std::string(GetParam().own_program).empty())
    GTEST_SKIP() << "passed by: the library of " << GetParam().text << "is not installed";
  const Outcome outcome = start(3, {GetParam().own_program, "serialized"});
  EXPECT_EQ(outcome.code, 0) << outcome.out << outcome.err;
  EXPECT_EQ(occurrences(outcome.out, "finalised by the program"), 3) << outcome.out;
  EXPECT_EQ(occurrences(outcome.out, std::string("rank 0 of 3: ") + GetParam().text), 2) << outcome.out;
  const std::string other = is_open_mpi() ? OWN_PROGRAM_MPICH : OWN_PROGRAM_OPENMPI;
  if (!other.empty()) {
    const Outcome wrong = start(2, {other, "serialized"});
    EXPECT_NE(wrong.err.find("started 2 processes, but libmp"), std::string::npos) << wrong.out << wrong.err;
  }
  const Outcome refused = start(2, {GetParam().own_program, "funneled"});
  EXPECT_EQ(refused.code, 0) << refused.err;
  EXPECT_NE(refused.err.find("Call MPI_Init_thread with MPI_THREAD_SERIALIZED"), std::string::npos) << refused.err;
}

TEST_P(Mpi, ReportsWrongNumberOfProcesses) {
  // A process that is not part of a job, but has the variables of one.
  const Outcome outcome = run({"check"},
                              {{"SLURM_PROCID", "1"},
                               {"SLURM_STEP_NUM_TASKS", "4"},
                               {"TESSERA_MPI_LIBRARY", is_open_mpi() ? "libmpi.so.40" : "libmpich.so.12"}},
                              MPI_RANKS);
  EXPECT_EQ(outcome.code, 3);
  EXPECT_LT(outcome.seconds, 5);
  EXPECT_NE(outcome.err.find("srun started 4 processes, but libmpi"), std::string::npos) << outcome.err;
  EXPECT_NE(outcome.err.find(std::string("(") + GetParam().text), std::string::npos) << outcome.err;
  EXPECT_NE(outcome.err.find(") sees 1"), std::string::npos) << outcome.err;
}

TEST_P(Mpi, ExchangesMessagesBetweenHosts) {
  const Outcome outcome = start(4, {MPI_RANKS, "check"}, {}, {"--hosts", "3"});
  if (outcome.code == 77) GTEST_SKIP() << "passed by: network namespaces (" << outcome.err << ")";
  EXPECT_EQ(outcome.code, 0) << outcome.out << outcome.err;
  EXPECT_EQ(occurrences(outcome.out, "closed"), 4) << outcome.out;
  for (const char* line : {"rank 0 of 4, local 0 of 2", "rank 1 of 4, local 1 of 2", "rank 2 of 4, local 0 of 1",
                           "rank 3 of 4, local 0 of 1"})
    EXPECT_EQ(occurrences(outcome.out, line), 1) << outcome.out;
}

/// The network namespaces of the script's process.
std::string namespaces_of(int process) {
  const std::string name = "tessera-" + std::to_string(process) + "-";
  std::string found;
  for (const char* folder : {"/run/netns", "/etc/netns"})
    if (std::filesystem::exists(folder))
      for (const auto& entry : std::filesystem::directory_iterator(folder))
        if (entry.path().filename().string().starts_with(name)) found += entry.path().string() + "\n";
  return found;
}

TEST_P(Mpi, HostsAreRemovedWhenTheJobEnds) {
  const std::string mark = "TESSERA_CLUSTER_TEST=" + std::to_string(tessera::os::own_process()) + GetParam().name;
  const auto end_by = [&](const std::string& command, int signal) {
    const Outcome outcome =
        tessera::test::run({"2", "--mpi", GetParam().name, "--hosts", "2", "env", mark, "sh", "-c", command},
                           {.limit = 30,
                            .interrupt = [&](const std::string& out,
                                             const std::string&) { return signal != 0 && occurrences(out, "up") == 2; },
                            .signal = signal});
    EXPECT_FALSE(outcome.late);
    EXPECT_EQ(namespaces_of(outcome.process), "");
    EXPECT_EQ(tessera::os::processes_with(mark), std::vector<pid_t>());
    return outcome;
  };
  const Outcome ended = end_by("exit 9", 0);
  if (ended.code == 77) GTEST_SKIP() << "passed by: network namespaces (" << ended.err << ")";
  EXPECT_EQ(ended.code, 9) << ended.err;
  // mpirun of Open MPI takes seconds to end.
  for (const int signal : is_open_mpi() ? std::vector{SIGTERM} : std::vector{SIGTERM, SIGINT}) {
    const Outcome signalled = end_by("echo up; exec sleep 60", signal);
    EXPECT_EQ(signalled.code, 128 + signal);
    EXPECT_LT(signalled.seconds, 10);
  }
}

TEST_P(Mpi, LoadsNoDriversOfDevices) {
  // Started by a launcher that passes no topology, Open MPI calls hwloc.
  const Outcome outcome =
      run({"libraries"},
          {{"PMIX_RANK", "0"}, {"TESSERA_MPI_LIBRARY", is_open_mpi() ? "libmpi.so.40" : "libmpich.so.12"}}, MPI_RANKS);
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_NE(outcome.out.find("libmpi"), std::string::npos) << outcome.out;
  for (const char* library : {"libOpenCL", "libX11", "libpocl", "LLVM"})
    EXPECT_EQ(outcome.out.find(library), std::string::npos) << library;
}

// A library that hangs or exits in MPI_Init_thread.
TEST(FakeMpi, HangIsReportedAndEnds) {
  const Outcome outcome =
      run({"check"},
          {{"PMI_RANK", "0"}, {"PMI_SIZE", "2"}, {"TESSERA_MPI_LIBRARY", FAKE_MPI}, {"TESSERA_RANKS_TIMEOUT", "2"}},
          MPI_RANKS);
  EXPECT_EQ(outcome.code, 1);
  EXPECT_LT(outcome.seconds, 5);
  EXPECT_NE(outcome.err.find("(MPICH 0.0), for a process of a launcher with PMI, has not returned for 2 s"),
            std::string::npos)
      << outcome.err;
}

TEST(FakeMpi, OtherFilesAreRejected) {
  for (const auto& [file, text] :
       {std::pair("libm.so.6", "TESSERA_MPI_LIBRARY: libm.so.6 is not an MPI library"),
        std::pair("/nonexistent/libmpi.so", "TESSERA_MPI_LIBRARY: /nonexistent/libmpi.so: cannot open")}) {
    const Outcome outcome =
        run({"check"}, {{"PMI_RANK", "0"}, {"PMI_SIZE", "2"}, {"TESSERA_MPI_LIBRARY", file}}, MPI_RANKS);
    EXPECT_EQ(outcome.code, 3);
    EXPECT_NE(outcome.err.find(text), std::string::npos) << outcome.err;
    EXPECT_NE(outcome.err.find("Set TESSERA_MPI_LIBRARY to the library of the MPI that belongs to a launcher with PMI"),
              std::string::npos)
        << outcome.err;
  }
}

TEST(FakeMpi, ExitIsReported) {
  const Outcome outcome =
      run({"check"}, {{"PMI_RANK", "0"}, {"PMI_SIZE", "2"}, {"TESSERA_MPI_LIBRARY", FAKE_MPI}, {"FAKE_MPI", "exit"}},
          MPI_RANKS);
  EXPECT_EQ(outcome.code, 5);
  EXPECT_NE(outcome.err.find("(MPICH 0.0), for a process of a launcher with PMI, has ended this process"),
            std::string::npos)
      << outcome.err;
}

TEST(WithoutLauncher, NothingIsOpened) {
  const Outcome outcome = run({}, {}, MPI_RANKS);
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_NE(outcome.out.find("no launcher"), std::string::npos);
  EXPECT_NE(outcome.out.find("libc.so"), std::string::npos) << outcome.out;
  for (const char* library : {"libmpi", "hwloc", "libucp", "libucs", "pmix", "open-pal"})
    EXPECT_EQ(outcome.out.find(library), std::string::npos) << outcome.out;
  const Outcome linked = run({MPI_RANKS}, {}, "/usr/bin/ldd");
  EXPECT_NE(linked.out.find("libc.so"), std::string::npos) << linked.out;
  for (const char* library : {"libmpi", "hwloc", "libucp"})
    EXPECT_EQ(linked.out.find(library), std::string::npos) << linked.out;
}

}  // namespace
