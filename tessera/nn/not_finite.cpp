// SPDX-License-Identifier: Apache-2.0
#include "tessera/nn/not_finite.h"

#include <optional>
#include <variant>

#include "tessera/array/observer.h"

namespace tessera::detail {

namespace {

bool finite(const Array& a) { return a.size() == 0 || !is_float(a.dtype()) || all(isfinite(a)).item<bool>(); }
bool has_nan(const Array& a) { return any(isnan(a)).item<bool>(); }

std::string layer_of(const std::string& path) {
  const std::size_t dot = path.rfind('.');
  return dot == path.npos ? path : path.substr(0, dot);
}

/// Checks the result of each operation. Infinities may be intended, as in masks, but NaN is an error.
class Watcher : public ArrayObserver {
 public:
  explicit Watcher(const Parts& parts) : parts_(parts) {}
  void made(const ArrayOperation& operation) override {
    for (const OperandSnapshot& operand : operation.operands)
      if (const auto* kept = std::get_if<ArraySnapshot>(&operand)) note_layer(*kept);
    if (nan) return;
    for (const Array& result : operation.results) {
      Array values = result;
      values.set_step(nullptr);
      if (finite(values)) continue;
      const std::string text =
          "by " + std::string(operation.name) + (layer_.empty() ? "" : ", in or after layer " + layer_);
      if (has_nan(values)) nan = text;
      if (!infinite) infinite = text;
    }
  }
  std::optional<std::string> nan, infinite;

 private:
  void note_layer(const ArraySnapshot& kept) {
    if (kept.expression() || kept.written()) return;
    const BufferView read = [&] {
      Array a = kept.array();
      a.set_step(nullptr);
      return a.view();
    }();
    for (const auto& [path, part] : parts_) {
      if (part->empty()) continue;
      const BufferView own = part->view();
      if (own.storage == read.storage && own.byte_offset == read.byte_offset) layer_ = layer_of(path);
    }
  }
  const Parts& parts_;
  std::string layer_;
};

/// While it exists, note_invalid_input stores its text here, for calls on this thread.
struct InvalidInputScope {
  InvalidInputScope() { current = this; }
  ~InvalidInputScope() { current = nullptr; }
  InvalidInputScope(const InvalidInputScope&) = delete;
  InvalidInputScope& operator=(const InvalidInputScope&) = delete;
  std::string text;
  static constinit thread_local InvalidInputScope* current;
};
constinit thread_local InvalidInputScope* InvalidInputScope::current = nullptr;

std::string describe(const Watcher& watch, const std::string& where) {
  if (!watch.nan) return "the first infinity is computed " + *watch.infinite + where;
  std::string text = "the first NaN is computed " + *watch.nan + where;
  if (*watch.infinite != *watch.nan) text += "; the first infinity before it " + *watch.infinite;
  return text;
}

}  // namespace

void note_invalid_input(const Callback<std::string()>& why) {
  InvalidInputScope* const scope = InvalidInputScope::current;
  if (scope == nullptr || !scope->text.empty()) return;
  const ObserverScope no_observer(nullptr);
  scope->text = why();
}

NotFiniteCause find_not_finite(const Parts& parts, std::span<const Array> batch, const Callback<Array()>& loss,
                               const Callback<void(const Callback<void(const Parts& gradient)>&)>& with_gradient) {
  for (const Array& a : batch) {
    if (a.size() == 0) return {"the batch is empty: it contains an array " + to_string(a.shape()), true};
    if (!finite(a)) return {"the batch contains non-finite numbers, in an array " + to_string(a.shape()), true};
  }
  for (const auto& [path, part] : parts)
    if (!finite(*part)) return {"before this step, " + path + " contains non-finite numbers"};
  {
    Watcher watch(parts);
    const InvalidInputScope inputs;
    const ObserverScope look(&watch);
    const bool is_finite = finite(loss().eval());
    if (!is_finite && !inputs.text.empty()) return {inputs.text, true};
    if (!is_finite && watch.infinite) return {describe(watch, "")};
  }
  Watcher watch(parts);
  std::string last;
  {
    const ObserverScope look(&watch);
    with_gradient([&](const Parts& gradient) {
      const ObserverScope no_observer(nullptr);
      for (const auto& [path, part] : gradient)
        // Gradients are computed from the last layer to the first. Of the non-finite gradients, the one of the last
        // parameter was therefore computed first.
        if (!finite(*part)) last = path;
    });
  }
  if (last.empty())
    return {.text = "the result is finite when the step runs again without its recording", .found = false};
  const std::string where = "the gradient of " + last + " is not finite";
  return {watch.infinite ? where + "; " + describe(watch, "") : where};
}

}  // namespace tessera::detail
