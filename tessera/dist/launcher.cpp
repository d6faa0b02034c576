// SPDX-License-Identifier: Apache-2.0
#include "tessera/dist/launcher.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdint>
#include <string_view>
#include <vector>

#include "tessera/base/config.h"
#include "tessera/base/os/process_tree.h"
#include "tessera/dist/error.h"

namespace tessera::dist {
namespace {

/// The variables of a launcher. Null: the launcher does not set such a variable.
struct LaunchVariables {
  LauncherKind kind;
  const char* name;
  const char* needs;  ///< distinguishes the launcher from others that set the same variables
  const char* rank;
  const char* size;
  const char* local_rank = nullptr;
  const char* local_size = nullptr;
};

// Inner launchers first: mpirun starts its daemons with srun, and processes inherit the variables of both.
// Sources: Open MPI 5.0 documentation, "Environment variables set for MPI applications"; MPICH 4.0.2 (Hydra) and Intel
// MPI, as observed; srun(1) of Slurm 23.02, "Output environment variables"; flux-environment(7); HPE's mpiexec(1) of
// PALS and intro_pmi(3); aprun(1) of ALPS.
constexpr std::array launchers = {
    LaunchVariables{LauncherKind::open_mpi, "mpirun (Open MPI)", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_RANK",
                    "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"},
    LaunchVariables{LauncherKind::hydra, "mpiexec (Hydra)", "MPI_LOCALRANKID", "PMI_RANK", "PMI_SIZE",
                    "MPI_LOCALRANKID", "MPI_LOCALNRANKS"},
    LaunchVariables{LauncherKind::flux, "flux run", "FLUX_TASK_RANK", "FLUX_TASK_RANK", "FLUX_JOB_SIZE",
                    "FLUX_TASK_LOCAL_ID"},
    LaunchVariables{LauncherKind::pals, "mpiexec (PALS)", "PALS_RANKID", "PALS_RANKID", "PMI_SIZE", "PALS_LOCAL_RANKID",
                    "PALS_LOCAL_SIZE"},
    LaunchVariables{LauncherKind::alps, "aprun", "ALPS_APP_PE", "ALPS_APP_PE", nullptr},
    LaunchVariables{LauncherKind::slurm, "srun", "SLURM_STEP_NUM_TASKS", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS",
                    "SLURM_LOCALID"},
    LaunchVariables{LauncherKind::pmi, "a launcher with PMI", "PMI_SIZE", "PMI_RANK", "PMI_SIZE", "PMI_LOCAL_RANK",
                    "PMI_LOCAL_SIZE"},
    LaunchVariables{LauncherKind::pmix, "a launcher with PMIx", "PMIX_RANK", "PMIX_RANK", nullptr},
};

constexpr std::int64_t most_ranks = 1 << 30;

int number(const char* variable, std::int64_t low, int otherwise) {
  if (variable == nullptr) return otherwise;
  return static_cast<int>(config::integer(variable, low, most_ranks).value_or(otherwise));
}

/// Returns the number for node `node` in Slurm's list of numbers per node, such as "4(x2),3"; 0 if there is none.
int tasks_of_node(std::string_view list, int node) {
  while (!list.empty()) {
    const std::string_view entry = list.substr(0, list.find(','));
    list.remove_prefix(std::min(list.size(), entry.size() + 1));
    int tasks = 0, nodes = 1;
    const char* const end = entry.data() + entry.size();
    const char* at = std::from_chars(entry.data(), end, tasks).ptr;
    if (std::string_view(at, end).starts_with("(x")) std::from_chars(at + 2, end, nodes);
    if (node < nodes) return tasks;
    node -= nodes;
  }
  return 0;
}

/// A process started by another launcher inside a Slurm step inherits the step's variables.
bool is_foreign_pmix() {
  const auto job = config::text("PMIX_NAMESPACE");
  return job && !job->starts_with("slurm.");
}

/// Detects a launcher whose variables were removed, for example by `env -i`. Without this check, every process of the
/// job would run alone.
void check_parent() {
  const auto ancestors = os::ancestor_programs(1);
  if (ancestors.empty()) return;
  const std::string parent = ancestors.front().filename().string();
  for (const char* prefix : {"mpirun", "mpiexec", "orterun", "orted", "prte", "hydra_pmi_proxy"})
    if (parent.starts_with(prefix))
      fail<ConnectionError>({.operation = "World",
                             .wrong = fmt::format("{} started this process, but the environment contains none of its "
                                                  "variables (OMPI_COMM_WORLD_RANK, PMI_RANK, PMIX_RANK)",
                                                  ancestors.front().string()),
                             .remedy = "Pass the environment of the launcher to the program"});
}

}  // namespace

std::optional<Launch> find_launch() {
  const auto found = std::ranges::find_if(launchers, [](const LaunchVariables& launcher) {
    return config::text(launcher.needs) && !(launcher.kind == LauncherKind::slurm && is_foreign_pmix());
  });
  if (found == launchers.end()) {
    check_parent();
    return std::nullopt;
  }
  Launch launch{.kind = found->kind,
                .name = found->name,
                .rank = number(found->rank, 0, -1),
                .size = number(found->size, 1, 0),
                .local_rank = number(found->local_rank, 0, -1),
                .local_size = number(found->local_size, 1, 0)};
  const bool is_step = launch.kind == LauncherKind::slurm || launch.kind == LauncherKind::flux;
  if (is_step && launch.size == 1) return std::nullopt;  // also an interactive shell
  if (launch.kind == LauncherKind::slurm)
    launch.local_size =
        tasks_of_node(config::text("SLURM_STEP_TASKS_PER_NODE").value_or(""), number("SLURM_NODEID", 0, 0));
  const bool needs_size = found->size != nullptr && launch.kind != LauncherKind::pals;
  for (const auto& [variable, missing] :
       {std::pair(found->rank, launch.rank < 0), std::pair(found->size, needs_size && launch.size == 0)})
    if (missing)
      fail<ConnectionError>({.operation = "World",
                             .wrong = fmt::format("{} is set, so that {} started this process, but {} is not set",
                                                  found->needs, launch.name, variable),
                             .remedy = "Pass all variables of the launcher to the program"});
  if (launch.size > 0 && launch.rank >= launch.size)
    fail<ConnectionError>(
        {.operation = "World",
         .with = {{found->rank, std::to_string(launch.rank)}, {found->size, std::to_string(launch.size)}},
         .wrong = fmt::format("{} announced a rank that is not below the number of processes", launch.name)});
  return launch;
}

}  // namespace tessera::dist
