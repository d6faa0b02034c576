// SPDX-License-Identifier: Apache-2.0
// Kernels and devices: the part of tessera.h for programs without arrays.
#pragma once

#if __cplusplus < 202002L
#error "Tessera requires C++20: compile with -std=c++20, or target_compile_features(... cxx_std_20) in CMake"
#endif

#include "tessera/base/dtype.h"
#include "tessera/base/error.h"
#include "tessera/base/half.h"
#include "tessera/device/device.h"
#include "tessera/device/launch/kernel.h"
#include "tessera/device/memory/storage.h"
#include "tessera/device/placement/dry_run.h"
#include "tessera/device/placement/placement_scope.h"
#include "tessera/device/placement/verify_on.h"
#include "tessera/device/queue/sequence.h"
#include "tessera/device/selection/preferences.h"
#include "tessera/device/to_string.h"
#include "tessera/kernel/algorithms.h"
#include "tessera/kernel/buffer.h"
#include "tessera/kernel/kernel.h"
