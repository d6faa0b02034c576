// SPDX-License-Identifier: Apache-2.0
// Operators for nodes, used to write expansions as formulas. An `Expr` stores its builder. Lowering therefore works on
// any thread, even if the user is tracing a kernel on this thread. For tracing, use `ir::Value`.
#pragma once

#include "tessera/ir/builder.h"

namespace tessera::emit {

/// A node with its builder. A literal operand gets the dtype of the other operand.
struct Expr {
  ir::Builder* b = nullptr;
  ir::NodeId id = ir::no_node;

  DType dtype() const { return b->type(id).dtype; }
  Expr like(double v) const { return {b, b->constant_of(dtype(), v)}; }
  Expr bits(std::uint64_t v) const { return {b, b->constant(dtype(), v)}; }  ///< constant with these bits
};

inline Expr binary(ir::BinaryOp op, Expr x, Expr y) { return {x.b, x.b->binary(op, x.id, y.id)}; }
inline Expr compare(ir::CompareOp op, Expr x, Expr y) { return {x.b, x.b->compare(op, x.id, y.id)}; }
inline Expr math(ir::MathOp op, Expr x) { return {x.b, x.b->math(op, x.id)}; }
inline Expr cast(DType to, Expr x) { return {x.b, x.b->cast(to, x.id)}; }
inline Expr bitcast(DType to, Expr x) { return {x.b, x.b->bitcast(to, x.id)}; }
inline Expr select(Expr c, Expr x, Expr y) { return {x.b, x.b->select(c.id, x.id, y.id)}; }
inline Expr select(Expr c, double x, Expr y) { return select(c, y.like(x), y); }
inline Expr select(Expr c, Expr x, double y) { return select(c, x, x.like(y)); }
inline Expr fma(Expr x, Expr y, Expr z) { return {x.b, x.b->math(ir::MathOp::fma, x.id, y.id, z.id)}; }
inline Expr fma(Expr x, double y, Expr z) { return fma(x, x.like(y), z); }
inline Expr fma(Expr x, Expr y, double z) { return fma(x, y, x.like(z)); }
inline Expr operator-(Expr x) { return {x.b, x.b->unary(ir::UnaryOp::neg, x.id)}; }
inline Expr operator!(Expr x) { return {x.b, x.b->unary(ir::UnaryOp::not_, x.id)}; }
inline Expr abs(Expr x) { return {x.b, x.b->unary(ir::UnaryOp::abs, x.id)}; }

#define TESSERA_EXPR_OPERATOR(name, function, kind)                           \
  inline Expr name(Expr x, Expr y) { return function(kind, x, y); }           \
  inline Expr name(Expr x, double y) { return function(kind, x, x.like(y)); } \
  inline Expr name(double x, Expr y) { return function(kind, y.like(x), y); }
TESSERA_EXPR_OPERATOR(operator+, binary, ir::BinaryOp::add)
TESSERA_EXPR_OPERATOR(operator-, binary, ir::BinaryOp::sub)
TESSERA_EXPR_OPERATOR(operator*, binary, ir::BinaryOp::mul)
TESSERA_EXPR_OPERATOR(operator/, binary, ir::BinaryOp::div)
TESSERA_EXPR_OPERATOR(operator&, binary, ir::BinaryOp::and_)
TESSERA_EXPR_OPERATOR(operator|, binary, ir::BinaryOp::or_)
TESSERA_EXPR_OPERATOR(operator^, binary, ir::BinaryOp::xor_)
TESSERA_EXPR_OPERATOR(operator<<, binary, ir::BinaryOp::shl)
TESSERA_EXPR_OPERATOR(operator>>, binary, ir::BinaryOp::shr)
TESSERA_EXPR_OPERATOR(min, binary, ir::BinaryOp::min)
TESSERA_EXPR_OPERATOR(max, binary, ir::BinaryOp::max)
TESSERA_EXPR_OPERATOR(operator==, compare, ir::CompareOp::eq)
TESSERA_EXPR_OPERATOR(operator!=, compare, ir::CompareOp::ne)
TESSERA_EXPR_OPERATOR(operator<, compare, ir::CompareOp::lt)
TESSERA_EXPR_OPERATOR(operator<=, compare, ir::CompareOp::le)
TESSERA_EXPR_OPERATOR(operator>, compare, ir::CompareOp::gt)
TESSERA_EXPR_OPERATOR(operator>=, compare, ir::CompareOp::ge)
#undef TESSERA_EXPR_OPERATOR

}  // namespace tessera::emit
