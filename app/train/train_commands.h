// SPDX-License-Identifier: Apache-2.0
// The tasks of `tessera train`, one per file: options, declared under `train`, and the function to run.
#pragma once

#include "command.h"

namespace tessera::app {

Command train_digits_command(CLI::App& train);
Command train_spirals_command(CLI::App& train);
Command train_lm_command(CLI::App& train);

}  // namespace tessera::app
