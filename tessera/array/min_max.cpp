// SPDX-License-Identifier: Apache-2.0
#include "tessera/array/min_max.h"

#include <limits>

namespace tessera::detail {

namespace {

bool wide(ir::Value v) { return dtype_size(v.dtype()) == 8; }
DType integer_of(ir::Value v) { return wide(v) ? DType::i64 : DType::i32; }
DType float_of(ir::Value v) { return wide(v) ? DType::f64 : DType::f32; }
ir::Value least(DType t) {
  return ir::Operand(t == DType::i64 ? std::numeric_limits<std::int64_t>::min()
                                     : std::numeric_limits<std::int32_t>::min())
      .as(t);
}
ir::Value most(DType t) {
  return ir::Operand(t == DType::i64 ? std::numeric_limits<std::int64_t>::max()
                                     : std::numeric_limits<std::int32_t>::max())
      .as(t);
}
// Inverts all bits except the sign bit if the sign bit is set, so that the integers sort like the floats. The function
// is its own inverse.
ir::Value turned(ir::Value bits) { return bits ^ ((bits >> (wide(bits) ? 63 : 31)) & most(bits.dtype())); }

}  // namespace

ir::Value min_or_max(ir::BinaryOp op, ir::Value a, ir::Value b) {
  if (!is_float(a.dtype())) return ir::binary(op, a, b);
  if (a.dtype() != DType::f64) a = ir::cast(DType::f32, a), b = ir::cast(DType::f32, b);
  const DType bits = integer_of(a);
  const bool greatest = op == ir::BinaryOp::max;
  const ir::Value x = ir::bitcast(bits, a), y = ir::bitcast(bits, b);
  const ir::Value p = sortable_key(a, greatest),
                  // Keys are compared instead of floats, because some devices flush denormals.
      q = sortable_key(b, greatest);
  return ir::bitcast(a.dtype(), ir::select(greatest ? p >= q : p <= q, x, y));
}

ir::Value sortable_key(ir::Value v, bool greatest) {
  const DType bits = integer_of(v);
  return ir::select(v == v, turned(ir::bitcast(bits, v)), greatest ? most(bits) : least(bits));
}
ir::Value canonicalize_zero(ir::Value v) {
  const ir::Value bits = ir::bitcast(integer_of(v), v);
  return ir::bitcast(v.dtype(), ir::select((bits + bits) == 0, ir::literal(bits.dtype(), 0), bits));
}
ir::Value from_sortable_key(ir::Value key) { return ir::bitcast(float_of(key), turned(key)); }

}  // namespace tessera::detail
