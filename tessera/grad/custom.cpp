// SPDX-License-Identifier: Apache-2.0
#include "tessera/grad/custom.h"

#include <mutex>
#include <set>

#include "tessera/array/operation.h"
#include "tessera/base/os/fork.h"
#include "tessera/grad/recomputing.h"

namespace tessera::detail {

namespace {

[[noreturn]] void uses_another(const char* name, const Array& result) {
  fail<ArgumentError>({.operation = name,
                       .with = {{"result", to_string(result.shape())}, {"made by", result.step()->name()}},
                       .wrong = "the function uses an array that gradients flow through but that is not one of its "
                                "arguments, so its gradient would be lost",
                       .remedy = "Pass it as an argument, or write stop_gradient(x)"});
}

constinit thread_local bool again = false;
constexpr std::uint32_t all_operands = ~std::uint32_t{0};

/// Restores a thread's mode and device for a recomputation, and sets the recomputation flag.
class Again {
 public:
  Again(ModeState* mode, Device device) : device_(device), mode_(thread_context.mode), again_(again) {
    thread_context.mode = mode, again = true;
  }
  ~Again() { thread_context.mode = mode_, again = again_; }

 private:
  const DeviceScope device_;
  ModeState* const mode_;
  const bool again_;
};

}  // namespace

bool is_recomputing() { return again; }

std::vector<Array> contiguous_arrays(std::span<const Array> x) {
  std::vector<Array> out;
  for (const Array& a : x) out.push_back(a.as_contiguous());
  return out;
}

std::vector<Array> zero_adjoints(std::span<const Array> x) {
  std::vector<Array> out;
  for (const Array& a : x)
    out.push_back(is_float(a.dtype()) ? Array::zeros(a.shape(), a.dtype(), a.device()) : Array());
  return out;
}

std::vector<Array> adjoints_of_floats(std::span<const Array> x, const std::vector<Array>& adjoints) {
  std::vector<Array> out;
  for (std::size_t i = 0; i < x.size(); ++i)
    if (is_float(x[i].dtype())) out.push_back(adjoints[i]);
  return out;
}

const char* intern_string(const std::string& text) {
  struct Known {
    std::mutex lock;
    std::set<std::string> all;
  };
  static constinit os::PerProcess<Known> the_known;
  auto& [lock, known] = the_known.get();
  const std::lock_guard hold(lock);
  return known.insert(text).first->c_str();
}

Array custom(CustomOperation what, std::vector<Array> operands) {
  const std::span<const Array> all(operands);
  const Operation operation(what.name, all);
  const HistoryRecorder recording(what.name, all);
  std::vector<Array> given;
  for (const Array& a : operands) given.push_back(without_history(a));
  Array result = what.forward(given);
  if (result.has_history()) uses_another(what.name, result);
  if (recording) {
    const auto backward = [name = what.name, back = std::move(what.backward)](Backward& b) {
      std::vector<Array> x;
      for (std::size_t i = 0; i < b.operands(); ++i) x.push_back(b.operand(i));
      std::vector<Array> adjoints = back(b.adjoint(), b.result(), x);
      for (std::size_t i = 0; i < adjoints.size(); ++i) {
        Array& g = adjoints[i];
        if (g.size() == 0 || !b.needs_adjoint(i)) continue;
        if (g.shape() != b.shape(i))
          fail<ShapeError>({.operation = std::string("gradient of ") + name,
                            .with = {{"argument", std::to_string(i + 1)},
                                     {"adjoint", to_string(g.shape())},
                                     {"its shape", to_string(b.shape(i))}},
                            .wrong = "the backward function returned an adjoint of a different shape"});
        b.add(i, [&] { return std::move(g); });
      }
    };
    recording.attach(result, {.backward = backward, .keeps = all_operands, .keeps_result = true});
  }
  return operation.finish(std::move(result));
}

Array recompute(Recomputation what) {
  const std::span<const Array> operands(what.operands);
  const Operation operation("recompute", operands);
  // Operands are computed first, so that their memory is kept instead of the expressions that compute them.
  for (const Array& a : operands) a.eval();
  const HistoryRecorder recording("recompute", operands);
  if (!recording) return operation.finish(what.run(operands));
  Array result;
  {
    const std::uint64_t begun = Step::next_number();
    Leaves leaves;
    std::vector<Array> given;
    for (const Array& a : operands) given.push_back(a.has_history() ? leaves.add(without_history(a), a.dtype()) : a);
    result = what.run(given);
    if (result.has_history() && result.step()->lowest() < begun) uses_another("recompute", result);
    result.eval();
    result = without_history(std::move(result));
  }
  const auto mode = thread_context.mode ? thread_context.mode->shared_from_this() : nullptr;
  const auto backward = [run = std::move(what.run), mode, device = current_device()](Backward& b) {
    const Again scope(mode.get(), device);
    Leaves leaves;
    std::vector<Array> given;
    for (std::size_t i = 0; i < b.operands(); ++i)
      given.push_back(b.needs_adjoint(i) ? leaves.add(b.operand(i), b.adjoint_dtype(i)) : b.operand(i));
    std::vector<Array> adjoints;
    {
      const Array result = run(given);
      adjoints = leaves.adjoints(result, b.adjoint(), true);
    }
    for (std::size_t i = 0, next = 0; i < b.operands(); ++i)
      if (b.needs_adjoint(i)) b.add(i, [&] { return std::move(adjoints[next++]); });
  };
  recording.attach(result, {.backward = backward, .keeps = all_operands});
  return operation.finish(std::move(result));
}

}  // namespace tessera::detail
