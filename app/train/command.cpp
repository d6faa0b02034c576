// SPDX-License-Identifier: Apache-2.0
// `tessera train`: trains example networks.
#include <vector>

#include "ranks.h"
#include "train/train_commands.h"

namespace tessera::app {

Command train_command(CLI::App& program) {
  CLI::App* sub = program.add_subcommand("train", "Train a small network, and evaluate it on held-out data");
  sub->require_subcommand(1);
  const std::vector<Command> tasks = {train_digits_command(*sub), train_spirals_command(*sub), train_lm_command(*sub)};
  sub->footer(R"(`tessera train TASK --help` explains each task.

Examples:
  tessera train digits
  tessera train digits --out digits.safetensors --svg curve.svg
  tessera train spirals --arms 3
  tessera train lm --text book.txt
  mpirun -n 4 tessera train digits     each batch is split over four processes (docs/machines.md))");
  return {sub, [tasks] {
            for (const Command& task : tasks)
              if (task.options->parsed()) return run_on_ranks([&](dist::World&) { return task.run(); });
            return static_cast<int>(usage);
          }};
}

}  // namespace tessera::app
