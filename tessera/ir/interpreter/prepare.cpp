// SPDX-License-Identifier: Apache-2.0
// Translates a function to instructions: assigns a slab offset to each value and a loop to each node.
#include <map>

#include "tessera/base/error.h"
#include "tessera/ir/interpreter/machine.h"

namespace tessera::ir::engine {

namespace {

class Preparation {
 public:
  Preparation(Function fn, const InterpreterOptions& options) {
    p_.fn = std::move(fn);
    p_.options = options;
    if (options.subgroup_width < 1 || options.subgroup_width > 128)
      fail<ArgumentError>({.operation = "interpreter",
                           .wrong = "a subgroup must have 1 to 128 threads",
                           .remedy = "This one has " + std::to_string(options.subgroup_width)});
    p_.lanes = p_.fn.kind == KernelKind::map ? 256 : p_.fn.threads_per_block();
    p_.stride = (p_.lanes + 63) / 64 * 64;
  }

  Program run() {
    const Function& fn = p_.fn;
    places_.resize(fn.nodes.size());
    memory_of_.resize(fn.nodes.size());
    p_.all_mask = room(p_.stride);
    p_.scratch_mask = room(p_.stride);
    p_.blocks.resize(fn.blocks.size());
    for (NodeId id = 1; id < fn.nodes.size(); ++id) leaf(id);
    find_uses(0);
    block(0);
    return std::move(p_);
  }

 private:
  [[noreturn]] void wrong(NodeId id, const std::string& what) const {
    const std::string line = to_string(p_.fn.sources[id]);
    fail<KernelError>({.operation = "kernel " + p_.fn.name + (line.empty() ? "" : ", " + line),
                       .wrong = what,
                       .remedy = "Pass a function that canonicalise and verify have accepted"});
  }
  DType resolved(DType t) const {
    // If checks are on, 32-bit indices are computed in 64 bits to detect overflow.
    if (t != DType::index) return t;
    return p_.fn.index64 || p_.options.checks ? DType::i64 : DType::i32;
  }
  DType type_of(NodeId id) const { return resolved(p_.fn[id].type.dtype); }

  std::size_t room(std::size_t bytes) {
    const std::size_t at = p_.slab_bytes;
    p_.slab_bytes += (bytes + 63) / 64 * 64;
    return at;
  }
  std::size_t value_bytes(DType t, std::uint32_t width) const { return std::size_t{p_.stride} * dtype_size(t) * width; }
  std::size_t value_room(DType t, std::uint32_t width = 1) { return room(value_bytes(t, width)); }

  void leaf(NodeId id) {
    const Node& n = p_.fn[id];
    const Type type = n.type;
    switch (n.op) {
      case Op::local:
      case Op::shared: {
        MemorySlot slot;
        slot.kind = n.op == Op::local ? MemorySlot::local : MemorySlot::shared;
        slot.node = id;
        slot.dtype = resolved(type.dtype);
        slot.lanes = type.lanes;
        slot.elements = n.imm;
        if (is_fragment(n)) {
          slot.lanes = 1;
          slot.dtype = DType::f32;
          const std::uint32_t width = p_.options.subgroup_width;
          slot.bytes = (p_.lanes + width - 1) / width * n.imm * sizeof(float);
        } else {
          slot.bytes = n.op == Op::local ? value_bytes(slot.dtype, type.lanes) * n.imm : n.imm * dtype_size(slot.dtype);
        }
        slot.offset = room(slot.bytes);
        slot.name = std::string(op_name(n.op)) + std::to_string(n.extra);
        memory_of_[id] = static_cast<std::uint32_t>(p_.memories.size());
        p_.memories.push_back(slot);
        return;
      }
      case Op::param:
        if (p_.fn.params[n.imm].is_buffer) {
          MemorySlot slot;
          slot.node = id;
          slot.dtype = resolved(type.dtype);
          slot.parameter = n.imm;
          slot.name = p_.fn.params[n.imm].name;
          memory_of_[id] = static_cast<std::uint32_t>(p_.memories.size());
          p_.memories.push_back(slot);
          return;
        }
        break;
      case Op::constant: break;
      case Op::index: {
        const IndexKind kind = n.kind<IndexKind>();
        const bool block_only =
            kind == IndexKind::thread_id || kind == IndexKind::block_id || kind == IndexKind::block_count ||
            kind == IndexKind::lane_id || kind == IndexKind::subgroup_id || kind == IndexKind::subgroup_size ||
            kind == IndexKind::subgroup_count || kind == IndexKind::lane_elements || kind == IndexKind::lane_rows;
        if (block_only && p_.fn.kind == KernelKind::map)
          wrong(id, std::string(name_of(kind)) + " is not available in a map kernel");
        places_[id] = value_room(type_of(id));
        if (kind == IndexKind::counter) return;
        const bool of_block = kind == IndexKind::global_id || kind == IndexKind::block_id;
        (of_block ? p_.block_leaves : p_.run_leaves).push_back({id, type_of(id), places_[id]});
        return;
      }
      default: return;
    }
    places_[id] = value_room(type_of(id));
    p_.run_leaves.push_back({id, type_of(id), places_[id]});
  }

  // Finds the last use of each value that is used only in the block that defines it. Its slab space is free after that.
  NodeId root(NodeId id) const {
    const Node& n = p_.fn[id];
    return n.op == Op::vector && n.kind<VectorOp>() == VectorOp::extract ? root(n.args[0]) : id;
  }
  void find_uses(BlockId b) {
    if (home_.empty()) home_.resize(p_.fn.nodes.size(), no_block), last_use_.resize(p_.fn.nodes.size());
    for (NodeId id : p_.fn.blocks[b]) home_[id] = b;
    for (NodeId id : p_.fn.blocks[b]) {
      const Node& n = p_.fn[id];
      for_each_nested(n, [&](BlockId inner) { find_uses(inner); });
      for (NodeId a : operands(n)) {
        const NodeId r = root(a);
        if (home_[r] == b && n.op != Op::while_)
          last_use_[r] = id;
        else
          home_[r] = no_block;
      }
    }
  }
  std::size_t take(DType t, std::uint32_t width) {
    auto& list = free_[{t == DType::boolean,
                        value_bytes(t, width)}];  // bool lanes must be 0 or 1, so they are not reused for other types
    if (list.empty()) return value_room(t, width);
    const std::size_t at = list.back();
    list.pop_back();
    return at;
  }
  void free_after(BlockId b, NodeId user) {
    for (NodeId a : operands(p_.fn[user])) {
      const NodeId r = root(a);
      const Node& n = p_.fn[r];
      if (is_leaf(n.op) || home_[r] != b || last_use_[r] != user) continue;
      home_[r] = no_block;
      free_[{type_of(r) == DType::boolean, value_bytes(type_of(r), n.type.lanes)}].push_back(places_[r]);
    }
  }

  std::vector<Instruction>& into(BlockId b) { return p_.blocks[b]; }
  void check_index(BlockId b, NodeId user, NodeId index) {
    if (!p_.options.checks || p_.fn.index64 || p_.fn[index].type.dtype != DType::index ||
        p_.fn[index].op == Op::constant)
      return;
    Instruction i;
    i.run = index_check_loop();
    i.node = user;
    i.in[0] = places_[index];
    into(b).push_back(i);
  }
  /// Returns the offset and type of an index that is stored as i32 or i64 lanes.
  std::pair<std::size_t, DType> index_operand(BlockId b, NodeId user, NodeId index) {
    const DType t = type_of(index);
    if (t == DType::i32 || t == DType::i64) return {places_[index], t};
    Instruction i;
    i.run = cast_loop(DType::i64, t);
    i.node = user;
    i.in[0] = places_[index];
    i.out = value_room(DType::i64);
    into(b).push_back(i);
    return {i.out, DType::i64};
  }

  void memory_operand(Instruction& i, NodeId memory) {
    const Node& m = p_.fn[memory];
    if (m.op != Op::local && m.op != Op::shared && !(m.op == Op::param && p_.fn.params[m.imm].is_buffer))
      wrong(i.node, std::string(op_name(p_.fn[i.node].op)) + " requires memory");
    i.memory = memory_of_[memory];
  }

  void block(BlockId b) {
    for (NodeId id : p_.fn.blocks[b]) {
      node(b, id);
      free_after(b, id);
    }
  }
  void node(BlockId b, NodeId id) {
    const Node& n = p_.fn[id];
    const bool checks = p_.options.checks;
    Instruction i;
    i.node = id;
    i.width = n.type.lanes;
    const auto args = operands(n);
    for (std::size_t k = 0; k < args.size(); ++k) i.in[k] = places_[args[k]];
    const bool gives = has_result(n.op);
    if (n.op == Op::vector && n.kind<VectorOp>() == VectorOp::extract) {
      places_[id] = places_[n.args[0]] + value_bytes(type_of(id), 1) * n.imm;
      return;
    }
    if (gives) i.out = places_[id] = take(type_of(id), n.type.lanes);

    switch (n.op) {
      case Op::unary:
      case Op::binary:
      case Op::compare:
      case Op::math:
      case Op::dot4:
        if (n.op == Op::compare) check_index(b, id, n.args[0]), check_index(b, id, n.args[1]);
        i.run = pure_loop(n, type_of(id), type_of(n.args[0]));
        break;
      case Op::select: i.run = select_loop(type_of(id)); break;
      case Op::cast:
        if (is_float(n.type.dtype) || dtype_size(n.type.dtype) == 8) check_index(b, id, n.args[0]);
        i.run = cast_loop(type_of(id), type_of(n.args[0]));
        break;
      case Op::bitcast: i.run = copy_loop(type_of(id)); break;
      case Op::vector: i.run = copy_loop(type_of(id)); break;
      case Op::subgroup: {
        DType lane = DType::i32;
        if (n.args[1] != no_node) std::tie(i.in[1], lane) = index_operand(b, id, n.args[1]);
        i.run = subgroup_loop(n.kind<SubgroupOp>(), type_of(id), lane, checks);
        break;
      }
      case Op::block_reduce:
      case Op::block_scan:
      case Op::block_uniform: i.run = block_loop(n.op, n.kind<ReduceOp>(), type_of(id), n.imm != 0, checks); break;
      case Op::load:
      case Op::load_if:
      case Op::store:
      case Op::atomic: memory_access(b, n, i); break;
      case Op::mma: matrix(b, n, i); break;
      case Op::place: i.run = place_loop(n.kind<PlaceOf>(), type_of(n.args[0])); break;
      case Op::async: async(b, n, i); break;
      case Op::barrier: i.run = barrier_loop(checks); break;
      case Op::print: i.run = print_loop(); break;
      case Op::if_:
        i.run = if_loop();
        i.masks = room(2 * p_.stride);
        i.nested = {n.args[1], n.args[2]};
        block(n.args[1]);
        if (n.args[2] != no_block) block(n.args[2]);
        break;
      case Op::for_:
        for (int k = 0; k < 2; ++k) check_index(b, id, n.args[static_cast<std::size_t>(k)]);
        i.run = for_loop(type_of(n.args[0]));
        i.masks = room(p_.stride);
        i.out = places_[n.args[3]];
        i.nested = {n.extra, no_block};
        block(n.extra);
        break;
      case Op::while_:
        i.run = while_loop();
        i.masks = room(p_.stride);
        i.nested = {n.args[1], n.extra};
        block(n.args[1]);
        i.in[0] = places_[n.args[0]];
        block(n.extra);
        break;
      default: break;
    }
    if (!i.run)
      wrong(id, std::string(op_name(n.op)) + " cannot be interpreted" + (gives ? " on " + type_name(n.type) : ""));
    into(b).push_back(i);
  }

  /// Sets the operands of the instruction to the index, followed by mask and other or by value and expected.
  void memory_access(BlockId b, const Node& n, Instruction& i) {
    memory_operand(i, n.args[0]);
    const bool checks = p_.options.checks;
    const MemorySlot& slot = p_.memories[i.memory];
    const auto [index_place, index_type] = index_operand(b, i.node, n.args[1]);
    i.in = {index_place, places_[n.args[2]], places_[n.args[3]], 0};
    const Node& index = p_.fn[n.args[1]];
    const bool known = slot.kind == MemorySlot::local && index.op == Op::constant && index.imm < slot.elements;
    i.imm = index.imm;
    if (is_accumulator(p_.fn[n.args[0]])) {
      i.run = n.op == Op::load || n.op == Op::store ? element_loop(index_type, n.op == Op::store) : nullptr;
    } else if (is_fragment(p_.fn[n.args[0]])) {
      i.run = n.op == Op::store ? store_pair_loop(index_type) : nullptr;
    } else if (n.op == Op::atomic) {
      i.run =
          slot.kind == MemorySlot::local ? nullptr : atomic_loop(n.kind<AtomicOp>(), slot.dtype, index_type, checks);
    } else if (n.op == Op::store) {
      i.width = p_.fn[n.args[2]].type.lanes;
      i.run = known ? local_store_constant(slot.dtype) : store_loop(slot.dtype, index_type, slot.kind, checks);
    } else {
      const bool masked = n.op == Op::load_if;
      i.run = known && !masked ? local_load_constant(slot.dtype)
                               : load_loop(slot.dtype, index_type, slot.kind, masked, checks);
    }
  }

  /// Sets the operands of the instruction to the offsets of the fragments, followed by index and stride or by the
  /// value.
  void matrix(BlockId b, const Node& n, Instruction& i) {
    const auto place = [&](NodeId fragment) {
      if (!is_fragment(p_.fn[fragment])) wrong(i.node, "mma requires a fragment");
      return p_.memories[memory_of_[fragment]].offset;
    };
    const MmaOp op = n.kind<MmaOp>();
    DType index = DType::i32, stride = DType::i32;
    if (op == MmaOp::multiply) {
      i.in = {place(n.args[0]), place(n.args[1]), place(n.args[2]), 0};
    } else if (op == MmaOp::convert) {
      i.in = {place(n.args[0]), place(n.args[1]), 0, 0};
    } else if (op == MmaOp::reduce_rows) {
      memory_operand(i, n.args[0]);
      i.in = {0, place(n.args[1]), 0, 0};
      i.imm = n.imm;
    } else if (op == MmaOp::fill) {
      i.in = {place(n.args[0]), places_[n.args[1]], 0, 0};
    } else {
      memory_operand(i, n.args[1]);
      i.in = {place(n.args[0]), 0, 0, 0};
      std::tie(i.in[1], index) = index_operand(b, i.node, n.args[2]);
      std::tie(i.in[2], stride) = index_operand(b, i.node, n.args[3]);
    }
    if (index == stride) i.run = matrix_loop(op, index, p_.options.checks);
  }

  /// Sets the operands of the instruction to the index in shared memory and the index in the buffer.
  void async(BlockId b, const Node& n, Instruction& i) {
    DType to = DType::i32, from = DType::i32;
    i.imm = n.imm;
    if (n.kind<AsyncOp>() == AsyncOp::copy) {
      memory_operand(i, n.args[0]);
      i.in[2] = memory_of_[n.args[2]];
      std::tie(i.in[0], to) = index_operand(b, i.node, n.args[1]);
      std::tie(i.in[1], from) = index_operand(b, i.node, n.args[3]);
    }
    if (to == from) i.run = async_loop(n.kind<AsyncOp>(), to, p_.options.checks);
  }

  Program p_;
  std::vector<std::size_t> places_;
  std::vector<std::uint32_t> memory_of_;
  std::vector<BlockId> home_;
  std::vector<NodeId> last_use_;
  std::map<std::pair<bool, std::size_t>, std::vector<std::size_t>> free_;
};

}  // namespace

Program prepare(Function fn, const InterpreterOptions& options) { return Preparation(std::move(fn), options).run(); }

}  // namespace tessera::ir::engine
