// SPDX-License-Identifier: Apache-2.0
#include "tessera/base/dtype.h"

namespace tessera {

std::optional<DType> dtype_from_name(std::string_view name) {
  for (DType t : storable_dtypes)
    if (dtype_name(t) == name) return t;
  return std::nullopt;
}

}  // namespace tessera
