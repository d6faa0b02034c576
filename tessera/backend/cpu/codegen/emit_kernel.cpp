// SPDX-License-Identifier: Apache-2.0
// Emits the functions of a kernel, the loops over work items and chunks, and the regions between barriers.
#include "tessera/backend/cpu/codegen/emitter.h"

#include <algorithm>

#include "tessera/backend/cpu/codegen/llvm.h"

namespace tessera::cpu {

using namespace ir;

Emitter::Emitter(llvm::Module& module, const Function& fn, const TargetTraits& target, const GenerateOptions& options)
    : Values(module, fn, options, {target.f16c, target.fma}),
      target_(target),
      layout_(lane_layout(fn, target.width)),
      analysis_(analyse(fn, layout_, options.noalias)),
      accesses_(find_accesses(fn, analysis_)),
      width_(layout_.width),
      allocas_(context_) {
  const std::size_t n = fn.nodes.size();
  anchors_.resize(accesses_.windows.size()), registers_.resize(accesses_.windows.size());
  values_.resize(n), locals_.resize(n), offsets_.resize(n), accumulators_.resize(n);
  used_.resize(n);
  for (const Node& node : fn.nodes)
    for (NodeId a : operands(node)) used_[a] = true;
  if (layout_.threads) plan_ = make_plan(fn, analysis_);
}

void Emitter::run(const std::string& entry_name) {
  lay_out_memory();
  make_functions(entry_name);
  auto* start = llvm::BasicBlock::Create(context_, "start", body_);
  auto* first = llvm::BasicBlock::Create(context_, "first", body_);
  allocas_.SetInsertPoint(llvm::BranchInst::Create(first, start));
  b_.SetInsertPoint(first);
  for (NodeId id = 1; id < fn_.nodes.size(); ++id) {
    if (fn_[id].op != Op::local) continue;
    Local& local = locals_[id];
    if (local.chunk_bytes != 0 && fn_[id].imm != 1) continue;  // an array in context memory
    llvm::Type* t = fn_[id].imm == 1 ? local.element : llvm::ArrayType::get(local.element, fn_[id].imm);
    auto* slot = stack(t, "local" + llvm::Twine(fn_[id].extra));
    slot->setAlignment(llvm::Align(64));
    local.own = local.pointer = slot;
  }
  if (layout_.threads)
    block_kernel();
  else
    map_kernel();
  b_.CreateRetVoid();
}

void Emitter::make_functions(const std::string& entry_name) {
  llvm::Type *i64 = b_.getInt64Ty(), *pointer = b_.getPtrTy(), *none = b_.getVoidTy();
  std::vector<llvm::Type*> types;
  for (const Param& p : fn_.params) {
    types.push_back(p.is_buffer ? pointer : type(p.dtype));
    if (p.is_buffer) types.push_back(i64);
  }
  const std::size_t own = types.size();
  for (int i = 0; i < 5; ++i) types.push_back(i64);      // grid, begin, end
  for (int i = 0; i < 3; ++i) types.push_back(pointer);  // shared memory, context memory, call
  body_ = llvm::Function::Create(llvm::FunctionType::get(none, types, false), llvm::Function::InternalLinkage,
                                 entry_name + ".body", module_);
  auto* entry = llvm::Function::Create(llvm::FunctionType::get(none, {pointer, i64, i64, pointer}, false),
                                       llvm::Function::ExternalLinkage, entry_name, module_);
  body_->addFnAttr(llvm::Attribute::NoInline);  // inlining would remove `noalias` from the buffers
  for (auto* f : {body_, entry}) {
    f->addFnAttr("target-cpu", target_.cpu);
    f->addFnAttr("target-features", target_.features);
    f->addFnAttr("prefer-vector-width", std::to_string(std::max(128u, 32 * target_.width)));
    f->addFnAttr("min-legal-vector-width", std::to_string(std::max(128u, 32 * target_.width)));
    f->addFnAttr(llvm::Attribute::NoUnwind);
  }

  std::size_t at = 0;
  auto take = [&](const std::string& name) {
    auto* a = body_->getArg(static_cast<unsigned>(at++));
    a->setName(name);
    return a;
  };
  for (const Param& p : fn_.params) {
    auto* a = take(p.name);
    params_.push_back(a);
    if (p.is_buffer) {
      add_no_capture(*a);
      if (options_.noalias) a->addAttr(llvm::Attribute::NoAlias);
      if (p.access == Access::read) a->addAttr(llvm::Attribute::ReadOnly);
    }
    sizes_.push_back(p.is_buffer ? take(p.name + ".size") : nullptr);
  }
  for (int d = 0; d < 3; ++d) grid_[d] = take("grid" + std::to_string(d));
  begin_ = take("begin"), end_ = take("end");
  auto scratch = [&](const char* name) {
    auto* a = take(name);
    a->addAttr(llvm::Attribute::NoAlias);
    a->addAttr(llvm::Attribute::getWithAlignment(context_, llvm::Align(64)));
    return a;
  };
  shared_ = scratch("shared"), kept_ = scratch("context"), call_ = take("call");

  b_.SetInsertPoint(llvm::BasicBlock::Create(context_, "entry", entry));
  auto word = [&](Value* base, std::uint64_t i) { return b_.CreateLoad(i64, b_.CreateConstGEP1_64(i64, base, i)); };
  std::vector<Value*> arguments;
  Value* slots = b_.CreateLoad(pointer, entry->getArg(0));
  for (std::size_t i = 0; i < fn_.params.size(); ++i) {
    const Param& p = fn_.params[i];
    Value* bits = word(slots, 2 * i);
    if (p.is_buffer) {
      arguments.push_back(b_.CreateIntToPtr(bits, pointer));
      arguments.push_back(word(slots, 2 * i + 1));
      continue;
    }
    llvm::Type* t = type(p.dtype);
    if (t->isIntegerTy(1))
      bits = b_.CreateICmpNE(bits, b_.getInt64(0));
    else if (t->isIntegerTy())
      bits = b_.CreateTrunc(bits, t);
    else
      bits = b_.CreateBitCast(b_.CreateTrunc(bits, b_.getIntNTy(t->getScalarSizeInBits())), t);
    arguments.push_back(bits);
  }
  for (std::uint64_t d = 0; d < 3; ++d) arguments.push_back(word(entry->getArg(0), 1 + d));
  arguments.push_back(entry->getArg(1)), arguments.push_back(entry->getArg(2));
  arguments.push_back(entry->getArg(3));
  arguments.push_back(b_.CreateConstGEP1_64(b_.getInt8Ty(), entry->getArg(3), shared_bytes_));
  arguments.push_back(entry->getArg(0));
  if (arguments.size() != own + 8) refuse("the kernel's arguments are inconsistent");
  b_.CreateCall(body_, arguments);
  b_.CreateRetVoid();
}

void Emitter::lay_out_memory() {
  auto aligned = [](std::size_t n) { return (n + 63) & ~std::size_t{63}; };
  const bool chunks = layout_.threads && layout_.chunks() > 1;
  for (NodeId id = 1; id < fn_.nodes.size(); ++id) {
    const Node& n = fn_[id];
    if (n.op == Op::shared) {
      offsets_[id] = shared_bytes_;
      shared_bytes_ = aligned(shared_bytes_ + n.imm * bytes_of(n.type.dtype));
    } else if (n.op == Op::local) {
      Local& local = locals_[id];
      const bool vector = !analysis_.shapes[id].scalar() && analysis_.shapes[id].kind != ShapeKind::linear;
      llvm::Type* t = memory_type(n.type.dtype);
      local.element = vector ? lanes(t) : t;
      if (chunks && plan_.places[id] == LocalPlace::context) {
        local.context = context_bytes_;
        local.chunk_bytes = n.imm * bytes_of(n.type.dtype) * (vector ? width_ : 1);
        context_bytes_ = aligned(context_bytes_ + local.chunk_bytes * layout_.chunks());
      }
    } else if (chunks && plan_.spilled[id]) {
      offsets_[id] = context_bytes_;
      const std::size_t each = bytes_of(n.type.dtype) * (analysis_.shapes[id].varying() ? width_ : 1);
      context_bytes_ = aligned(context_bytes_ + each * layout_.chunks());
    }
  }
}

// Emits the loops of a map kernel over the threads in [begin, end). Each row along dimension 0 is split into full
// chunks and a masked remainder.
void Emitter::map_kernel() {
  llvm::Type* i64 = b_.getInt64Ty();
  Value* zero = b_.getInt64(0);
  auto block = [&](const char* name) { return llvm::BasicBlock::Create(context_, name, body_); };
  auto *some = block("some"), *within = block("within"), *begin = block("begin"), *head = block("row"),
       *done = block("done");
  b_.CreateCondBr(b_.CreateICmpULT(begin_, end_), some, done);
  // The position of the first row needs divisions. Later rows only increment it.
  b_.SetInsertPoint(some);
  b_.CreateCondBr(b_.CreateICmpEQ(begin_, zero), begin, within);
  b_.SetInsertPoint(within);
  Value* first_row = b_.CreateUDiv(begin_, grid_[0]);
  Value* first_x = b_.CreateSub(begin_, b_.CreateMul(first_row, grid_[0]));
  Value* first_z = b_.CreateUDiv(first_row, grid_[1]);
  Value* first_y = b_.CreateSub(first_row, b_.CreateMul(first_z, grid_[1]));
  b_.CreateBr(begin);
  b_.SetInsertPoint(begin);
  const auto from = [&](Value* there, const char* name) {
    auto* phi = b_.CreatePHI(i64, 2, name);
    phi->addIncoming(zero, some);
    phi->addIncoming(there, within);
    return phi;
  };
  Value *begin_x = from(first_x, "begin.x"), *begin_y = from(first_y, "begin.y"), *begin_z = from(first_z, "begin.z");
  b_.CreateBr(head);
  b_.SetInsertPoint(head);
  const auto carried = [&](Value* first, const char* name) {
    auto* phi = b_.CreatePHI(i64, 2, name);
    phi->addIncoming(first, begin);
    return phi;
  };
  auto *at = carried(begin_, "at"), *x = carried(begin_x, "x"), *y = carried(begin_y, "y"), *z = carried(begin_z, "z");
  thread_[1] = y;
  thread_[2] = z;
  Value* count = b_.CreateBinaryIntrinsic(llvm::Intrinsic::umin, b_.CreateSub(grid_[0], x), b_.CreateSub(end_, at));
  // Masked lanes run before and after the full chunks. The lanes before them align the stores of the chunks to cache
  // lines.
  auto *masked = block("some_lanes"), *whole = block("whole"), *next = block("next");
  auto* row = b_.GetInsertBlock();
  Value* before = lanes_to_alignment(x, count);
  if (before) {
    row = b_.GetInsertBlock();
    b_.CreateCondBr(b_.CreateICmpNE(before, zero), masked, whole);
  } else {
    b_.CreateBr(whole);
  }
  b_.SetInsertPoint(whole);
  auto* from_x = b_.CreatePHI(i64, 2, "from.x");
  from_x->addIncoming(x, row);
  Value* left = b_.CreateSub(b_.CreateAdd(x, count), from_x);
  Value* chunks = b_.CreateLShr(left, llvm::Log2_64(width_));
  Value* chunk = loop_begin(b_.getInt64(0), chunks, "chunk");
  thread_[0] = b_.CreateAdd(from_x, b_.CreateMul(chunk, b_.getInt64(width_), "", true, true));
  chunk_body(nullptr);
  loop_end();
  Value* rest = b_.CreateAnd(left, b_.getInt64(width_ - 1));
  Value* rest_x = b_.CreateAdd(from_x, b_.CreateSub(left, rest));
  auto* chunked = b_.GetInsertBlock();
  b_.CreateCondBr(b_.CreateICmpNE(rest, zero), masked, next);

  b_.SetInsertPoint(masked);
  auto *some_x = b_.CreatePHI(i64, 2, "some.x"), *lanes_in = b_.CreatePHI(i64, 2, "lanes");
  some_x->addIncoming(rest_x, chunked), lanes_in->addIncoming(rest, chunked);
  if (before) some_x->addIncoming(x, row), lanes_in->addIncoming(before, row);
  thread_[0] = some_x;
  chunk_body(b_.CreateICmpULT(iota(b_.getInt32Ty(), 1), splat(b_.CreateTrunc(lanes_in, b_.getInt32Ty())), "exists"));
  if (before) {
    Value* after_lanes = b_.CreateAdd(some_x, lanes_in);
    Value* more = b_.CreateICmpNE(after_lanes, b_.CreateAdd(x, count));
    from_x->addIncoming(after_lanes, b_.GetInsertBlock());
    b_.CreateCondBr(more, whole, next);
  } else {
    b_.CreateBr(next);
  }
  b_.SetInsertPoint(next);
  Value* after = b_.CreateAdd(at, count);
  Value* below = b_.CreateAdd(y, b_.getInt64(1));
  Value* last = b_.CreateICmpEQ(below, grid_[1]);
  at->addIncoming(after, next);
  x->addIncoming(zero, next);
  y->addIncoming(b_.CreateSelect(last, zero, below), next);
  z->addIncoming(b_.CreateAdd(z, b_.CreateZExt(last, i64)), next);
  b_.CreateCondBr(b_.CreateICmpULT(after, end_), head, done);
  b_.SetInsertPoint(done);
}

// Returns the number of lanes before the first lane whose store is aligned to a cache line. Returns null if the kernel
// stores to several buffers, or if the alignment is not worthwhile, as with short vectors or in large kernels.
Emitter::Value* Emitter::lanes_to_alignment(Value* x, Value* count) {
  if (target_.width != 16 || width_ != 16 || fn_.nodes.size() > 40) return nullptr;
  NodeId store = no_node;
  for (NodeId id = 1; id < fn_.nodes.size(); ++id) {
    const Op op = fn_[id].op;
    if (op == Op::atomic || op == Op::print || (op == Op::store && store != no_node)) return nullptr;
    if (op == Op::store) store = id;
  }
  if (store == no_node || std::ranges::find(fn_.blocks[0], store) == fn_.blocks[0].end()) return nullptr;
  const NodeId memory = fn_[store].args[0], index = fn_[store].args[1];
  const Shape shape = analysis_.shapes[index];
  if (fn_[memory].op != Op::param || !shape.constant_stride() || shape.stride != 1) return nullptr;
  std::vector<bool> needed(fn_.nodes.size());
  needed[index] = true;
  for (NodeId id = index; id > 0; --id) {
    if (!needed[id] || is_leaf(fn_[id].op)) continue;
    if (!is_pure(fn_[id].op)) return nullptr;
    for (NodeId a : operands(fn_[id])) needed[a] = true;
  }
  thread_[0] = x;
  for (NodeId id : fn_.blocks[0])
    if (needed[id]) pure(id);
  const auto size = static_cast<std::uint64_t>(bytes_of(dtype(memory)));
  Value* address = b_.CreatePtrToInt(element_address(memory, shaped_value(index).value), b_.getInt64Ty());
  Value* elements = b_.CreateAnd(b_.CreateLShr(b_.CreateNeg(address), llvm::Log2_64(size)), b_.getInt64(width_ - 1));
  Value* worth = b_.CreateICmpUGE(count, b_.getInt64(4 * width_));
  return b_.CreateSelect(worth, elements, b_.getInt64(0));
}

void Emitter::chunk_body(Value* mask) {
  tail_mask_ = mask;
  for (NodeId id = 1; id < fn_.nodes.size(); ++id)
    if (fn_[id].op == Op::local && !analysis_.definite[id]) clear_local(id);
  statements(0, mask);
}

void Emitter::block_kernel() {
  const auto& size = fn_.block_size;
  for (unsigned d = 0; d < 3; ++d) {
    thread_[d] = b_.getInt64(0);  // used outside regions only if all threads have this id
    if (!layout_.thread_id[d].varying()) continue;
    std::vector<std::uint32_t> ids;
    for (std::uint32_t t = 0; t < layout_.chunks() * width_; ++t)
      ids.push_back(d == 0 ? t % size[0] : d == 1 ? t / size[0] % size[1] : t / size[0] / size[1]);
    auto* data = llvm::ConstantDataArray::get(context_, ids);
    tables_[d] =
        new llvm::GlobalVariable(module_, data->getType(), true, llvm::GlobalValue::PrivateLinkage, data, "thread_ids");
    tables_[d]->setAlignment(llvm::Align(64));
  }
  // The position of the first block needs divisions. Later blocks only increment it.
  Value* zero = b_.getInt64(0);
  auto label = [&](const char* name) { return llvm::BasicBlock::Create(context_, name, body_); };
  auto *within = label("within"), *begin = label("begin"), *start = b_.GetInsertBlock();
  b_.CreateCondBr(b_.CreateICmpEQ(begin_, zero), begin, within);
  b_.SetInsertPoint(within);
  Value* row = b_.CreateUDiv(begin_, grid_[0]);
  Value* z = b_.CreateUDiv(row, grid_[1]);
  Value* there[] = {b_.CreateSub(begin_, b_.CreateMul(row, grid_[0])), b_.CreateSub(row, b_.CreateMul(z, grid_[1])), z};
  b_.CreateBr(begin);
  b_.SetInsertPoint(begin);
  Value* from[3];
  for (unsigned d = 0; d < 3; ++d) {
    auto* phi = b_.CreatePHI(b_.getInt64Ty(), 2);
    phi->addIncoming(zero, start), phi->addIncoming(there[d], within);
    from[d] = phi;
  }
  loop_begin(begin_, end_, "block");
  llvm::PHINode* carried[3];
  for (unsigned d = 0; d < 3; ++d) {
    carried[d] = b_.CreatePHI(b_.getInt64Ty(), 2, "block." + std::string(1, "xyz"[d]));
    carried[d]->addIncoming(from[d], begin);
    block_id_[d] = carried[d];
  }
  for (NodeId id : plan_.zeroed) {
    const Local& local = locals_[id];
    if (local.chunk_bytes)
      b_.CreateMemSet(context_pointer(local.context, 0, nullptr), b_.getInt8(0), local.chunk_bytes * layout_.chunks(),
                      llvm::Align(64));
    else
      clear_local(id);
  }
  steps(plan_.steps);
  Value* next_x = b_.CreateAdd(carried[0], b_.getInt64(1));
  Value* row_ends = b_.CreateICmpEQ(next_x, grid_[0]);
  Value* next_y = b_.CreateAdd(carried[1], b_.CreateZExt(row_ends, b_.getInt64Ty()));
  Value* plane_ends = b_.CreateICmpEQ(next_y, grid_[1]);
  auto* last = b_.GetInsertBlock();
  carried[0]->addIncoming(b_.CreateSelect(row_ends, zero, next_x), last);
  carried[1]->addIncoming(b_.CreateSelect(plane_ends, zero, next_y), last);
  carried[2]->addIncoming(b_.CreateAdd(carried[2], b_.CreateZExt(plane_ends, b_.getInt64Ty())), last);
  loop_end();
}

void Emitter::steps(const Steps& list) {
  for (const Step& s : list) {
    if (s.kind == Step::once)
      statement(s.node, nullptr);
    else if (s.kind == Step::region)
      region(plan_.regions[s.number]);
    else
      control_step(s);
  }
}

// Emits control flow that contains barriers. It is scalar code outside the loop over chunks.
void Emitter::control_step(const Step& step) {
  const Node& n = fn_[step.node];
  auto new_block = [&](const char* name) { return llvm::BasicBlock::Create(context_, name, body_); };
  if (n.op == Op::if_) {
    auto *yes = new_block("then"), *no = new_block("else"), *after = new_block("endif");
    b_.CreateCondBr(block_scalar(n.args[0]), yes, no);
    b_.SetInsertPoint(yes);
    steps(step.first);
    b_.CreateBr(after);
    b_.SetInsertPoint(no);
    steps(step.second);
    b_.CreateBr(after);
    b_.SetInsertPoint(after);
  } else if (n.op == Op::for_) {
    Value *begin = block_scalar(n.args[0]), *end = block_scalar(n.args[1]), *by = block_scalar(n.args[2]);
    auto *body = new_block("for"), *after = new_block("endfor"), *before = b_.GetInsertBlock();
    const DType t = dtype(n.args[0]);
    b_.CreateCondBr(compare(CompareOp::lt, t, begin, end), body, after);
    b_.SetInsertPoint(body);
    auto* counter = b_.CreatePHI(begin->getType(), 2, "i");
    counter->addIncoming(begin, before);
    define(n.args[3], counter);
    steps(step.first);
    Value* next = b_.CreateAdd(counter, by);
    counter->addIncoming(next, b_.GetInsertBlock());
    b_.CreateCondBr(has_next_iteration(counter, end, by), body, after);
    b_.SetInsertPoint(after);
  } else {
    auto *test = new_block("while"), *body = new_block("do"), *after = new_block("endwhile");
    b_.CreateBr(test);
    b_.SetInsertPoint(test);
    steps(step.first);
    b_.CreateCondBr(block_scalar(n.args[0]), body, after);
    b_.SetInsertPoint(body);
    steps(step.second);
    b_.CreateBr(test);
    b_.SetInsertPoint(after);
  }
}

// Returns the scalar of a value that is uniform in the block, as the verifier proved, even if it is stored per chunk or
// thread.
Emitter::Value* Emitter::block_scalar(NodeId id) {
  if (is_leaf(fn_[id].op)) return leaf(id).value;
  const Shape shape = analysis_.shapes[id];
  if (plan_.spilled[id] && layout_.chunks() > 1) reload(id, b_.getInt64(0));
  Value* v = values_[id];
  return shape.varying() && v->getType()->isVectorTy() ? b_.CreateExtractElement(v, std::uint64_t{0}) : v;
}

void Emitter::region(const Region& r) {
  auto reduces = [&](auto&& f) {
    for (NodeId id : r.statements)
      if (fn_[id].op == Op::block_reduce || fn_[id].op == Op::block_uniform || fn_[id].op == Op::block_scan) f(id);
  };
  reduces([&](NodeId id) { start_reduction(id); });
  if (layout_.chunks() == 1) {
    region_chunk(r, b_.getInt64(0));
  } else {
    if (const NodeId loop = find_block_stride_loop(r); loop != no_node) emit_full_iterations(r, loop);
    Value* chunk = loop_begin(b_.getInt64(0), b_.getInt64(layout_.chunks()), "chunk");
    region_chunk(r, chunk);
    loop_end();
    block_stride_loop_ = no_node;
  }
  reduces([&](NodeId id) { finish_reduction(id); });
}

// Sets the thread ids and the tail mask of the chunk, and recomputes or loads the values of other regions.
void Emitter::begin_chunk(const Region& r, Value* chunk) {
  const auto& size = fn_.block_size;
  chunk_ = chunk;
  linear_ = b_.CreateMul(chunk, b_.getInt64(width_), "linear", true, true);
  Value* row = b_.CreateUDiv(linear_, b_.getInt64(size[0]));
  for (unsigned d = 0; d < 3; ++d) {
    if (layout_.thread_id[d].varying()) {
      Value* from = b_.CreateInBoundsGEP(b_.getInt32Ty(), tables_[d], linear_);
      thread_[d] = b_.CreateAlignedLoad(lanes(b_.getInt32Ty()), from, llvm::Align(4), "thread");
    } else if (size[d] == 1) {
      thread_[d] = b_.getInt64(0);
    } else {
      thread_[d] = d == 0   ? b_.CreateURem(linear_, b_.getInt64(size[0]))
                   : d == 1 ? b_.CreateURem(row, b_.getInt64(size[1]))
                            : b_.CreateUDiv(row, b_.getInt64(size[1]));
    }
  }
  std::ranges::fill(anchors_, nullptr), forget_registers();
  tail_mask_ = nullptr;
  if (layout_.tail()) {
    Value* left = b_.CreateTrunc(b_.CreateSub(b_.getInt64(layout_.threads), linear_), b_.getInt32Ty());
    tail_mask_ = b_.CreateICmpSLT(iota(b_.getInt32Ty(), 1), splat(left), "exists");
  }
  if (layout_.chunks() > 1)
    for (NodeId id : r.reloaded) reload(id, chunk);
  for (NodeId id : r.needed) statement(id, tail_mask_);
}

void Emitter::region_chunk(const Region& r, Value* chunk) {
  begin_chunk(r, chunk);
  const bool several = layout_.chunks() > 1;
  for (NodeId id : r.cleared) clear_local(id);
  for (std::size_t i = 0; several && i < r.locals.size(); ++i) {
    Local& local = locals_[r.locals[i]];
    Value* there = context_pointer(local.context, local.chunk_bytes, chunk);
    if (!local.own)
      local.pointer = there;
    else
      b_.CreateStore(b_.CreateAlignedLoad(local.element, there, llvm::Align(1)), local.own);
  }
  for (NodeId id : r.statements) {
    statement(id, tail_mask_);
    if (several && plan_.spilled[id]) spill(id, chunk);
  }
  flush_pending_stores();
  for (std::size_t i = 0; several && i < r.locals.size(); ++i) {
    const Local& local = locals_[r.locals[i]];
    if (!local.own || !r.writes[i]) continue;
    b_.CreateAlignedStore(b_.CreateLoad(local.element, local.own),
                          context_pointer(local.context, local.chunk_bytes, chunk), llvm::Align(1));
  }
}

Emitter::Value* Emitter::context_pointer(std::size_t offset, std::size_t chunk_bytes, Value* chunk) {
  Value* base = b_.CreateConstInBoundsGEP1_64(b_.getInt8Ty(), kept_, offset);
  if (!chunk) return base;
  return b_.CreateInBoundsGEP(b_.getInt8Ty(), base, b_.CreateMul(chunk, b_.getInt64(chunk_bytes), "", true, true));
}

void Emitter::spill(NodeId id, Value* chunk) {
  Value* v = to_memory(dtype(id), values_[id]);
  const std::size_t each = bytes_of(dtype(id)) * (analysis_.shapes[id].varying() ? width_ : 1);
  b_.CreateAlignedStore(v, context_pointer(offsets_[id], each, chunk), llvm::Align(bytes_of(dtype(id))));
}
void Emitter::reload(NodeId id, Value* chunk) {
  const DType t = dtype(id);
  const bool vector = analysis_.shapes[id].varying();
  const std::size_t each = bytes_of(t) * (vector ? width_ : 1);
  llvm::Type* element = memory_type(t);
  Value* from = context_pointer(offsets_[id], each, chunk);
  define(id, from_memory(t, b_.CreateAlignedLoad(vector ? lanes(element) : element, from, llvm::Align(bytes_of(t)))));
}

void Emitter::clear_local(NodeId id) {
  const Local& local = locals_[id];
  if (fn_[id].imm == 1) {
    b_.CreateStore(llvm::Constant::getNullValue(local.element), local.pointer);
    return;
  }
  const auto bytes = module_.getDataLayout().getTypeAllocSize(local.element) * fn_[id].imm;
  b_.CreateMemSet(local.pointer, b_.getInt8(0), bytes, llvm::Align(16));
}

// Reductions. All chunks accumulate into a vector, which is reduced to a scalar at the end of the region.
void Emitter::start_reduction(NodeId id) {
  const Node& n = fn_[id];
  llvm::Type* t = type(n.type.dtype);
  auto* place = stack(n.op == Op::block_reduce ? static_cast<llvm::Type*>(lanes(t)) : t, "reduction");
  accumulators_[id] = place;
  if (n.op == Op::block_reduce)
    b_.CreateStore(splat(identity(n.kind<ReduceOp>(), n.type.dtype)), place);
  else if (n.op == Op::block_scan)
    b_.CreateStore(llvm::Constant::getNullValue(t), place);
}
void Emitter::accumulate(NodeId id, Value* mask) {
  const Node& n = fn_[id];
  if (n.op == Op::block_uniform) {
    const ShapedValue h = shaped_value(n.args[0]);
    b_.CreateStore(h.shape.varying() ? b_.CreateExtractElement(h.value, std::uint64_t{0}) : h.value, accumulators_[id]);
    return;
  }
  const ReduceOp op = n.kind<ReduceOp>();
  Value* v = vector(n.args[0]);
  if (mask) v = b_.CreateSelect(mask, v, splat(identity(op, n.type.dtype)));
  Value* sum = b_.CreateLoad(v->getType(), accumulators_[id]);
  b_.CreateStore(combine(op, n.type.dtype, sum, v), accumulators_[id]);
}
void Emitter::finish_reduction(NodeId id) {
  const Node& n = fn_[id];
  if (n.op == Op::block_scan) return;
  llvm::Type* t = type(n.type.dtype);
  if (n.op == Op::block_uniform)
    define(id, b_.CreateLoad(t, accumulators_[id]));
  else
    define(id, across(n.kind<ReduceOp>(), n.type.dtype, b_.CreateLoad(lanes(t), accumulators_[id])));
}

// Chunks run in order, so each chunk adds the sum of the previous chunks.
void Emitter::scan(NodeId id, Value* mask) {
  const Node& n = fn_[id];
  const DType t = n.type.dtype;
  Value* v = vector(n.args[0]);
  Value* zero = llvm::Constant::getNullValue(v->getType());
  if (mask) v = b_.CreateSelect(mask, v, zero);
  auto shifted = [&](Value* a, unsigned by) {
    std::vector<int> lane(width_);
    for (unsigned i = 0; i < width_; ++i) lane[i] = static_cast<int>(i < by ? width_ + i : i - by);
    return b_.CreateShuffleVector(a, zero, lane);
  };
  for (unsigned by = 1; by < width_; by *= 2) v = combine(ReduceOp::sum, t, v, shifted(v, by));
  Value* carry = b_.CreateLoad(type(t), accumulators_[id]);
  Value* total = combine(ReduceOp::sum, t, b_.CreateExtractElement(v, std::uint64_t{width_ - 1}), carry);
  define(id, combine(ReduceOp::sum, t, n.imm ? shifted(v, 1) : v, splat(carry)));
  b_.CreateStore(total, accumulators_[id]);
}

llvm::AllocaInst* Emitter::stack(llvm::Type* type, const llvm::Twine& name) {
  return allocas_.CreateAlloca(type, nullptr, name);
}

Emitter::Value* Emitter::loop_begin(Value* begin, Value* end, const char* name) {
  auto* before = b_.GetInsertBlock();
  auto* body = llvm::BasicBlock::Create(context_, name, body_);
  auto* after = llvm::BasicBlock::Create(context_, llvm::Twine(name) + ".end", body_);
  b_.CreateCondBr(b_.CreateICmpULT(begin, end), body, after);
  b_.SetInsertPoint(body);
  auto* counter = b_.CreatePHI(begin->getType(), 2, name);
  counter->addIncoming(begin, before);
  loops_.push_back({counter, end, after});
  return counter;
}
void Emitter::loop_end() {
  const Loop loop = loops_.back();
  loops_.pop_back();
  Value* next = b_.CreateAdd(loop.counter, llvm::ConstantInt::get(loop.counter->getType(), 1), "", true, true);
  loop.counter->addIncoming(next, b_.GetInsertBlock());
  b_.CreateCondBr(b_.CreateICmpULT(next, loop.end), loop.counter->getParent(), loop.after);
  b_.SetInsertPoint(loop.after);
}

}  // namespace tessera::cpu
