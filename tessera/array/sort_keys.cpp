// SPDX-License-Identifier: Apache-2.0
#include "tessera/array/sort_keys.h"

#include "tessera/ir/builder.h"

namespace tessera::detail {

using ir::Value;

int key_bits(DType t) { return t == DType::boolean ? 1 : 8 * static_cast<int>(dtype_size(t)); }
DType key_dtype(DType t) { return dtype_size(t) == 8 ? DType::u64 : DType::u32; }

Value key_constant(DType t, std::uint64_t bits) {
  return ir::Value(ir::Builder::current().constant(t, t == DType::u32 ? bits & 0xffffffff : bits));
}

namespace {

/// All bits below the sign bit.
std::uint64_t below_sign(DType t) { return (std::uint64_t{1} << (key_bits(t) - 1)) - 1; }
std::uint64_t largest_key(DType t) { return below_sign(t) * 2 + 1; }
DType unsigned_of(DType t) {
  switch (dtype_size(t)) {
    case 1: return DType::u8;
    case 2: return DType::u16;
    case 4: return DType::u32;
    default: return DType::u64;
  }
}
std::uint64_t infinity_bits(DType t) {
  return t == DType::f16 ? 0x7c00 : t == DType::bf16 ? 0x7f80 : t == DType::f32 ? 0x7f800000 : 0x7ff0000000000000;
}

}  // namespace

Value key_of(Value element) {
  const DType t = element.dtype(), key = key_dtype(t);
  if (t == DType::boolean) return ir::cast(key, element);
  const Value bits = ir::cast(key, ir::bitcast(unsigned_of(t), element)), sign = key_constant(key, below_sign(t) + 1);
  if (is_unsigned_int(t)) return bits;
  if (is_int(t)) return bits ^ sign;
  const Value all = key_constant(key, largest_key(t)), size = bits & key_constant(key, below_sign(t));
  const Value ordered = ir::select((bits & sign) == key_constant(key, 0), bits ^ sign, bits ^ all);
  return ir::select(size > key_constant(key, infinity_bits(t)), all, ordered);
}
Value element_of(Value key, DType t) {
  if (t == DType::boolean) return key != key_constant(key.dtype(), 0);
  const Value sign = key_constant(key.dtype(), below_sign(t) + 1);
  Value bits = key;
  if (is_float(t))
    bits = ir::select((key & sign) == key_constant(key.dtype(), 0), key ^ key_constant(key.dtype(), largest_key(t)),
                      key ^ sign);
  else if (!is_unsigned_int(t))
    bits = key ^ sign;
  return ir::bitcast(t, ir::cast(unsigned_of(t), bits));
}

}  // namespace tessera::detail
