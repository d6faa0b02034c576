// SPDX-License-Identifier: Apache-2.0
#include "tessera/backend/cpu/machine_code.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

namespace tessera::cpu {

namespace {

using F = float (*)(float);
using D = double (*)(double);
using F2 = float (*)(float, float);
using D2 = double (*)(double, double);
using F3 = float (*)(float, float, float);
using D3 = double (*)(double, double, double);

/// The functions that compiled kernels may call.
const void* find_function(std::string_view name) {
  const auto address = [](auto* function) { return reinterpret_cast<const void*>(function); };
#define TESSERA_MATH(name) \
  {#name "f", address(static_cast<F>(&::name##f))}, { #name, address(static_cast<D>(&::name)) }
  static const std::pair<std::string_view, const void*> known[] = {
      TESSERA_MATH(exp),
      TESSERA_MATH(exp2),
      TESSERA_MATH(log),
      TESSERA_MATH(log2),
      TESSERA_MATH(sin),
      TESSERA_MATH(cos),
      TESSERA_MATH(tanh),
      TESSERA_MATH(erf),
      TESSERA_MATH(floor),
      TESSERA_MATH(ceil),
      TESSERA_MATH(trunc),
      TESSERA_MATH(rint),
      TESSERA_MATH(nearbyint),
      TESSERA_MATH(sqrt),
      {"powf", address(static_cast<F2>(&::powf))},
      {"pow", address(static_cast<D2>(&::pow))},
      {"fmodf", address(static_cast<F2>(&::fmodf))},
      {"fmod", address(static_cast<D2>(&::fmod))},
      {"fminf", address(static_cast<F2>(&::fminf))},
      {"fmin", address(static_cast<D2>(&::fmin))},
      {"fmaxf", address(static_cast<F2>(&::fmaxf))},
      {"fmax", address(static_cast<D2>(&::fmax))},
      {"fmaf", address(static_cast<F3>(&::fmaf))},
      {"fma", address(static_cast<D3>(&::fma))},
      {"memset", address(static_cast<void* (*)(void*, int, std::size_t)>(&::memset))},
      {"memcpy", address(static_cast<void* (*)(void*, const void*, std::size_t)>(&::memcpy))},
      {"memmove", address(static_cast<void* (*)(void*, const void*, std::size_t)>(&::memmove))}};
#undef TESSERA_MATH
  const auto* const found = std::ranges::find(known, name, &std::pair<std::string_view, const void*>::first);
  return found == std::end(known) ? nullptr : found->second;
}

}  // namespace

MachineCode::MachineCode(std::string_view object, const std::string& name)
    : code_(object, &find_function), entry_(reinterpret_cast<KernelEntry>(code_.function(kernel_symbol(name)))) {}

}  // namespace tessera::cpu
