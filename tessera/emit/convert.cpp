// SPDX-License-Identifier: Apache-2.0
#include "tessera/emit/convert.h"

#include "tessera/emit/expr.h"

namespace tessera::emit {

ir::NodeId f32_from_f16(ir::Builder& b, ir::NodeId bits) {
  const Expr h = cast(DType::u32, Expr{&b, bits});
  const Expr sign = (h & 0x8000) << 16;
  const Expr magnitude = h & 0x7fff;
  const Expr shifted = magnitude << 13;
  const Expr normal = shifted + 0x38000000;   // the exponent bias changes from 15 to 127
  const Expr special = shifted | 0x7f800000;  // infinity and NaN
  const Expr tiny = bitcast(DType::u32, cast(DType::f32, magnitude) * 0x1p-24);  // below the smallest normal number
  const Expr value = select(magnitude < 0x400, tiny, select(magnitude < 0x7c00, normal, special));
  return bitcast(DType::f32, value | sign).id;
}

ir::NodeId f16_from_f32(ir::Builder& b, ir::NodeId value) {
  const Expr f = bitcast(DType::u32, Expr{&b, value});
  const Expr sign = (f >> 16) & 0x8000;
  const Expr magnitude = f & 0x7fffffff;
  const Expr rounded = magnitude + 0xfff + ((magnitude >> 13) & 1);
  const Expr normal = (rounded - 0x38000000) >> 13;
  // Below 2^-14, f16 has the same spacing as f32 between 1/2 and 1. Adding 1/2 therefore rounds correctly to nearest
  // even.
  const Expr tiny = bitcast(DType::u32, bitcast(DType::f32, magnitude) + 0.5) - 0x3f000000;
  const Expr nan = ((magnitude >> 13) & 0x3ff) | 0x7e00;
  Expr h = select(magnitude < 0x38800000, tiny, normal);
  h = select(magnitude < 0x477ff000, h, h.like(0x7c00));  // larger values round to infinity
  h = select(magnitude <= 0x7f800000, h, nan);
  return cast(DType::u16, h | sign).id;
}

ir::NodeId f32_from_bf16(ir::Builder& b, ir::NodeId bits) {
  return bitcast(DType::f32, cast(DType::u32, Expr{&b, bits}) << 16).id;
}

ir::NodeId bf16_from_f32(ir::Builder& b, ir::NodeId value) {
  const Expr f = bitcast(DType::u32, Expr{&b, value});
  const Expr high = f >> 16;
  const Expr rounded = (f + 0x7fff + (high & 1)) >> 16;
  return cast(DType::u16, select((f & 0x7fffffff) <= 0x7f800000, rounded, high | 0x40)).id;
}

ir::NodeId expand_dot4(ir::Builder& b, ir::Dot4Signs signs, ir::NodeId x, ir::NodeId y, ir::NodeId c) {
  const bool x_signed = ir::a_is_signed(signs), y_signed = ir::b_is_signed(signs);
  auto byte = [&](ir::NodeId packed, int i, bool is_signed) {
    const Expr word{&b, packed};
    if (!is_signed) return cast(DType::i32, i == 3 ? word >> 24 : (word >> (8 * i)) & 0xff);
    return cast(DType::i32, word << (24 - 8 * i)) >> 24;
  };
  Expr sum{&b, c};
  for (int i = 0; i < 4; ++i) sum = sum + byte(x, i, x_signed) * byte(y, i, y_signed);
  return sum.id;
}

}  // namespace tessera::emit
