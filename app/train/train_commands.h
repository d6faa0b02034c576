// SPDX-License-Identifier: Apache-2.0
// What `tessera train` can learn, one file each: its options, declared under `train`, and the function that runs it.
#pragma once

#include "command.h"

namespace tessera::app {

Command train_digits_command(CLI::App& train);
Command train_spirals_command(CLI::App& train);
Command train_lm_command(CLI::App& train);

}  // namespace tessera::app
