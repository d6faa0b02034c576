// SPDX-License-Identifier: Apache-2.0
// Identifies files that Trainer::save wrote. Internal.
#pragma once

#include "tessera/array/safetensors.h"

namespace tessera::detail {

inline constexpr const char* trainer_kind = "tessera training 1";
inline constexpr std::string_view trainer_model_prefix = "model.";

inline bool is_trainer_file(const SafetensorsFile& file) {
  const auto found = file.metadata().find("kind");
  return found != file.metadata().end() && found->second == trainer_kind;
}

}  // namespace tessera::detail
