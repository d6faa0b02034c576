// SPDX-License-Identifier: Apache-2.0
#include "tessera/array/source.h"

#include <fmt/format.h>

#include <algorithm>
#include <mutex>

#include "tessera/array/cached_expression.h"
#include "tessera/array/flushing.h"
#include "tessera/array/fusion_trace.h"
#include "tessera/base/log.h"
#include "tessera/base/printable.h"
#include "tessera/device/memory/pending.h"
#include "tessera/device/queue/recorder.h"
#include "tessera/device/settings.h"

namespace tessera {

namespace {
std::atomic<bool> trace_requested{false};
}
void trace_fusion(bool on) { trace_requested = on; }

namespace detail {

bool fusion_traced() { return trace_requested.load(std::memory_order_relaxed) || settings().trace_fusion; }

void trace_flush(const Fused& fused, const char* rule) {
  if (!fusion_traced()) return;
  logging::print(fmt::format("fused {} on {}: {}, {}, {}: {}", operation_names(fused.structure()),
                             to_string(fused.device()), count_noun(fused.operations(), "operation"),
                             count_noun(fused.inputs().size(), "input"),
                             count_noun(fused.structure().outputs.size(), "output"), rule));
}

std::shared_ptr<Source> Source::of(std::shared_ptr<Storage> storage, DType dtype) {
  auto s = std::make_shared<Source>(Private{});
  s->device_ = storage->device();
  s->dtype_ = dtype;
  s->storage_ = std::move(storage);
  s->recording_ = Recorder::number();
  s->computed_.store(true, std::memory_order_release);
  return s;
}

std::shared_ptr<Source> Source::pending_on(Device device, DType dtype) {
  auto s = std::make_shared<Source>(Private{});
  s->device_ = device;
  s->dtype_ = dtype;
  return s;
}

std::shared_ptr<Source> Source::of(const std::shared_ptr<const Expr>& expr) {
  auto made = pending_on(expr->device, expr->dtype);
  std::shared_ptr<Source> known;
  std::lock_guard hold(PendingRegistry::of(expr->device).lock);
  known = expr->source();
  if (known && !(known->computed() && known->overwritten())) return known;
  begin(made, expr);
  return made;
}

void Source::begin(const std::shared_ptr<Source>& source, std::shared_ptr<const Expr> expr) {
  source->recording_ = expr->recording;
  expr->set_source(source);
  source->expr_ = std::move(expr);
}

namespace {
constinit thread_local bool flushing = false;
}  // namespace
bool is_flushing() noexcept { return flushing; }

bool Source::flush() {
  if (computed()) return false;
  struct Flushing {
    const bool before = std::exchange(flushing, true);
    ~Flushing() { flushing = before; }
  } const now;
  return storage("its input is about to be overwritten") != nullptr;
}

const std::shared_ptr<Storage>& Source::storage(const char* rule, std::span<const std::shared_ptr<Source>> siblings) {
  if (computed()) return storage_;
  const Recorder::Pause pause(recording_ != Recorder::number());
  if (!siblings.empty()) return collect(rule, siblings, nullptr, nullptr);
  SingleComputation single(*this);
  if (!single) return collect(rule, siblings, nullptr, nullptr);
  const std::shared_ptr<const Expr>& e = single.expression();
  const CachedExpression repeated(e->op, e->sub, e->dtype, device_, e->shape, e->terms());
  if (repeated) {
    count_fused_launch();
    single.computed(repeated());
    return storage_;
  }
  const std::shared_ptr<const Expr> kept = e;
  single.release();  // Collecting may wait for tasks, which wait for claimed readers.
  return collect(rule, siblings, &repeated, kept.get());
}

const std::shared_ptr<Storage>& Source::collect(const char* rule, std::span<const std::shared_ptr<Source>> siblings,
                                                const CachedExpression* repeated, const Expr* single) {
  Computation walk(device_);
  const std::optional<int> node = walk.collect(*this, siblings);
  if (!node) return storage_;
  const Shape shape = walk.root().shape;
  auto result = Storage::allocate(device_, static_cast<std::size_t>(element_count(shape)) * dtype_size(dtype_));
  walk.add_outputs(shape);
  walk.fused().output(*node, {result, dtype_, contiguous_strides(shape), 0});
  trace_flush(walk.fused(), rule);
  walk.fused().run(shape, &walk.root() == single && !walk.shared() ? repeated : nullptr);
  walk.computed(std::move(result));
  return storage_;
}

namespace {
void collect_into(std::span<const Write> writes, const Shape& shape, Device device, std::span<Array> donated,
                  const CachedExpression* repeated) {
  Computation walk(device);
  const std::vector<int> nodes = walk.collect(writes, donated);
  for (Array& a : donated) a = Array();
  walk.add_outputs(shape);
  for (std::size_t i = 0; i < writes.size(); ++i) walk.fused().output(nodes[i], writes[i].target);
  trace_flush(walk.fused(), "its result is written in place");
  walk.fused().run(shape, walk.shared() ? nullptr : repeated);
  walk.computed();
}
}  // namespace

void run_into(std::span<const Write> writes, const Shape& shape, Device device, std::span<Array> donated) {
  if (writes.size() != 1) return collect_into(writes, shape, device, donated, nullptr);
  const Write& w = writes.front();
  const CachedExpression repeated(w.op, w.sub, w.target.dtype, device, shape, w.terms, &w.target);
  if (!repeated) return collect_into(writes, shape, device, donated, &repeated);
  count_fused_launch();
  repeated();
}

int Computation::operation(ir::Op op, std::uint8_t sub, DType dtype, std::span<const Term> terms) {
  std::array<int, 3> nodes{};  // no operation has more than three operands
  std::size_t count = 0;
  for (const Term& t : terms) {
    nodes[count] = visit(t);
    if (nodes[count++] < 0) return -1;
  }
  return fused_->operation(op, sub, dtype, std::span(nodes).first(count));
}

int Computation::visit(const Term& t) {
  switch (t.kind) {
    case Term::scalar: return fused_->scalar(t.dtype, t.bits);
    case Term::memory: return fused_->input(t.view);
    default: return visit(t.expr);
  }
}

int Computation::visit(const std::shared_ptr<const Expr>& expr) {
  for (const Visited& m : visited_)
    if (m.expr == expr.get()) return m.node;
  reserve_one(kept_);
  auto source = expr->source();
  if (source && is_only_donated(source)) source.reset();
  if (source) {
    kept_.push_back(source);
    if (source->computed() && !source->overwritten())
      return fused_->input({source->memory(), expr->dtype, contiguous_strides(expr->shape), 0});
    if (source->computed()) {
      source.reset();  // It has been overwritten, so the expression is recomputed.
    } else if (source->computing_ != nullptr) {
      if (!source->computing_->of_this_thread()) {
        blocked_ = std::move(source);
        return -1;
      }
      source.reset();  // This thread is already computing it in another computation, so it is recomputed here.
    }
  }
  if (Recorder::number() != 0 && expr->recording != Recorder::number()) {
    first_ = expr;
    return -1;
  }
  const int node = operation(expr->op, expr->sub, expr->dtype, expr->terms());
  if (node >= 0) visited_.push_back({expr.get(), std::move(source), node});
  return node;
}

namespace {
/// Returns an input that tasks write, or null. The tasks must be waited for before a computation is registered as a
/// reader, because they wait for readers that are being computed.
std::shared_ptr<Storage> written_by_tasks(const Fused& fused) {
  if (flushing) return nullptr;
  for (const StridedView& v : fused.inputs())
    if (const CoherenceHook* const e = v.storage->coherence_hook(); e != nullptr && e->has_other_writers())
      return v.storage;
  return nullptr;
}
}  // namespace

template <class F>
std::optional<int> Computation::collect_until_complete(Source* root, F&& visit) {
  for (;;) {
    visited_.clear();
    visited_.reserve(4);
    root_expr_.reset();
    fused_.emplace(device_);
    std::shared_ptr<const Expr> first;
    std::shared_ptr<Storage> written;
    {
      std::unique_lock hold(books_.lock);
      if (root != nullptr && root->computed()) return std::nullopt;
      if (root != nullptr && root->computing_ != nullptr && root->computing_->of_this_thread()) return std::nullopt;
      const int node = visit();
      if (node >= 0) written = written_by_tasks(*fused_);
      if (node >= 0 && !written) {
        claim(root);
        return node;
      }
      if (blocked_) {
        books_.await(hold, device_, [&] { return blocked_->computing_ == nullptr; });
        kept_.push_back(std::move(blocked_));
      }
      first = std::exchange(first_, nullptr);
    }
    if (written) written->coherence_hook()->before_read(*written);
    if (first) {  // Kept until the end, because collected terms still refer to it.
      kept_.push_back(Source::of(first));
      kept_.back()->storage("it is not part of the recording");
    }
  }
}

int Computation::collect(const Term& term, std::span<const Array> donated) {
  donated_ = donated;
  return *collect_until_complete(nullptr, [&] { return visit(term); });
}
std::vector<int> Computation::collect(std::span<const Write> writes, std::span<const Array> donated) {
  donated_ = donated;
  std::vector<int> nodes;
  collect_until_complete(nullptr, [&] {
    nodes.clear();
    for (const Write& w : writes) {
      nodes.push_back(operation(w.op, w.sub, w.target.dtype, w.terms));
      if (nodes.back() < 0) break;
    }
    return nodes.back();
  });
  return nodes;
}
std::optional<int> Computation::collect(Source& root, std::span<const std::shared_ptr<Source>> siblings) {
  return collect_until_complete(&root, [&] {
    root_expr_ = root.expression();
    const int node = visit(root_expr_);
    return node >= 0 && visit_siblings(root, siblings) ? node : -1;
  });
}

bool Computation::visit_siblings(const Source& root, std::span<const std::shared_ptr<Source>> siblings) {
  const std::uint64_t limit = device_info(device_).can.max_parameter_bytes;
  for (const auto& source : siblings) {
    if (source->computed() || source->computing_ != nullptr || source->recording() != root.recording()) continue;
    const std::shared_ptr<const Expr>& expr = source->expression();
    if (expr->shape != root_expr_->shape) continue;
    const std::size_t met = visited_.size();
    const Fused::Mark before = fused_->mark();
    if (visit(expr) < 0) return false;
    const auto held =
        static_cast<std::size_t>(std::ranges::count_if(visited_, [](const Visited& m) { return !!m.source; }));
    if (fused_->operations() <= max_shared_operations &&
        parameter_bytes(fused_->inputs().size() + held, fused_->structure().scalars.size(), expr->shape.size()) <=
            limit)
      continue;
    visited_.resize(met);
    fused_->rollback(before);
  }
  return true;
}

/// True if the source is pending and only donated arrays refer to it, so that its result need not be stored.
bool Computation::is_only_donated(const std::shared_ptr<Source>& source) const {
  if (donated_.empty() || source->computed()) return false;
  const auto ours = std::ranges::count(donated_, source, &Array::source) + std::ranges::count(kept_, source);
  return source.use_count() == ours + 1;
}

SingleComputation::SingleComputation(Source& root) : root_(root), books_(PendingRegistry::of(root.device_)) {
  std::lock_guard hold(books_.lock);
  if (!root.expr_ || root.computing_ != nullptr || root.expr_->recording != 0) return;
  for (const Term& t : root.expr_->terms())
    if (t.kind == Term::expression) return;
  begin(books_);
  root.computing_ = this;
}

bool SingleComputation::reads(const Storage& storage) const {
  return std::ranges::any_of(expression()->terms(),
                             [&](const Term& t) { return t.kind == Term::memory && t.view.storage.get() == &storage; });
}

void SingleComputation::release_claims() {
  root_.computing_ = nullptr;
  end(books_);
}

void SingleComputation::release() {
  if (!begun()) return;
  std::lock_guard hold(books_.lock);
  release_claims();
}

void SingleComputation::computed(std::shared_ptr<Storage> storage) {
  Substitution above;  // Destroyed after the lock is released, like `dropped`.
  std::shared_ptr<const Expr> dropped;
  std::lock_guard hold(books_.lock);
  root_.finish(std::move(storage), dropped, above);
  above.run();
  if (dropped.use_count() == 1) dropped->unlink();  // Otherwise its destructor would lock the registry again.
  release_claims();
}

void Source::finish(std::shared_ptr<Storage> memory, std::shared_ptr<const Expr>& dropped, Substitution& above) {
  storage_ = std::move(memory);
  writes_ = storage_->writes();
  computed_.store(true, std::memory_order_release);
  dropped = std::move(expr_);
  above.computed(dropped, storage_, recording_);
}

bool Computation::reads(const Storage& storage) const {
  return std::ranges::any_of(fused_->inputs(), [&](const StridedView& v) { return v.storage.get() == &storage; });
}

void Computation::claim(Source* root) {
  std::optional<std::uint64_t> limit;
  const std::size_t views = fused_->inputs().size() + 1, scalars = fused_->structure().scalars.size();
  begin(books_);
  for (Visited& m : visited_) {
    if (!m.source || m.source->computing_ != nullptr || m.source.get() == root) continue;
    // Results that do not fit stay pending until they are needed.
    if (!limit) limit = device_info(device_).can.max_parameter_bytes;
    if (parameter_bytes(views + claims_.size(), scalars, m.expr->shape.size()) > *limit) break;
    claims_.push_back({m.source, m.source->expression(), m.node});
    m.source->computing_ = this;
  }
  if (root != nullptr) root->computing_ = this;
  root_ = root;
}

void Computation::release_claims() {
  for (const Claim& c : claims_) c.source->computing_ = nullptr;
  if (root_ != nullptr) root_->computing_ = nullptr;
  root_ = nullptr;
  end(books_);  // Wakes threads that wait for this work or for the claims.
}

void Computation::release() {
  if (!begun()) return;
  {
    std::lock_guard hold(books_.lock);
    release_claims();
  }
  claims_.clear();
}

void Computation::add_outputs(const Shape& shape) {
  for (Claim& c : claims_) {
    const DType dtype = c.source->dtype();
    c.storage = Storage::allocate(device_, static_cast<std::size_t>(element_count(shape)) * dtype_size(dtype));
    fused_->output(c.node, {c.storage, dtype, contiguous_strides(shape), 0});
  }
}

void Computation::computed(std::shared_ptr<Storage> storage) {
  if (claims_.empty() && root_ == nullptr) return release();
  Substitution above;  // Destroyed after the lock is released, like the expressions of the sources.
  {
    std::lock_guard hold(books_.lock);
    for (Claim& c : claims_) c.source->finish(std::move(c.storage), c.dropped, above);
    if (root_ != nullptr) root_->finish(std::move(storage), root_dropped_, above);
    above.run();
    release_claims();
  }
  claims_.clear();
}

}  // namespace detail
}  // namespace tessera
