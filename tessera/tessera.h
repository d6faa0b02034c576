// SPDX-License-Identifier: Apache-2.0
// Everything that users of Tessera include, in one header. Each of these can be included alone; only they, and what they
// include, are installed.
#pragma once

#include "tessera/base/dtype.h"
#include "tessera/base/error.h"
#include "tessera/base/half.h"
