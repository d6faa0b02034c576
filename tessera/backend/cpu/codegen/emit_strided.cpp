// SPDX-License-Identifier: Apache-2.0
// Accesses in which the stride between lanes is negative or larger than one element. If the stride is known at trace
// time, loads and stores use full registers and shuffles. They never access memory before the first or after the last
// element of all lanes. The gaps between elements are smaller than a page, so they are always mapped. If the stride is
// known only at launch, the code branches at run time: small strides use the same code, and others access memory lane
// by lane.
#include <algorithm>
#include <cmath>

#include "tessera/backend/cpu/codegen/emitter.h"

namespace tessera::cpu {

using namespace ir;

// Returns true if the target has masked loads and stores for elements of this type.
bool Emitter::masks_in_hardware(DType t) const {
  return target_.width == 16 || (target_.width == 8 && bytes_of(t) >= 4);
}
int Emitter::register_lanes(DType t) const {
  return static_cast<int>(std::min<std::size_t>(width_, 4 * target_.width / bytes_of(t)));
}

// Returns a mask with `n` lanes in which the first `active` lanes are set.
Emitter::Value* Emitter::first_lanes(int n, int active) {
  std::vector<llvm::Constant*> bits;
  for (int i = 0; i < n; ++i) bits.push_back(b_.getInt1(i < active));
  return llvm::ConstantVector::get(bits);
}

// Returns the address of the first element of a window.
Emitter::Value* Emitter::window_address(NodeId id) {
  const Node& n = fn_[id];
  const Place& place = accesses_.places[id];
  Value*& at = anchors_[place.window];
  if (at) return at;
  const ShapedValue index = shaped_value(n.args[1]);
  std::int64_t back = place.constant - accesses_.windows[place.window].low;
  // If the stride is known only at launch, the address is relative to lane 0.
  if (index.shape.stride < 0 && !index.shape.by) back -= index.shape.stride * (width_ - 1);
  return at = b_.CreateConstGEP1_64(memory_type(dtype(n.args[0])), element_address(n.args[0], index.value),
                                    static_cast<std::uint64_t>(-back));
}

Emitter::Value* Emitter::reversed(Value* vector) {
  std::vector<int> from;
  for (int i = static_cast<int>(width_); i-- > 0;) from.push_back(i);
  return b_.CreateShuffleVector(vector, from);
}
// Returns `n` lanes, starting at lane `first`.
Emitter::Value* Emitter::some_lanes(Value* vector, int first, int n) {
  std::vector<int> from;
  for (int i = 0; i < n; ++i) from.push_back(first + i);
  return n == static_cast<int>(width_) ? vector : b_.CreateShuffleVector(vector, from);
}

// Returns the mask for a register that contains the elements from `first` on. An element is selected if its member is
// in `wanted` and its lane is in `mask`.
Emitter::Value* Emitter::element_mask(Value* mask, int first, int n, const std::vector<bool>& wanted) {
  const int stride = static_cast<int>(wanted.size()), lanes_all = static_cast<int>(width_);
  std::vector<int> from;
  std::vector<llvm::Constant*> constants;
  for (int j = 0; j < n; ++j) {
    const bool want = wanted[static_cast<std::size_t>((first + j) % stride)];
    from.push_back(want ? (first + j) / stride : lanes_all);
    constants.push_back(b_.getInt1(want));
  }
  if (!mask) return llvm::ConstantVector::get(constants);
  return b_.CreateShuffleVector(mask, llvm::Constant::getNullValue(mask->getType()), from);
}

// Loads `total` elements, starting at `first`, into `count` registers. Does not access memory after these elements.
std::vector<Emitter::Piece> Emitter::load_full_registers(Value* first, DType t, int total, int count) {
  const int n = register_lanes(t);
  auto* type = llvm::FixedVectorType::get(memory_type(t), static_cast<unsigned>(n));
  const llvm::Align align(bytes_of(t));
  auto at = [&](int element) {
    return b_.CreateConstGEP1_64(memory_type(t), first, static_cast<std::uint64_t>(element));
  };
  std::vector<Piece> loaded;
  for (int k = 0; k < count; ++k) {
    const int start = k * n, from = std::min(start, total - n);
    if (from < start && start < total && masks_in_hardware(t) && target_.width == 16)  // avoids crossing a cache line
      loaded.push_back({b_.CreateMaskedLoad(type, at(start), align, first_lanes(n, total - start),
                                            llvm::Constant::getNullValue(type))});
    else if (start < total)
      loaded.push_back({b_.CreateAlignedLoad(type, at(from), align), start - from});
    else
      loaded.push_back({});
  }
  return loaded;
}

// Returns every `stride`-th element of these registers.
Emitter::Value* Emitter::take_strided(const std::vector<Piece>& pieces, int stride, int residue, int n) {
  std::vector<Value*> parts;
  for (auto part = pieces.begin(); part != pieces.end(); part += stride)
    parts.push_back(deinterleaved({part, part + stride}, residue, n));
  if (parts.size() == 1) return parts[0];
  std::vector<int> all;
  for (int i = 0; i < static_cast<int>(width_); ++i) all.push_back(i);
  return b_.CreateShuffleVector(parts[0], parts[1], all);
}

Emitter::Value* Emitter::strided_load(NodeId id, Value* mask) {
  const Place& place = accesses_.places[id];
  const Window& window = accesses_.windows[place.window];
  const std::int64_t signed_stride = analysis_.shapes[fn_[id].args[1]].stride;
  const int stride = static_cast<int>(std::abs(signed_stride)), span = static_cast<int>(window.high - window.low);
  const DType t = fn_[id].type.dtype;
  const int n = register_lanes(t), lanes_all = static_cast<int>(width_), total = stride * (lanes_all - 1) + span + 1;
  auto* type = llvm::FixedVectorType::get(memory_type(t), static_cast<unsigned>(n));
  const llvm::Align align(bytes_of(t));
  Value* first = window_address(id);
  if (mask && signed_stride < 0) mask = reversed(mask);
  std::vector<bool> wanted(static_cast<std::size_t>(stride));
  for (int i = 0; i <= span; ++i) wanted[static_cast<std::size_t>(i)] = true;
  std::vector<Piece>& pieces = registers_[place.window];
  std::vector<Piece> loaded;
  if (pieces.empty() && !mask) loaded = load_full_registers(first, t, total, stride * lanes_all / n);
  for (int k = 0; pieces.empty() && mask && k < stride * lanes_all / n; ++k)
    loaded.push_back(
        {b_.CreateMaskedLoad(type, b_.CreateConstGEP1_64(memory_type(t), first, static_cast<std::uint64_t>(k * n)),
                             align, element_mask(mask, k * n, n, wanted), llvm::Constant::getNullValue(type))});
  if (pieces.empty()) pieces = std::move(loaded);
  const int residue = static_cast<int>(place.constant - window.low);
  Value* v = take_strided(pieces, stride, residue, n);
  if (signed_stride < 0) return reversed(v);
  if (span == stride - 1 && !mask) origins_[v] = {place.window, residue, pieces};
  return v;
}

// A store to a struct member is deferred until the other members have been stored.

void Emitter::strided_store(NodeId id, Value* value, Value* mask) {
  const Place& place = accesses_.places[id];
  const Window& window = accesses_.windows[place.window];
  const auto member = static_cast<std::size_t>(place.constant - window.low);
  window_address(id);
  auto it = std::ranges::find(pending_stores_, place.window, &PendingStores::window);
  if (it == pending_stores_.end()) {
    const Shape shape = analysis_.shapes[fn_[id].args[1]];
    const auto together = static_cast<std::size_t>(shape.by ? row_part : std::abs(shape.stride));
    pending_stores_.push_back({place.window, id, std::vector<Value*>(together), mask, window.members});
    it = pending_stores_.end() - 1;
  }
  it->members[member] = value;
  if (--it->missing != 0) return;
  const PendingStores complete = std::move(*it);
  pending_stores_.erase(it);
  store_members(complete);
}

bool Emitter::disjoint(NodeId a, NodeId b) const {
  return a != b && (options_.noalias || fn_[a].op == Op::shared || fn_[b].op == Op::shared);
}

// Returns true if this statement may run before the deferred stores, because it does not access their memory.
bool Emitter::can_pass_pending_stores(NodeId id) const {
  const Node& n = fn_[id];
  if (is_pure(n.op)) return true;
  if (!is_load(n.op) && n.op != Op::store) return false;
  if (fn_[n.args[0]].op == Op::local) return true;
  return std::ranges::all_of(pending_stores_, [&](const PendingStores& w) {
    const NodeId memory = fn_[w.id].args[0];
    if (memory != n.args[0]) return disjoint(memory, n.args[0]);
    const Place &mine = accesses_.places[id], &theirs = accesses_.places[w.id];
    if (mine.family == Place::none || mine.family != theirs.family) return false;
    const auto stride = static_cast<std::int64_t>(w.members.size());
    const bool rows = analysis_.shapes[fn_[w.id].args[1]].by != no_node;
    const std::int64_t from_first = mine.constant - accesses_.windows[w.window].low, apart = from_first % stride;
    if (rows && (from_first < 0 || from_first >= stride)) return true;  // accesses other elements of the rows
    return w.members[static_cast<std::size_t>(apart < 0 ? apart + stride : apart)] == nullptr;
  });
}

void Emitter::flush_pending_stores() {
  for (const PendingStores& w : std::exchange(pending_stores_, {})) store_members(w);
}

void Emitter::store_members(const PendingStores& w) {
  forget_registers();
  const Node& n = fn_[w.id];
  if (analysis_.shapes[n.args[1]].by) return store_rows(w);
  const DType t = dtype(n.args[0]);
  const std::size_t stride = w.members.size();
  const bool back = analysis_.shapes[n.args[1]].stride < 0;
  const bool complete = std::ranges::none_of(w.members, [](Value* v) { return v == nullptr; });
  const llvm::Align align(bytes_of(t));
  llvm::Type* element = memory_type(t);
  Value* first = anchors_[w.window];
  auto at = [&](std::size_t i) { return b_.CreateConstGEP1_64(element, first, i); };
  if ((w.mask || !complete) && target_.width != 16) {
    for (std::size_t m = 0; m < stride; ++m) {
      if (!w.members[m]) continue;
      for (unsigned i = 0; i < width_ && !w.mask; ++i)
        b_.CreateAlignedStore(b_.CreateExtractElement(w.members[m], std::uint64_t{i}),
                              at(m + stride * (back ? width_ - 1 - i : i)), align);
      if (!w.mask) continue;
      Value* lane = iota(b_.getInt64Ty(), static_cast<std::int64_t>(stride));
      b_.CreateMaskedScatter(w.members[m], b_.CreateGEP(element, at(m), back ? reversed(lane) : lane), align, w.mask);
    }
    return;
  }
  // Other threads may write the other members, so masked stores leave these members unchanged.
  Value* mask = w.mask && back ? reversed(w.mask) : w.mask;
  std::vector<bool> wanted;
  for (Value* v : w.members) wanted.push_back(v != nullptr);
  std::vector<Value*> members;
  for (Value* v : w.members) members.push_back(v && back ? reversed(v) : v);
  const int each = register_lanes(t);
  const auto registers = complete && !mask ? flat(members, each) : joined(members, each);
  for (std::size_t k = 0; k < registers.size(); ++k) {
    const int start = static_cast<int>(k) * each;
    if (complete && !mask)
      b_.CreateAlignedStore(registers[k], at(k * static_cast<std::size_t>(each)), align);
    else if (registers[k])
      b_.CreateMaskedStore(registers[k], at(k * static_cast<std::size_t>(each)), align,
                           element_mask(mask, start, each, wanted));
  }
}

// Strides that are known only at launch or that are large.

Emitter::Value* Emitter::lane_address(Value* first, llvm::Type* element, Value* step, unsigned lane) {
  auto times = [&](unsigned n) { return b_.CreateMul(step, b_.getInt64(n)); };
  Value* row = lane < 4 ? first : b_.CreateGEP(element, first, times(lane / 4 * 4));
  return lane % 4 == 0 ? row : b_.CreateGEP(element, row, times(lane % 4));
}
Emitter::Value* Emitter::stride_of(Shape shape) {
  Value* constant = b_.getInt64(static_cast<std::uint64_t>(shape.stride));
  return shape.by ? b_.CreateMul(constant, b_.CreateSExt(scalar(shape.by), b_.getInt64Ty())) : constant;
}
// Strides that are known only at launch are often small. Emits few(stride) for each stride up to `most`, any() for all
// other strides, and a branch that selects one of them at run time.
template <class Few, class Any>
void Emitter::if_few(Shape shape, Value* step, unsigned most, Few&& few, Any&& any) {
  if (!shape.by) return any();
  auto block = [&](const char* name) { return llvm::BasicBlock::Create(context_, name, body_); };
  auto *apart = block("apart"), *after = block("lanes");
  auto* which = b_.CreateSwitch(step, apart, most);
  for (unsigned stride = 1; stride <= most; ++stride) {
    auto* together = block("together");
    which->addCase(b_.getInt64(stride), together);
    b_.SetInsertPoint(together);
    few(stride);
    b_.CreateBr(after);
  }
  b_.SetInsertPoint(apart);
  any();
  b_.CreateBr(after);
  b_.SetInsertPoint(after);
}
Emitter::Value* Emitter::load_by_lane(NodeId id) {
  const Node& n = fn_[id];
  const DType t = n.type.dtype;
  const ShapedValue index = shaped_value(n.args[1]);
  llvm::Type* element = memory_type(t);
  const llvm::Align align(bytes_of(t));
  Value *first = element_address(n.args[0], index.value), *step = stride_of(index.shape);
  Value* v = llvm::PoisonValue::get(lanes(element));
  std::vector<std::pair<Value*, llvm::BasicBlock*>> found;
  const int each = register_lanes(t), all = static_cast<int>(width_);
  // Uses full registers and shuffles, as for strides known at trace time, because inserting single lanes into a
  // register needs a shuffle for each lane.
  if_few(
      index.shape, step, each >= 4 && all % each == 0 && all / each <= 2 ? most_few : 1,
      [&](unsigned few) {
        const int stride = static_cast<int>(few);
        Value* together = few == 1
                              ? b_.CreateAlignedLoad(lanes(element), first, align)
                              : take_strided(load_full_registers(first, t, stride * (all - 1) + 1, stride * all / each),
                                             stride, 0, each);
        found.emplace_back(together, b_.GetInsertBlock());
      },
      [&] {
        for (unsigned i = 0; i < width_; ++i)
          v = b_.CreateInsertElement(v, b_.CreateAlignedLoad(element, lane_address(first, element, step, i), align),
                                     std::uint64_t{i});
      });
  if (found.empty()) return v;
  found.emplace_back(v, llvm::cast<llvm::Instruction>(v)->getParent());
  auto* either = b_.CreatePHI(v->getType(), static_cast<unsigned>(found.size()));
  for (auto [value, block] : found) either->addIncoming(value, block);
  return either;
}
void Emitter::store_by_lane(NodeId id, Value* first, Value* value) {
  const Node& n = fn_[id];
  const Shape shape = analysis_.shapes[n.args[1]];
  const DType t = dtype(n.args[0]);
  llvm::Type* element = memory_type(t);
  Value* step = stride_of(shape);
  const llvm::Align align(bytes_of(t));
  // Uses masked stores of full registers, as for strides known at trace time, if the target supports them.
  const int each = register_lanes(t), all = static_cast<int>(width_);
  const bool joins = target_.width == 16 && each >= 4 && all % each == 0 && all / each <= 2;
  if_few(
      shape, step, joins ? most_few : 1,
      [&](unsigned stride) {
        if (stride == 1) return static_cast<void>(b_.CreateAlignedStore(value, first, align));
        std::vector<Value*> members(stride);
        members[0] = value;
        std::vector<bool> wanted(stride);
        wanted[0] = true;
        const auto registers = joined(members, each);
        for (std::size_t k = 0; k < registers.size(); ++k)
          if (registers[k])
            b_.CreateMaskedStore(registers[k],
                                 b_.CreateConstGEP1_64(element, first, k * static_cast<std::size_t>(each)), align,
                                 element_mask(nullptr, static_cast<int>(k) * each, each, wanted));
      },
      [&] {
        // Copies the register to the stack and loads its elements from there, because extracting them would compete
        // with other shuffles. The loads are volatile, so that LLVM does not remove the copy.
        auto* there = stack(value->getType(), "lanes");
        b_.CreateStore(value, there);
        for (unsigned i = 0; i < width_; ++i)
          b_.CreateAlignedStore(b_.CreateLoad(element, b_.CreateConstGEP1_64(element, there, i), true),
                                lane_address(first, element, step, i), align);
      });
}

}  // namespace tessera::cpu
