// SPDX-License-Identifier: Apache-2.0
#include "tessera/array/elementwise_rule.h"

#include <map>
#include <mutex>
#include <tuple>

#include "tessera/array/elementwise.h"
#include "tessera/base/os/fork.h"
#include "tessera/ir/derivative.h"
#include "tessera/ir/semantics.h"

namespace tessera::detail {

namespace {

/// Describes how to compute the adjoint of one operand with operations on arrays and scalars. The operations read the
/// operands, the result, the adjoint of the result, constants, and the results of earlier operations.
struct Recipe {
  struct Operation {
    ir::Op op;
    std::uint8_t sub;
    DType dtype;
    std::vector<std::size_t> args;  ///< indices into all values: parameters, constants, then operations
  };
  static constexpr std::size_t result = 3, adjoint = 4, parameters = 5;
  std::vector<double> constants;
  std::vector<Operation> operations;
  std::vector<std::uint32_t> uses;  ///< the number of uses of each value; the outcome counts as a use
  std::size_t outcome = 0;
  bool exists = false;  ///< true if the operand has an adjoint

  bool reads(std::size_t parameter) const { return exists && uses[parameter] != 0; }
};

struct Key {
  ir::Op op;
  std::uint8_t sub;
  DType dtype;
  std::array<DType, 3> operands;
  std::uint8_t count, of;
  friend auto operator<=>(const Key&, const Key&) = default;
};

Recipe traced(const Key& key) {
  ir::Builder builder("adjoint", ir::KernelKind::map);
  ir::Builder::Scope scope(builder);
  builder.set_exact();
  std::vector<ir::Value> operands;
  for (std::size_t i = 0; i < 3; ++i) {
    const ir::Value v = ir::scalar_param("x" + std::to_string(i), key.operands[i]);
    if (i < key.count) operands.push_back(v);
  }
  const ir::Value result = ir::scalar_param("result", key.dtype), adjoint = ir::scalar_param("adjoint", key.dtype);
  const ir::Value wanted =
      ir::adjoints({.op = key.op, .sub = key.sub, .type = {key.dtype}}, operands, result, adjoint)[key.of];
  Recipe recipe;
  if (!wanted.valid()) return recipe;
  recipe.exists = true;
  ir::buffer_param("out", wanted.dtype(), ir::Access::read_write).store(ir::index_literal(0), wanted);

  const ir::Function fn = builder.finish();
  std::map<ir::NodeId, std::size_t> places;
  std::size_t last = 0;
  for (const ir::NodeId id : fn.blocks[0]) {
    const ir::Node& n = fn[id];
    for (const ir::NodeId arg : ir::operands(n)) {
      const ir::Node& a = fn[arg];
      if (places.count(arg)) continue;
      if (a.op == ir::Op::param) places[arg] = a.imm;
      if (a.op == ir::Op::constant && is_float(a.type.dtype)) {
        places[arg] = Recipe::parameters + recipe.constants.size();
        recipe.constants.push_back(a.type.dtype == DType::f64
                                       ? ir::from_bits<double>(DType::f64, a.imm)
                                       : static_cast<double>(ir::from_bits<float>(a.type.dtype, a.imm)));
      }
    }
    if (n.op == ir::Op::store) last = n.args[2];
  }
  for (const ir::NodeId id : fn.blocks[0]) {
    const ir::Node& n = fn[id];
    if (n.op == ir::Op::store) continue;
    Recipe::Operation o{n.op, n.sub, n.type.dtype, {}};
    for (const ir::NodeId arg : ir::operands(n)) o.args.push_back(places.at(arg));
    places[id] = Recipe::parameters + recipe.constants.size() + recipe.operations.size();
    recipe.operations.push_back(std::move(o));
  }
  recipe.outcome = places.at(static_cast<ir::NodeId>(last));
  recipe.uses.resize(Recipe::parameters + recipe.constants.size() + recipe.operations.size());
  for (const auto& o : recipe.operations)
    for (const std::size_t arg : o.args) ++recipe.uses[arg];
  ++recipe.uses[recipe.outcome];
  return recipe;
}

const Recipe& recipe_for(const Key& key) {
  struct Known {
    std::mutex lock;
    std::map<Key, Recipe> all;
  };
  static constinit os::PerProcess<Known> the_known;
  auto& [lock, known] = the_known.get();
  std::lock_guard hold(lock);
  const auto found = known.find(key);
  return found != known.end() ? found->second : known.emplace(key, traced(key)).first->second;
}

// Evaluates an operation on host scalars.
double folded(const Recipe::Operation& o, std::span<const double> x) {
  switch (o.op) {
    case ir::Op::unary: return ir::apply(static_cast<ir::UnaryOp>(o.sub), x[0]);
    case ir::Op::binary:
      if (o.dtype == DType::boolean) return ir::apply(static_cast<ir::BinaryOp>(o.sub), x[0] != 0, x[1] != 0) ? 1 : 0;
      return ir::apply(static_cast<ir::BinaryOp>(o.sub), x[0], x[1]);
    case ir::Op::compare: return ir::apply(static_cast<ir::CompareOp>(o.sub), x[0], x[1]) ? 1 : 0;
    case ir::Op::select: return x[0] != 0 ? x[1] : x[2];
    case ir::Op::math:
      return ir::apply(static_cast<ir::MathOp>(o.sub), x[0], x.size() > 1 ? x[1] : 0, x.size() > 2 ? x[2] : 0);
    default: return x[0];  // a cast between floats
  }
}

ArrayOperand computed(const Recipe& recipe, std::vector<ArrayOperand> values) {
  std::vector<std::uint32_t> uses = recipe.uses;
  const auto take = [&](std::size_t i) { return --uses[i] == 0 ? std::move(values[i]) : values[i]; };
  for (const auto& o : recipe.operations) {
    std::vector<ArrayOperand> args;
    bool host = true;
    for (const std::size_t arg : o.args) {
      host = host && !values[arg].is_array();
      args.push_back(take(arg));
    }
    if (host) {
      std::vector<double> numbers;
      for (const ArrayOperand& a : args) numbers.push_back(a.value());
      values.emplace_back(folded(o, numbers));
    } else if (o.op == ir::Op::select && !args[0].is_array()) {
      values.push_back(args[args[0].value() != 0 ? 1 : 2]);
    } else if (o.op == ir::Op::math && static_cast<ir::MathOp>(o.sub) == ir::MathOp::pow && !args[1].is_array() &&
               args[1].value() == 1) {
      values.push_back(std::move(args[0]));
    } else {
      // Scalars are converted to the dtype of the array operands.
      DType scalars = o.dtype;
      if (o.op == ir::Op::compare)
        for (const ArrayOperand& a : args)
          if (a.is_array()) scalars = a.dtype();
      if (scalars == DType::f16 || scalars == DType::bf16) scalars = DType::f32;
      values.emplace_back(elementwise("gradient", o.op, o.sub, o.dtype, scalars, args));
    }
  }
  return take(recipe.outcome);
}

}  // namespace

Rule elementwise_rule(ir::Op op, std::uint8_t sub, DType dtype, DType scalars, std::span<const ArrayOperand> operands) {
  Rule rule;
  Key key{op, sub, dtype, {DType::f32, DType::f32, DType::f32}, static_cast<std::uint8_t>(operands.size()), 0};
  for (std::size_t i = 0; i < operands.size(); ++i)
    key.operands[i] = operands[i].is_array() ? operands[i].dtype() : scalars;
  std::array<const Recipe*, 3> recipes{};
  std::vector<ArrayOperand> values;  // arrays are represented by 0
  for (std::size_t i = 0; i < Recipe::parameters; ++i)
    values.push_back(i < operands.size() && !operands[i].is_array() ? operands[i] : ArrayOperand(0.0));
  for (std::size_t i = 0; i < operands.size(); ++i) {
    if (!operands[i].is_array() || !operands[i].array().has_history()) continue;
    key.of = static_cast<std::uint8_t>(i);
    recipes[i] = &recipe_for(key);
    for (std::size_t p = 0; p < operands.size(); ++p)
      if (operands[p].is_array() && recipes[i]->reads(p)) rule.keeps |= operand_bits(p);
    rule.keeps_result = rule.keeps_result || recipes[i]->reads(Recipe::result);
  }
  rule.backward = [recipes, values = std::move(values), keeps = rule.keeps](Backward& b) {
    for (std::size_t i = 0; i < recipes.size(); ++i) {
      if (recipes[i] == nullptr || !recipes[i]->exists) continue;
      const Recipe& recipe = *recipes[i];
      b.add(i, [&] {
        std::vector<ArrayOperand> all = values;
        for (std::size_t p = 0; p < recipes.size(); ++p)
          if (recipe.reads(p) && (keeps >> p & 1) != 0) all[p] = b.operand(p);
        if (recipe.reads(Recipe::result)) all[Recipe::result] = b.result();
        all[Recipe::adjoint] = b.adjoint();
        for (const double value : recipe.constants) all.emplace_back(value);
        ArrayOperand outcome = computed(recipe, std::move(all));
        if (outcome.is_array()) return outcome.take();
        const Array& g = b.adjoint();  // The derivative is constant, for example that of x^0.
        return Array::full({}, outcome.value(), g.dtype(), g.device()).broadcast_to(g.shape());
      });
    }
  };
  return rule;
}

}  // namespace tessera::detail
