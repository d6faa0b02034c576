// SPDX-License-Identifier: Apache-2.0
// Errors of communication between ranks.
#pragma once

#include "tessera/base/error.h"

namespace tessera {

/// Ranks cannot communicate: no library or launcher was found, a rank failed or ended, or does not answer. Collectives
/// of this World throw it from then on.
class ConnectionError : public Error {
  using Error::Error;
};
/// Ranks called different collectives, or the same one with different arguments. The message contains both calls, with
/// file and line. It is thrown on all ranks.
class MismatchError : public ConnectionError {
  using ConnectionError::ConnectionError;
};

}  // namespace tessera
