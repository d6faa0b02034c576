// SPDX-License-Identifier: Apache-2.0
// Calls of compiled models: recording, replay, and detection of changed passes.
#include "tessera/nn/compile.h"

#include <fmt/format.h>

#include <algorithm>
#include <mutex>

#include "tessera/array/history.h"
#include "tessera/base/config.h"
#include "tessera/base/log.h"
#include "tessera/base/printable.h"
#include "tessera/device/context.h"
#include "tessera/device/memory/untracked_write.h"
#include "tessera/device/placement/placement_scope.h"
#include "tessera/nn/compiled_state.h"
#include "tessera/nn/mode.h"

namespace tessera {

namespace detail {

namespace {

/// Counts kernel launches while it exists.
class Launches {
 public:
  std::uint64_t count() const {
    std::uint64_t n = 0;
    for (const auto& k : placement_.log().kernels) n += k.launches;
    return n;
  }

 private:
  Placement placement_;
};

/// Attributes kernel launches to layers. An expression is computed when a later layer needs it, so its launches would
/// be attributed to the wrong layer. The pass therefore runs twice. The first run finds the layers that launch kernels,
/// and the second one evaluates the inputs of these layers before they run.
class LaunchesByLayer : public LayerObserver {
 public:
  explicit LaunchesByLayer(std::vector<bool> computes = {}) : computes_(std::move(computes)) {}
  Array before(const ObservedLayer& layer, const Array& x) override {
    const std::size_t row = rows.size();
    if (row < computes_.size() && computes_[row]) {
      x.eval();
      settle();
      head_ = row;
    }
    rows.push_back({layer, 0, head_});
    open_.emplace_back(row, launches_.count());
    return x;
  }
  void after(const ObservedLayer&, const Array&) override {
    const auto [row, begun] = open_.back();
    open_.pop_back();
    if (launches_.count() != begun) launched.resize(std::max(launched.size(), row + 1)), launched[row] = true;
  }
  /// Attributes the launches since the last call to the layer that computes them.
  void settle() {
    const std::uint64_t now = launches_.count();
    if (!rows.empty()) rows[head_].launches += now - counted_;
    counted_ = now;
  }
  struct Row {
    ObservedLayer layer;
    std::uint64_t launches;
    std::size_t head;  ///< the row with the kernels that compute this layer
  };
  std::vector<Row> rows;
  std::vector<bool> launched;

 private:
  const std::vector<bool> computes_;
  Launches launches_;
  std::uint64_t counted_ = 0;
  std::size_t head_ = 0;
  std::vector<std::pair<std::size_t, std::uint64_t>> open_;
};

/// Returns a contiguous copy in newly allocated memory.
Array copied(const Array& a, Device device) {
  Array out = Array::empty(a.shape(), a.dtype(), device);
  if (a.size() != 0) current_queue(device).copy(out.view_for_writing(), a.as_contiguous().view());
  return out;
}

}  // namespace

Array CompiledState::run(const Array& x) {
  if (report.input.empty()) look_at(x);
  return pass(x).as_contiguous().eval();
}

void CompiledState::look_at(const Array& x) {
  LaunchesByLayer first;
  {
    const LayerObserverScope look(&first);
    pass(x).eval();
  }
  LaunchesByLayer second(first.launched);
  {
    const LayerObserverScope look(&second);
    pass(x).eval();
    second.settle();
  }
  report.layers.clear();
  for (std::size_t i = 0; i < second.rows.size(); ++i) {
    const auto& row = second.rows[i];
    CompileReport::Layer l{.path = row.layer.path,
                           .kind = std::string(row.layer.kind),
                           .kernels = row.launches,
                           .bytes = row.layer.bytes,
                           .device = device};
    if (row.head != i) l.computed_in = second.rows[row.head].layer.path;
    if (const auto note = notes.find(l.path); note != notes.end()) l.note = note->second;
    if (l.kind == "Dropout") l.note = "returns x in inference";
    if (l.note.empty() && l.bytes != 0 && row.layer.dtype != DType::f32) l.note = dtype_name(row.layer.dtype);
    report.layers.push_back(std::move(l));
  }
  report.input = x.shape();
}

CompiledState::Slot& CompiledState::slot_for(const Array& x) {
  auto at = std::ranges::find_if(
      slots, [&](const auto& s) { return s->input.shape() == x.shape() && s->input.dtype() == x.dtype(); });
  if (at == slots.end()) {
    if (slots.size() == max_shapes)
      slots.erase(std::ranges::min_element(slots, {}, [](const auto& s) { return s->last_use; }));
    auto slot = std::make_unique<Slot>();
    slot->input = Array::empty(x.shape(), x.dtype(), device);
    at = slots.insert(slots.end(), std::move(slot));
  }
  (*at)->last_use = ++uses;
  return **at;
}

/// Replays or records the pass for the slot's input. Runs the pass directly if neither is possible.
void CompiledState::run_recorded(Slot& slot) {
  const bool known = slot.sequence.valid();
  const std::uint64_t unchecked = slot.sequence.unchecked();
  bool done = false;
  const auto without = [&](std::string why) {
    if (!done) slot.output = run(slot.input);
    report.recorded = false, report.not_recorded = slot.not_recorded_reason = std::move(why);
    slot.sequence = CheckedSequence();
  };
  try {
    std::string why;
    const auto work = [&] { slot.output = pass(slot.input).as_contiguous().eval(), done = true; };
    if (slot.sequence.run(current_queue(device), work, pool, why)) {
      ++replays;
    } else if (why.empty()) {
      report.recorded = true, report.not_recorded.clear();
      report.pieces = slot.sequence.sequence().size(), report.one_call = slot.sequence.sequence().one_call();
    } else {
      if (known)
        why = "a pass differs from the recorded one: " + why +
              ". The model uses a host value that changes; a replay does not see the change";
      if (unchecked != 0)
        logging::warn(fmt::format(
            "compiled model: {}. Up to {} before it may have used the old value (or all {} replayed passes, "
            "if the model itself changes the value). Passes are no longer recorded",
            why, count_noun(unchecked, "call"), replays));
      without(std::move(why));
    }
  } catch (const KernelError& e) {
    without(e.what());
  } catch (const OutOfMemory& e) {
    if (known && !done && slot.sequence.valid()) {  // a comparison needs more memory than a replay
      slot.sequence.replay();
      ++replays;
      return;
    }
    without(e.what());
  } catch (const ArgumentError& e) {
    without(e.what());
  }
}

Array CompiledState::call(const Array& x) {
  check_no_rule("a compiled model", x);
  if (x.device() != device)
    fail<DeviceError>({.operation = "call of a compiled model",
                       .with = {{"x on", to_string(x.device())}, {"compiled for", to_string(device)}},
                       .wrong = "the input is on another device",
                       .remedy = "Pass x.to(" + to_string(device) +
                                 "), or compile(model, {.device = " + to_string(x.device()) + "})"});
  const Inference mode;
  const DeviceScope scope(device);
  if (thread_context.recorder != nullptr) return copied(pass(x).eval(), device);  // part of an enclosing recording
  const std::lock_guard turn(lock);
  const UntrackedWritesAllowed own_memory;  // the model may be called by several tasks
  Queue& queue = Queue::of(device);
  const QueueScope in(queue);
  if (level == CompileLevel::none || !config::flag("TESSERA_SEQUENCES", true)) {
    if (level != CompileLevel::none) report.not_recorded = "disabled by TESSERA_SEQUENCES";
    return copied(run(x), device);
  }
  Slot& slot = slot_for(x);
  if (x.size() != 0) queue.copy(slot.input.view_for_writing(), x.as_contiguous().view());
  if (!slot.not_recorded_reason.empty()) return copied(run(slot.input), device);
  if (!slot.sequence.valid()) {  // the first run creates lazily initialised objects; the second and third are recorded
    Array y = copied(run(slot.input), device);
    run_recorded(slot);
    if (slot.not_recorded_reason.empty()) run_recorded(slot);
    return y;
  }
  run_recorded(slot);
  return copied(slot.output, device);
}

namespace {

class Seeing : public LayerObserver {
 public:
  Array before(const ObservedLayer& layer, const Array& x) override {
    open_.push_back(seen.size());
    seen.push_back({layer, x.as_contiguous().eval(), x});
    return x;
  }
  void after(const ObservedLayer&, const Array& y) override {
    seen[open_.back()].layer_output = y.as_contiguous().eval();
    open_.pop_back();
  }
  std::vector<LayerTrace> seen;

 private:
  std::vector<std::size_t> open_;
};

}  // namespace

std::vector<LayerTrace> trace_layers(const Pass& pass, const Array& x, Array* result) {
  Seeing watch;
  const LayerObserverScope look(&watch);
  const Array y = pass(x).as_contiguous().eval();
  if (result != nullptr) *result = y;
  return std::move(watch.seen);
}

}  // namespace detail

Array Compiled::operator()(const Array& x) const { return state_->call(x); }
Device Compiled::device() const { return state_->device; }
CompileReport Compiled::report() const {
  const std::lock_guard turn(state_->lock);
  return state_->report;
}
std::uint64_t Compiled::replays() const {
  const std::lock_guard turn(state_->lock);
  return state_->replays;
}

std::string_view compile_level_name(CompileLevel level) {
  constexpr std::string_view names[] = {"none", "standard", "aggressive"};
  return names[static_cast<std::size_t>(level)];
}
std::string_view compile_precision_name(CompilePrecision precision) {
  constexpr std::string_view names[] = {"f32", "bf16", "f16", "mixed", "q8_0"};
  return names[static_cast<std::size_t>(precision)];
}

std::string to_string(const CompileReport& report) {
  std::string text = fmt::format("compiled for {}, level {}, precision {}\n", to_string(report.device),
                                 compile_level_name(report.level), compile_precision_name(report.precision));
  if (report.input.empty()) return text + "no pass yet: layers are listed after the first call\n";
  std::vector<std::array<std::string, 6>> rows = {{"layer", "kind", "kernels", "bytes", "device", "note"}};
  std::uint64_t kernels = 0, bytes = 0;
  for (const CompileReport::Layer& l : report.layers) {
    const bool alone = l.computed_in.empty();
    rows.push_back({l.path, l.kind, alone ? std::to_string(l.kernels) : "in " + l.computed_in, std::to_string(l.bytes),
                    to_string(l.device), l.note});
    kernels += l.kernels, bytes += l.bytes;
  }
  std::array<std::size_t, 6> width{};
  for (const auto& row : rows)
    for (std::size_t c = 0; c < row.size(); ++c) width[c] = std::max(width[c], row[c].size());
  for (const auto& row : rows) {
    std::string line;
    for (std::size_t c = 0; c < row.size(); ++c)
      line += c == 2 || c == 3 ? fmt::format("{:>{}}  ", row[c], width[c]) : fmt::format("{:<{}}  ", row[c], width[c]);
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  }
  text += fmt::format("{} kernels and {} bytes of parameters for x {}; ", kernels, bytes, to_string(report.input));
  if (report.recorded)
    text += fmt::format("recorded: a call is one replay of {} operations{}\n", report.pieces,
                        report.one_call ? ", submitted to the driver in one call" : "");
  else
    text += "not recorded" + (report.not_recorded.empty() ? std::string() : ": " + report.not_recorded) + "\n";
  if (report.worst)
    text += fmt::format("verified: the whole pass differs by {:.2g}, relative to its largest element\n", *report.worst);
  return text;
}

}  // namespace tessera
