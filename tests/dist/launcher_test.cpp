// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cstdlib>
#include <initializer_list>
#include <string>
#include <utility>

#include "tessera/dist/error.h"
#include "tessera/dist/launcher.h"

namespace {

using tessera::dist::find_launch;
using tessera::dist::Launch;
using tessera::dist::LauncherKind;
using Variables = std::initializer_list<std::pair<const char*, const char*>>;

/// Replaces all variables of launchers.
void set_variables(const Variables& variables) {
  for (const char* name : {"OMPI_COMM_WORLD_RANK",
                           "OMPI_COMM_WORLD_SIZE",
                           "OMPI_COMM_WORLD_LOCAL_RANK",
                           "OMPI_COMM_WORLD_LOCAL_SIZE",
                           "PMI_RANK",
                           "PMI_SIZE",
                           "PMI_LOCAL_RANK",
                           "PMI_LOCAL_SIZE",
                           "MPI_LOCALRANKID",
                           "MPI_LOCALNRANKS",
                           "PMIX_RANK",
                           "PMIX_NAMESPACE",
                           "SLURM_PROCID",
                           "SLURM_NTASKS",
                           "SLURM_STEP_NUM_TASKS",
                           "SLURM_LOCALID",
                           "SLURM_NODEID",
                           "SLURM_STEP_TASKS_PER_NODE",
                           "FLUX_TASK_RANK",
                           "FLUX_JOB_SIZE",
                           "FLUX_TASK_LOCAL_ID",
                           "PALS_RANKID",
                           "PALS_LOCAL_RANKID",
                           "PALS_LOCAL_SIZE",
                           "ALPS_APP_PE"})
    ::unsetenv(name);
  for (const auto& [name, value] : variables) ::setenv(name, value, 1);
}

void expect_launch(const Variables& variables, LauncherKind kind, int rank, int size, int local_rank, int local_size) {
  set_variables(variables);
  const auto launch = find_launch();
  ASSERT_TRUE(launch.has_value());
  EXPECT_EQ(launch->kind, kind) << launch->name;
  EXPECT_EQ(launch->rank, rank);
  EXPECT_EQ(launch->size, size);
  EXPECT_EQ(launch->local_rank, local_rank);
  EXPECT_EQ(launch->local_size, local_size);
}

template <class E>
void expect_error(const Variables& variables, const std::string& text) {
  set_variables(variables);
  try {
    find_launch();
    FAIL() << "no error: " << text;
  } catch (const E& e) {
    EXPECT_NE(std::string(e.what()).find(text), std::string::npos) << e.what();
  }
}

TEST(FindLaunch, ReadsVariablesOfEachLauncher) {
  expect_launch({{"OMPI_COMM_WORLD_RANK", "3"},
                 {"OMPI_COMM_WORLD_SIZE", "8"},
                 {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                 {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
                 {"PMIX_RANK", "3"}},
                LauncherKind::open_mpi, 3, 8, 1, 2);
  expect_launch({{"PMI_RANK", "2"}, {"PMI_SIZE", "4"}, {"MPI_LOCALRANKID", "0"}, {"MPI_LOCALNRANKS", "2"}},
                LauncherKind::hydra, 2, 4, 0, 2);
  expect_launch({{"PALS_RANKID", "5"}, {"PALS_LOCAL_RANKID", "1"}, {"PALS_LOCAL_SIZE", "4"}, {"PMI_SIZE", "16"}},
                LauncherKind::pals, 5, 16, 1, 4);
  expect_launch({{"PALS_RANKID", "5"}, {"PALS_LOCAL_RANKID", "1"}}, LauncherKind::pals, 5, 0, 1, 0);
  expect_launch({{"ALPS_APP_PE", "7"}}, LauncherKind::alps, 7, 0, -1, 0);
  expect_launch({{"FLUX_TASK_RANK", "1"},
                 {"FLUX_JOB_SIZE", "2"},
                 {"FLUX_TASK_LOCAL_ID", "0"},
                 {"PMI_RANK", "1"},
                 {"PMI_SIZE", "2"}},
                LauncherKind::flux, 1, 2, 0, 0);
  expect_launch({{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}, {"PMI_LOCAL_RANK", "1"}, {"PMI_LOCAL_SIZE", "2"}},
                LauncherKind::pmi, 1, 2, 1, 2);
  expect_launch({{"PMIX_RANK", "4"}}, LauncherKind::pmix, 4, 0, -1, 0);
}

TEST(FindLaunch, ReadsSlurmSteps) {
  expect_launch({{"SLURM_PROCID", "9"},
                 {"SLURM_STEP_NUM_TASKS", "11"},
                 {"SLURM_LOCALID", "1"},
                 {"SLURM_NODEID", "2"},
                 {"SLURM_STEP_TASKS_PER_NODE", "4(x2),3"},
                 {"PMIX_RANK", "9"},
                 {"PMIX_NAMESPACE", "slurm.pmix.7.0"}},
                LauncherKind::slurm, 9, 11, 1, 3);
  expect_launch({{"SLURM_PROCID", "5"},
                 {"SLURM_STEP_NUM_TASKS", "8"},
                 {"SLURM_NODEID", "1"},
                 {"SLURM_STEP_TASKS_PER_NODE", "4(x2)"},
                 {"PMI_RANK", "5"},
                 {"PMI_SIZE", "8"}},
                LauncherKind::slurm, 5, 8, -1, 4);
  for (const char* list : {"", "x", "4(x", "(x3)", "2"})
    expect_launch({{"SLURM_PROCID", "5"},
                   {"SLURM_STEP_NUM_TASKS", "8"},
                   {"SLURM_NODEID", "1"},
                   {"SLURM_STEP_TASKS_PER_NODE", list}},
                  LauncherKind::slurm, 5, 8, -1, 0);
}

TEST(FindLaunch, PrefersInnerLauncher) {
  // mpirun inside a Slurm step
  expect_launch({{"SLURM_PROCID", "0"},
                 {"SLURM_STEP_NUM_TASKS", "2"},
                 {"PMIX_RANK", "1"},
                 {"OMPI_COMM_WORLD_RANK", "5"},
                 {"OMPI_COMM_WORLD_SIZE", "6"}},
                LauncherKind::open_mpi, 5, 6, -1, 0);
  expect_launch({{"SLURM_PROCID", "0"},
                 {"SLURM_STEP_NUM_TASKS", "1"},
                 {"PMIX_RANK", "0"},
                 {"PMI_RANK", "1"},
                 {"PMI_SIZE", "2"},
                 {"MPI_LOCALRANKID", "1"}},
                LauncherKind::hydra, 1, 2, 1, 0);
  expect_launch({{"SLURM_PROCID", "0"},
                 {"SLURM_STEP_NUM_TASKS", "1"},
                 {"PMIX_RANK", "2"},
                 {"PMIX_NAMESPACE", "prterun-host-77@1"}},
                LauncherKind::pmix, 2, 0, -1, 0);
}

TEST(FindLaunch, ShellsAndSingleStepsAreNotJobs) {
  for (const Variables& variables :
       {Variables{}, Variables{{"SLURM_NTASKS", "8"}, {"SLURM_JOB_ID", "1"}},             // salloc
        Variables{{"SLURM_NTASKS", "8"}, {"SLURM_PROCID", "0"}, {"SLURM_LOCALID", "0"}},  // sbatch
        Variables{{"SLURM_NTASKS", "8"}, {"SLURM_PROCID", "0"}, {"SLURM_STEP_NUM_TASKS", "1"}},
        Variables{{"SLURM_PROCID", "0"}, {"SLURM_STEP_NUM_TASKS", "1"}, {"PMI_RANK", "0"}, {"PMI_SIZE", "1"}},
        Variables{{"SLURM_PROCID", "0"}, {"SLURM_STEP_NUM_TASKS", "1"}, {"PMIX_RANK", "0"}},
        Variables{{"FLUX_TASK_RANK", "0"}, {"FLUX_JOB_SIZE", "1"}, {"PMI_RANK", "0"}, {"PMI_SIZE", "1"}}}) {
    set_variables(variables);
    EXPECT_FALSE(find_launch().has_value());
  }
}

TEST(FindLaunch, RejectsMalformedAndMissingVariables) {
  using tessera::ArgumentError, tessera::ConnectionError;
  expect_error<ArgumentError>({{"OMPI_COMM_WORLD_RANK", "one"}, {"OMPI_COMM_WORLD_SIZE", "2"}},
                              "OMPI_COMM_WORLD_RANK=one: expected a whole number");
  expect_error<ArgumentError>({{"PMI_RANK", "-1"}, {"PMI_SIZE", "2"}}, "PMI_RANK=-1: expected a whole number");
  expect_error<ArgumentError>({{"PMI_RANK", "0"}, {"PMI_SIZE", "0"}}, "PMI_SIZE=0: expected a whole number");
  expect_error<ConnectionError>({{"OMPI_COMM_WORLD_RANK", "1"}}, "OMPI_COMM_WORLD_SIZE is not set");
  expect_error<ConnectionError>({{"SLURM_STEP_NUM_TASKS", "4"}}, "SLURM_PROCID is not set");
  expect_error<ConnectionError>({{"PMI_RANK", "2"}, {"PMI_SIZE", "2"}}, "a rank that is not below the number");
}

}  // namespace
