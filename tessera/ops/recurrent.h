// SPDX-License-Identifier: Apache-2.0
// Internal. Layers that keep a state of fixed size for each sequence, instead of keys and values of all tokens. All
// arrays are f32, contiguous and on one device.
//
// The tokens of a step belong to one or several sequences. `ranges`, i32 (sequences, 4), has a row for each sequence:
// its first token, the number of its tokens, the slot that contains its state, or -1 for a state of zeros, and the slot
// that receives its new state. A slot is an index into the first axis of `states`. A new state is written to another
// slot, so that a step can be repeated. The numbers are not checked: the caller must ensure that they are in range.
#pragma once

#include "tessera/array/array.h"

namespace tessera::ops {

/// The convolution of each channel over the tokens of a sequence: the result for token t is the sum over i of
/// taps(channel, i) * x(t - (n - 1) + i, channel), where n is the number of taps. x is (tokens, channels), taps is
/// (channels, n), and states is (slots, n - 1, channels): the last tokens of each sequence. Returns (tokens, channels).
/// The bits of a result do not depend on how the tokens of a sequence are divided into steps, or on other sequences.
/// Throws ShapeError, DtypeError or DeviceError if the operands do not match.
Array causal_convolution(const Array& x, const Array& taps, Array& states, const Array& ranges);

/// The gated delta rule (Yang, Kautz and Hatamizadeh 2024). Each head has a matrix S (key size, value size). For each
/// token, S becomes decay S, then S + k (beta (v - k^T S))^T, and the result is q^T S. q and k are (tokens, key heads,
/// key size), v is (tokens, heads, value size), decay and beta are (tokens, heads), and states is (slots, heads, key
/// size, value size). Head h has the keys and queries of key head h % key heads. Returns (tokens, heads, value size).
/// The bits of a result do not depend on how the tokens of a sequence are divided into steps, or on other sequences.
/// Throws ShapeError, DtypeError or DeviceError if the operands do not match.
Array gated_delta_rule(const Array& q, const Array& k, const Array& v, const Array& decay, const Array& beta,
                       Array& states, const Array& ranges);

}  // namespace tessera::ops
