// SPDX-License-Identifier: Apache-2.0
// The subcommands of `tessera train`. Each one is in a separate file.
#pragma once

#include "command.h"

namespace tessera::app {

Command train_digits_command(CLI::App& train);
Command train_spirals_command(CLI::App& train);
Command train_lm_command(CLI::App& train);

}  // namespace tessera::app
