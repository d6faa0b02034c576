// SPDX-License-Identifier: Apache-2.0
// Writes one kernel. Decides which values become variables, and writes the text of expressions and statements. Used
// only by emit_c.
#pragma once

#include <array>
#include <set>
#include <string>
#include <vector>

#include "tessera/emit/c_emitter.h"

namespace tessera::emit {

/// The precedence of the outermost operator of an expression, as in C's grammar.
enum class Binding : std::uint8_t {
  conditional,
  logical_or,
  logical_and,
  bit_or,
  bit_xor,
  bit_and,
  equal,
  less,
  shift,
  sum,
  product,
  unary,
  primary
};

/// The text of an expression.
struct Text {
  std::string s;
  Binding binding = Binding::primary;
  bool loads = false;         ///< reads memory, so it must not be moved past a statement that writes
  std::string wrapping = {};  ///< the same value as an unsigned expression, without the cast to the signed type
  Binding wrapping_binding = Binding::primary;
};

class CWriter {
 public:
  CWriter(const ir::Function& fn, const Dialect& dialect, bool noalias, Prelude& prelude);
  EmittedKernel run(const std::string& entry);

 private:
  struct Use {
    std::uint32_t count = 0;
    ir::BlockId block = ir::no_block;
    bool one_block = true;
  };
  // Names and signature.
  std::string fresh_name(std::string wanted);
  void name_parameters();
  void name_leaf(ir::NodeId id);
  /// The buffer lengths and grid sizes that the kernel reads.
  struct Sizes {
    std::vector<bool> of_buffers;
    std::array<bool, 3> extents{};
  };
  Sizes used_sizes() const;
  std::string signature(const std::string& entry, EmittedKernel& kernel);
  std::string metal_signature(const std::string& entry, EmittedKernel& kernel);
  std::string declarations(EmittedKernel& kernel);

  // Uses.
  void count_uses(ir::BlockId b);
  void use(ir::NodeId id, ir::BlockId b);

  // Values.
  Text take(ir::NodeId id);  ///< returns the text of an operand; call it only once for an inlined value
  Text expression(ir::NodeId id);
  Text unary(const ir::Node& n);
  Text binary(const ir::Node& n);
  Text wrapping(const ir::Node& n, const char* op, Binding level, const Text& a, const Text& b);
  Text compare(const ir::Node& n);
  Text cast(DType to, DType from, const Text& a);
  Text math(const ir::Node& n);
  Text vector(const ir::Node& n);
  Text load(const ir::Node& n);
  Text atomic(const ir::Node& n);
  Text metal_atomic(const ir::Node& n);
  Text metal_mul_high(DType t, const Text& a, const Text& b);
  Text subgroup(const ir::Node& n);
  std::string element(ir::NodeId memory, ir::NodeId index, bool* loads = nullptr);
  std::string unsigned_operand(const Text& t, DType type, ir::NodeId id, Binding at_least);
  Text infix(const Text& a, const char* op, const Text& b, Binding level) const;
  Text call(const std::string& function, std::initializer_list<Text> arguments) const;
  std::string value_type(ir::Type t) const;

  // Statements.
  void line(const std::string& text);
  void block(ir::BlockId b);
  void statement(ir::NodeId id, ir::BlockId b);
  void define(ir::NodeId id, const Text& text);
  void flush_pending(bool all);  ///< writes variables for pending values: only for those that read memory, or for all
  void store(const ir::Node& n);
  void print(const ir::Node& n);
  void matrix(const ir::Node& n);
  void async(const ir::Node& n);
  std::string address(ir::NodeId memory, const Text& at) const;  ///< pointer to an element
  void loop_for(const ir::Node& n);
  void loop_while(const ir::Node& n);
  [[noreturn]] void refuse(ir::NodeId id, const std::string& what) const;

  const ir::Function& fn_;
  const Dialect& dialect_;
  bool noalias_;
  Prelude& prelude_;
  std::vector<Use> uses_;
  std::vector<std::string> names_;  ///< names of leaves and of values that became variables
  std::vector<Text> pending_;
  std::vector<ir::NodeId> pending_order_;
  std::vector<std::string> parameter_names_, offset_names_, size_names_;  // one per parameter
  std::set<std::string> taken_;
  std::string body_;
  int depth_ = 1;
  int values_ = 0;
};

}  // namespace tessera::emit
