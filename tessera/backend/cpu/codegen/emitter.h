// SPDX-License-Identifier: Apache-2.0
// Generates LLVM IR with explicit vectors from a lowered kernel. Threads become lanes, and divergent control flow
// becomes masks. Barriers split the kernel into regions, which are loops over chunks of lanes. The members of Emitter
// are defined in the files emit_*.cpp.
#pragma once

#include <array>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "tessera/backend/cpu/codegen/access.h"
#include "tessera/backend/cpu/codegen/plan.h"
#include "tessera/backend/cpu/codegen/values.h"

namespace tessera::cpu {

/// Runs after LLVM's optimisations (see addresses.cpp).
void keep_addresses(llvm::Module& module);

class Emitter final : public Values {
 public:
  Emitter(llvm::Module& module, const ir::Function& fn, const TargetTraits& target, const GenerateOptions& options);

  /// Adds two functions to the module: the kernel's body, and the entry point `entry_name`, which has the signature of
  /// KernelEntry.
  void run(const std::string& entry_name);
  std::size_t scratch_bytes() const { return shared_bytes_ + context_bytes_; }

 private:
  // The LLVM value of a node. Depending on the shape, it is the scalar of lane 0 or a vector with one element per lane.
  struct ShapedValue {
    Shape shape;
    Value* value = nullptr;
  };
  // The memory of a local variable. Depending on the shape, there is one `element` per thread, chunk or block.
  struct Local {
    Value* pointer = nullptr;  // current address
    Value* own = nullptr;      // an alloca, which becomes registers; null for arrays in context memory
    llvm::Type* element = nullptr;
    std::size_t context = 0;  // offset in context memory
    std::size_t chunk_bytes = 0;
  };

  // emit_kernel.cpp
  void make_functions(const std::string& entry_name);
  void lay_out_memory();
  void map_kernel();
  Value* lanes_to_alignment(Value* x, Value* count);
  void block_kernel();
  void chunk_body(Value* mask);
  void steps(const Steps& list);
  void control_step(const Step& step);
  void region(const Region& r);
  void begin_chunk(const Region& r, Value* chunk);
  void region_chunk(const Region& r, Value* chunk);
  void spill(NodeId id, Value* chunk);
  void reload(NodeId id, Value* chunk);
  void clear_local(NodeId id);
  void start_reduction(NodeId id);
  void accumulate(NodeId id, Value* mask);
  void finish_reduction(NodeId id);
  void scan(NodeId id, Value* mask);
  Value* block_scalar(NodeId id);
  Value* context_pointer(std::size_t offset, std::size_t chunk_bytes, Value* chunk);
  llvm::AllocaInst* stack(llvm::Type* type, const llvm::Twine& name);
  Value* loop_begin(Value* begin, Value* end, const char* name);  // a loop with step 1; returns the counter
  void loop_end();

  // emit_statement.cpp
  void statements(ir::BlockId block, Value* mask);
  void statement(NodeId id, Value* mask);
  void if_statement(const ir::Node& n, Value* mask);
  void for_statement(const ir::Node& n, Value* mask);
  void varying_for(const ir::Node& n, Value* mask);
  Value* has_next_iteration(Value* counter, Value* end, Value* by);
  void while_statement(const ir::Node& n, Value* mask);
  void load(NodeId id, Value* mask);
  void local_load(NodeId id, Value* mask);
  void store(NodeId id, Value* mask);
  void local_store(const ir::Node& n, Value* mask);
  void print(const ir::Node& n, Value* mask);
  bool short_body(ir::BlockId block) const;
  template <class F>
  void each_active_lane(Value* mask, F&& f);  // calls f with the number of each active lane, an i32
  template <class F>
  void if_any(Value* mask, F&& f);
  Value* any(Value* mask);
  Value* mask_and(Value* mask, Value* condition);  // `mask` is null if all lanes are active
  Value* last_active(Value* vector, Value* mask);
  Value* local_lane_pointers(const ir::Node& n);
  Value* masked_load(llvm::Type* element, Value* pointer, Value* mask, Value* other, unsigned align);
  bool reads_packed_weight(const ir::Node& load) const;
  void prefetch(Value* address);

  // emit_atomics.cpp
  void atomic(NodeId id, Value* mask);
  Value* atomic_scalar(const ir::Node& n, Value* pointer, Value* value, Value* expected);
  Value* scalar_of_lane(Value* vector, unsigned lane, int steps = 3);
  Value* lane_of(Value* vector, unsigned lane, Value*& pair);

  // emit_strided.cpp
  struct Piece {  // a register that contains lane i + shift in element i
    Value* value = nullptr;
    int shift = 0;
    friend bool operator==(const Piece&, const Piece&) = default;
  };
  struct PendingStores {  // stores to struct members, deferred until all members have been stored
    std::uint32_t window;
    NodeId id;  // one of the stores
    std::vector<Value*> members;
    Value* mask;
    unsigned missing;
  };
  Value* strided_load(NodeId id, Value* mask);
  void strided_store(NodeId id, Value* value, Value* mask);
  bool disjoint(NodeId a, NodeId b) const;  // true if the buffers cannot overlap; neither is a local
  bool can_pass_pending_stores(NodeId id) const;
  void flush_pending_stores();
  void store_members(const PendingStores& w);
  bool masks_in_hardware(DType t) const;
  int register_lanes(DType t) const;
  Value* first_lanes(int n, int active);
  Value* window_address(NodeId id);
  Value* reversed(Value* vector);
  Value* some_lanes(Value* vector, int first, int n);
  Value* element_mask(Value* mask, int first, int n, const std::vector<bool>& wanted);
  std::vector<Piece> load_full_registers(Value* first, DType t, int total, int count);
  Value* take_strided(const std::vector<Piece>& pieces, int stride, int residue, int n);
  static constexpr unsigned most_few = 4;
  template <class Few, class Any>
  void if_few(Shape shape, Value* step, unsigned most, Few&& few, Any&& any);
  Value* load_by_lane(NodeId id);
  void store_by_lane(NodeId id, Value* first, Value* value);
  Value* lane_address(Value* first, llvm::Type* element, Value* step, unsigned lane);
  Value* stride_of(Shape shape);  // an i64

  // emit_rows.cpp
  static constexpr int tile_columns = 4;
  bool reads_rows(const ir::Node& loop);  // fills tiles_
  std::optional<std::int64_t> per_round(NodeId id, const ir::Node& loop, int& steps) const;
  Value* tiled_load(NodeId id);
  Value* unpacked(Value* a, Value* b, unsigned each, unsigned size, bool high);
  std::array<Value*, tile_columns> transposed(const std::array<Value*, tile_columns>& rows);
  void store_rows(const PendingStores& w);

  // emit_block_stride.cpp
  bool is_thread_id_plus_uniform(NodeId id) const;
  NodeId find_block_stride_loop(const Region& r) const;
  void emit_full_iterations(const Region& r, NodeId loop);

  // emit_interleave.cpp
  struct Origin {  // the registers from which a vector with one struct member was extracted
    std::uint32_t window = 0;
    int residue = 0;
    std::vector<Piece> registers;
    friend bool operator==(const Origin&, const Origin&) = default;
  };
  Value* pick(Piece a, Piece b, std::vector<int> from);
  Value* deinterleaved(std::vector<Piece> pieces, int residue, int n);
  std::vector<Value*> interleaved(const std::vector<Value*>& members, int n);
  std::vector<Value*> joined(const std::vector<Value*>& members, int n);
  std::vector<Value*> flat(const std::vector<Value*>& members, int n);
  std::vector<Value*> flat(const std::vector<Value*>& members, int n, int& shuffled, int& steps);
  void forget_registers();

  // emit_lanes.cpp
  struct Survey {
    bool simple = true;  // false if an operation combines lanes
    unsigned pure = 0, scattered = 0;
    std::vector<NodeId> inside, used, locals, written;
  };
  void survey(ir::BlockId block, Survey& s) const;
  bool prefers_lanes(const ir::Node& loop) const;
  void for_by_lane(const ir::Node& n, Value* mask);

  // emit_value.cpp
  void pure(NodeId id);
  Value* library_call(const char* name, DType t, Value* const* a, unsigned count) override;
  Value* dot4(ir::Dot4Signs signs, Value* a, Value* b, Value* c) override;
  Value* multiply_bytes(Value* a, Value* b, Value* c);
  Value* dot4_by_pairs(ir::Dot4Signs signs, Value* a, Value* b, Value* c);
  Value* dot4_by_bytes(ir::Dot4Signs signs, Value* a, Value* b, Value* c);
  Value* dot4_by_magnitudes(Value* a, Value* b, Value* c);
  Value* across(ir::ReduceOp op, DType t, Value* vector);  // reduces all lanes to a scalar
  void subgroup(NodeId id, Value* mask);
  Value* shuffle(Value* vector, Value* lanes);  // lane i of the result is element lanes[i]

  // Values.
  ShapedValue leaf(NodeId id);
  ShapedValue shaped_value(NodeId id);
  Value* scalar(NodeId id);  // for scalar and linear shapes
  Value* vector(NodeId id);
  Value* without_constants(Value* sum, std::int64_t& constant, int depth);
  Value* element_address(NodeId memory, Value* index);  // for a vector of indices, returns a vector of addresses
  void define(NodeId id, Value* value) { values_[id] = value; }

  // Lanes.
  llvm::FixedVectorType* lanes(llvm::Type* element) const;
  Value* splat(Value* v);
  Value* iota(llvm::Type* element, std::int64_t stride);

  const TargetTraits& target_;
  LaneLayout layout_;
  Analysis analysis_;
  Plan plan_;
  Accesses accesses_;
  unsigned width_;
  std::vector<bool> used_;  // by node: true if its value is read

  llvm::IRBuilder<> allocas_;  // at the start of the body
  llvm::Function* body_ = nullptr;
  std::vector<Value*> params_, sizes_;
  Value* grid_[3] = {};
  Value *begin_ = nullptr, *end_ = nullptr, *shared_ = nullptr, *kept_ = nullptr, *call_ = nullptr;

  std::vector<Value*> values_;
  std::vector<Value*> own_values_;  // by node, while a single lane runs: its values of nodes outside the loop
  std::vector<Value*> anchors_;     // by window: address of the first element
  std::vector<PendingStores> pending_stores_;
  std::vector<std::vector<Piece>> registers_;  // by window: the registers loaded from it, until the memory may have
                                               // changed
  std::map<Value*, Origin> origins_;
  std::map<NodeId, std::array<Value*, tile_columns>> tiles_;  // by load: the loaded values in each iteration of the
                                                              // tile
  int tile_round_ = -1;                                       // current iteration within a tile; -1 outside a tile
  std::vector<Local> locals_;
  std::vector<std::size_t> offsets_;  // by node: offset of a shared array, or of a value in context memory
  std::vector<Value*> accumulators_;
  std::size_t shared_bytes_ = 0, context_bytes_ = 0;
  Value* block_id_[3] = {};
  Value* thread_[3] = {};  // thread_id of this chunk (in map kernels: global_id); the scalar of lane 0, or a vector
  llvm::GlobalVariable* tables_[3] = {};
  Value* linear_ = nullptr;  // linear thread id of lane 0
  Value* chunk_ = nullptr;
  Value* tail_mask_ = nullptr;  // the lanes that have a thread; null: all lanes
  struct Loop {
    llvm::PHINode* counter;
    Value* end;
    llvm::BasicBlock* after;
  };
  std::vector<Loop> loops_;
  /// The loop whose full iterations emit_full_iterations() has emitted, and the value that these iterations added to
  /// its counters.
  NodeId block_stride_loop_ = ir::no_node;
  Value* full_iterations_end_ = nullptr;
};

template <class F>
void Emitter::if_any(Value* mask, F&& f) {
  auto* then = llvm::BasicBlock::Create(context_, "any", body_);
  auto* after = llvm::BasicBlock::Create(context_, "none", body_);
  b_.CreateCondBr(any(mask), then, after);
  b_.SetInsertPoint(then);
  f();
  b_.CreateBr(after);
  b_.SetInsertPoint(after);
}

template <class F>
void Emitter::each_active_lane(Value* mask, F&& f) {
  llvm::Type* i32 = b_.getInt32Ty();
  if (!mask) {
    f(b_.CreateTrunc(loop_begin(b_.getInt64(0), b_.getInt64(width_), "lane"), i32));
    return loop_end();
  }
  Value* bits = b_.CreateZExt(b_.CreateBitCast(mask, b_.getIntNTy(width_)), i32);
  auto *inside = llvm::BasicBlock::Create(context_, "active", body_), *before = b_.GetInsertBlock();
  auto* after = llvm::BasicBlock::Create(context_, "all_active", body_);
  b_.CreateCondBr(b_.CreateICmpNE(bits, b_.getInt32(0)), inside, after);
  b_.SetInsertPoint(inside);
  auto* left = b_.CreatePHI(i32, 2, "left");
  left->addIncoming(bits, before);
  f(b_.CreateBinaryIntrinsic(llvm::Intrinsic::cttz, left, b_.getTrue()));
  Value* next = b_.CreateAnd(left, b_.CreateSub(left, b_.getInt32(1)));
  left->addIncoming(next, b_.GetInsertBlock());
  b_.CreateCondBr(b_.CreateICmpNE(next, b_.getInt32(0)), inside, after);
  b_.SetInsertPoint(after);
}

}  // namespace tessera::cpu
