// SPDX-License-Identifier: Apache-2.0
// Everything that users of Tessera include, in one header. Each of these can be included alone; only they, and what
// they include, are installed.
#pragma once

#if __cplusplus < 202002L
#error "Tessera needs C++20: compile with -std=c++20, or target_compile_features(... cxx_std_20) in CMake"
#endif

#include "tessera/array/array.h"
#include "tessera/array/dlpack.h"
#include "tessera/array/functions.h"
#include "tessera/array/generator.h"
#include "tessera/array/move.h"
#include "tessera/array/observer.h"
#include "tessera/array/prefetch.h"
#include "tessera/array/safetensors.h"
#include "tessera/array/saved_arrays.h"
#include "tessera/array/walk.h"
#include "tessera/base/dtype.h"
#include "tessera/base/error.h"
#include "tessera/base/half.h"
#include "tessera/device/device.h"
#include "tessera/device/dry_run.h"
#include "tessera/device/kernel.h"
#include "tessera/device/placement_scope.h"
#include "tessera/device/preferences.h"
#include "tessera/device/sequence.h"
#include "tessera/device/storage.h"
#include "tessera/device/verify_on.h"
#include "tessera/grad/grad.h"
#include "tessera/kernel/buffer.h"
#include "tessera/kernel/kernel.h"
#include "tessera/llm/decoder.h"
#include "tessera/llm/estimate.h"
#include "tessera/llm/language_model.h"
#include "tessera/ops/convolution.h"
#include "tessera/ops/product.h"
#include "tessera/ops/transformer.h"
#include "tessera/ops/weight.h"
