// SPDX-License-Identifier: Apache-2.0
#include "tessera/array/source.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdio>

#include "tessera/device/recorder.h"
#include "tessera/device/settings.h"

namespace tessera {

namespace {
std::atomic<bool> trace_requested{false};
}
void trace_fusion(bool on) { trace_requested = on; }

namespace detail {

namespace {

// When a pending expression is computed rather than grown (docs/decisions.md).
constexpr std::uint32_t max_nodes = 64;
constexpr std::uint64_t max_held_bytes = std::uint64_t{256} << 20;

/// At most what a fused kernel with one output more than `views` passes: as KernelFacts counts it.
std::uint64_t parameter_bytes(std::uint64_t views, std::uint64_t scalars, std::size_t rank) {
  return 16 * (views + 1) + 8 * (scalars + rank * (views + 2));
}

}  // namespace

void trace_flush(const Fused& fused, const char* rule) {
  if (!trace_requested && !settings().trace_fusion) return;
  std::fprintf(stderr, "tessera: fused %s on %s: %zu operations, %zu inputs, %zu outputs: %s\n",
               operation_names(fused.structure()).c_str(), to_string(fused.device()).c_str(), fused.operations(),
               fused.inputs().size(), fused.structure().outputs.size(), rule);
}

std::shared_ptr<Source> Source::of(std::shared_ptr<Storage> storage, DType dtype) {
  std::shared_ptr<Source> s(new Source);
  s->device_ = storage->device();
  s->dtype_ = dtype;
  s->storage_ = std::move(storage);
  s->recording_ = Recorder::number();
  return s;
}

bool Source::pending() const {
  std::lock_guard hold(lock_);
  return !storage_;
}

void Source::add_parent(const std::weak_ptr<PendingReader>& parent) {
  std::lock_guard hold(lock_);
  if (storage_) {
    storage_->add_reader(parent);
  } else {
    std::erase_if(parents_, [](const auto& p) { return p.expired(); });
    parents_.push_back(parent);
  }
}

std::shared_ptr<Source> Source::deferred(ir::Op op, std::uint8_t sub, DType dtype, Shape shape, Device device,
                                         std::vector<Term> args) {
  std::shared_ptr<Source> s(new Source);
  s->device_ = device;
  s->dtype_ = dtype;
  s->op_ = op, s->sub_ = sub;
  s->shape_ = std::move(shape);
  s->recording_ = Recorder::number();
  if (s->recording_ == 0) {  // another thread may help the one that records: its work depends on what changes
    std::uint64_t of_pending = 0, of_computed = 0;  // a recording reads what another has computed as it is
    for (const Term& t : args) {
      if (t.kind == Term::scalar || !Recorder::goes_on(t.source->recording_)) continue;
      std::lock_guard hold(t.source->lock_);
      std::uint64_t& latest = t.source->storage_ ? of_computed : of_pending;
      latest = std::max(latest, t.source->recording_);
    }
    s->recording_ = of_pending != 0 ? of_pending : of_computed;
  }

  // Grow the expression, unless a limit says that its parts are computed first.
  auto measure = [&] {
    s->nodes_ = 1, s->views_ = 0, s->scalars_ = 0, s->held_bytes_ = 0;
    for (const Term& t : args) {
      if (t.kind == Term::scalar) {
        ++s->scalars_;
        continue;
      }
      std::lock_guard hold(t.source->lock_);
      if (t.source->storage_) {
        s->views_ += 1;
        s->held_bytes_ += t.source->storage_->bytes();
      } else {
        s->nodes_ += t.source->nodes_;
        s->views_ += t.source->views_;
        s->scalars_ += t.source->scalars_;
        s->held_bytes_ += t.source->held_bytes_;
      }
    }
  };
  measure();
  const char* limit =
      s->nodes_ > max_nodes ? "the expression reached 64 operations"
      : parameter_bytes(s->views_, s->scalars_, s->shape_.size()) > device_info(device).can.max_parameter_bytes
          ? "its parameters reached the device's limit"
      : s->nodes_ > 1 && s->held_bytes_ > max_held_bytes ? "its inputs reached the byte budget"
                                                         : nullptr;
  if (limit) {
    for (const Term& t : args)
      if (t.kind != Term::scalar) t.source->storage(limit);
    measure();
  }

  bool exposed = false;
  for (const Term& t : args)
    if (t.kind != Term::scalar) {
      std::lock_guard hold(t.source->lock_);
      exposed = exposed || (t.source->storage_ && t.source->storage_->exposed());
    }
  s->args_ = std::move(args);
  if (element_count(s->shape_) == 0 || exposed) {
    s->storage(exposed ? "a raw pointer to its input was handed out" : "it is empty");
    return s;
  }
  for (const Term& t : s->args_)
    if (t.kind != Term::scalar) t.source->add_parent(s->weak_from_this());
  return s;
}

int Source::collect_operation(Fused& fused, Walk& walk, ir::Op op, std::uint8_t sub, DType dtype,
                              std::span<const Term> args) {
  std::array<int, 3> nodes{};  // no operation has more operands
  std::size_t count = 0;
  for (const Term& t : args) {
    int& node = nodes[count++];
    if (t.kind == Term::scalar)
      node = fused.scalar(t.dtype, t.bits);
    else if (t.kind == Term::view)
      node = fused.input({t.source->storage("a view of it is read"), t.dtype, t.strides, t.offset});
    else
      node = t.source->collect(fused, walk);
    if (walk.stopped()) return -1;
  }
  return fused.operation(op, sub, dtype, std::span(nodes).first(count));
}

int Source::collect(Fused& fused, Walk& walk) {
  if (Walk::Met* met = walk.find(this)) {
    ++met->uses;
    return met->node;
  }
  std::unique_lock hold(lock_, std::try_to_lock);
  if (!hold) {
    walk.blocked = shared_from_this();
    return -1;
  }
  if (storage_) return fused.input({storage_, dtype_, contiguous_strides(shape_), 0});
  if (Recorder::current != nullptr && recording_ != Recorder::number()) {
    walk.compute_first = shared_from_this();
    return -1;
  }
  const int node = collect_operation(fused, walk, op_, sub_, dtype_, args_);
  if (walk.stopped()) return -1;
  walk.met.push_back({this, node, 1});
  walk.locks.push_back(std::move(hold));
  return node;
}

void Source::Walk::wait() {
  locks.clear();
  met.clear();
  if (compute_first) compute_first->storage("it is no part of the recording");
  if (blocked) std::lock_guard hold(blocked->lock_);
  compute_first.reset(), blocked.reset();
}

std::vector<std::pair<Source*, std::shared_ptr<Storage>>> Source::Walk::shared_outputs(Fused& fused, const Source* root,
                                                                                       const Shape& shape) {
  std::vector<std::pair<Source*, std::shared_ptr<Storage>>> out;
  for (const Met& m : met) {
    if (m.source == root || !held_elsewhere(m)) continue;
    if (parameter_bytes(fused.inputs().size() + fused.structure().outputs.size() + 1, fused.structure().scalars.size(),
                        shape.size()) > device_info(fused.device()).can.max_parameter_bytes)
      break;  // the rest stays pending and is computed when somebody asks
    auto storage = Storage::allocate(fused.device(),
                                     static_cast<std::size_t>(element_count(shape)) * dtype_size(m.source->dtype_));
    fused.output(m.node, {storage, m.source->dtype_, contiguous_strides(shape), 0});
    out.emplace_back(m.source, std::move(storage));
  }
  return out;
}

void Source::computed(std::shared_ptr<Storage> storage, Walk& walk) {
  storage_ = std::move(storage);
  for (Term& t : args_) walk.released.push_back(std::move(t));
  args_.clear();
  for (const auto& p : parents_)
    if (!p.expired()) storage_->add_reader(p);
  parents_.clear();
}

std::shared_ptr<Storage> Source::storage(const char* rule) {
  const Recorder::Pause pause(recording_ != Recorder::number());
  for (;;) {
    {
      std::lock_guard hold(lock_);
      if (storage_) return storage_;
    }
    Walk walk;
    Fused fused(device_);
    const int node = collect(fused, walk);
    if (walk.stopped()) {
      walk.wait();
      continue;
    }
    if (!walk.find(this)) continue;  // another thread was quicker
    auto result = Storage::allocate(device_, static_cast<std::size_t>(element_count(shape_)) * dtype_size(dtype_));
    auto shared = walk.shared_outputs(fused, this, shape_);
    fused.output(node, {result, dtype_, contiguous_strides(shape_), 0});
    trace_flush(fused, rule);
    fused.run(shape_);
    for (auto& [source, storage] : shared) source->computed(std::move(storage), walk);
    computed(result, walk);
    return result;
  }
}

void Source::run_into(StridedView target, const Shape& shape, Device device, ir::Op op, std::uint8_t sub,
                      std::span<const Term> args) {
  for (;;) {
    Walk walk;
    Fused fused(device);
    const int node = collect_operation(fused, walk, op, sub, target.dtype, args);
    if (walk.stopped()) {
      walk.wait();
      continue;
    }
    auto shared = walk.shared_outputs(fused, nullptr, shape);
    fused.output(node, std::move(target));
    trace_flush(fused, "its result is written in place");
    fused.run(shape);
    for (auto& [source, storage] : shared) source->computed(std::move(storage), walk);
    return;
  }
}

}  // namespace detail
}  // namespace tessera
