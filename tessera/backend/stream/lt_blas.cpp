// SPDX-License-Identifier: Apache-2.0
#include "tessera/backend/stream/lt_blas.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <list>
#include <vector>

#include <fmt/format.h>

#include "tessera/base/error.h"
#include "tessera/device/driver.h"

namespace tessera::stream {

std::string take_lt(const os::Library& library, const std::string& prefix, LtFunctions& call) {
  std::string missing;
#define TESSERA_TAKE(member, symbol, ...)                                  \
  call.member = library.function<__VA_ARGS__>((prefix + #symbol).c_str()); \
  if (!call.member && missing.empty()) missing = prefix + #symbol;
  TESSERA_LT(TESSERA_TAKE)
#undef TESSERA_TAKE
  return missing;
}

namespace {

// Larger workspaces only help split-k products with few blocks. NVIDIA recommends 32 MiB for its newest devices and 4
// MiB for others.
constexpr std::uint64_t most_workspace = std::uint64_t{32} << 20;
constexpr std::size_t most_plans = 64;
constexpr std::uint32_t best_alignment = 256;  // alignment of all allocations

int type_of(DType t) { return t == DType::f16 ? lt_f16 : t == DType::bf16 ? lt_bf16 : lt_f32; }

void* pointer(const BlasOperand& o) {
  return o.allocation ? static_cast<std::byte*>(o.allocation->handle) + o.offset : nullptr;
}
std::uint32_t alignment_of(const BlasOperand& o) {
  const auto address = reinterpret_cast<std::uintptr_t>(pointer(o));
  return static_cast<std::uint32_t>(std::min<std::uintptr_t>(best_alignment, address & (~address + 1)));
}

class LtBlas final : public DriverBlas {
 public:
  LtBlas(const LtFunctions& call, const LtValues& values, std::string name, const char* (*text)(Code))
      : call_(call), values_(values), name_(std::move(name)), text_(text) {
    check(call_.create(&handle_), "Create");
  }
  ~LtBlas() override {
    plans_.clear();
    call_.destroy(handle_);
  }
  LtBlas(const LtBlas&) = delete;
  LtBlas& operator=(const LtBlas&) = delete;

  const std::string& name() const override { return name_; }

  std::optional<std::size_t> plan(const BlasProduct& product, const BlasOperands& operands) override {
    const Plan& plan = plan_of(product, operands);
    if (!plan.possible) return std::nullopt;
    return plan.workspace;
  }

  void enqueue(DriverQueue& queue, const BlasProduct& product, const BlasOperands& operands) override {
    const Plan& plan = plan_of(product, operands);
    if (product.bias) set_bias(plan, operands);
    const float one = 1, zero = 0;
    void* const out = pointer(operands.out);
    queue.with_native([&](void* stream) {
      // a and b are swapped, because the library expects column-major matrices and therefore computes the transposed
      // product.
      check(call_.multiply(handle_, plan.product.get(), &one, pointer(operands.b), plan.b.get(), pointer(operands.a),
                           plan.a.get(), &zero, out, plan.out.get(), out, plan.out.get(), plan.result.data(),
                           operands.workspace.handle, plan.workspace, stream),
            "Matmul");
    });
  }

 private:
  using Object = std::unique_ptr<void, Code (*)(LtHandle)>;
  struct Plan {
    BlasProduct asked;
    std::array<std::uint32_t, 4> alignment;
    bool possible = false;
    std::size_t workspace = 0;
    Object product, a, b, out;
    std::vector<std::byte> result;  ///< a heuristic result, which starts with the algorithm
  };

  void check(Code code, const char* function) const {
    if (code == 0) return;
    const char* const said = text_ ? text_(code) : nullptr;
    fail<KernelError>(
        {.operation = name_,
         .wrong = fmt::format("{}{} returned {}{}", name_, function, code, said ? fmt::format(" ({})", said) : "")});
  }

  void set_bias(const Plan& plan, const BlasOperands& operands) const {
    const void* const bias = pointer(operands.bias);
    check(call_.set_product(plan.product.get(), values_.bias_pointer, &bias, sizeof bias), "MatmulDescSetAttribute");
  }

  Object layout(const BlasMatrix& m, std::int64_t rows, std::int64_t columns, std::int64_t batch) const {
    if (!m.transposed) std::swap(rows, columns);
    LtHandle made = nullptr;
    check(call_.make_layout(&made, type_of(m.dtype), static_cast<std::uint64_t>(rows),
                            static_cast<std::uint64_t>(columns), m.ld),
          "MatrixLayoutCreate");
    Object object(made, call_.destroy_layout);
    if (batch != 1) {
      const auto count = static_cast<std::int32_t>(batch);
      check(call_.set_layout(made, values_.batch_count, &count, sizeof count), "MatrixLayoutSetAttribute");
      check(call_.set_layout(made, values_.batch_offset, &m.batch_stride, sizeof m.batch_stride),
            "MatrixLayoutSetAttribute");
    }
    return object;
  }

  /// Plans are cached, because choosing an algorithm takes much longer than launching it. The most recently used plans
  /// come first.
  const Plan& plan_of(const BlasProduct& p, const BlasOperands& operands) {
    const std::array<std::uint32_t, 4> alignment = {alignment_of(operands.b), alignment_of(operands.a),
                                                    alignment_of(operands.out), alignment_of(operands.out)};
    const auto known =
        std::ranges::find_if(plans_, [&](const Plan& q) { return q.asked == p && q.alignment == alignment; });
    if (known != plans_.end()) {
      plans_.splice(plans_.begin(), plans_, known);
      return plans_.front();
    }
    if (plans_.size() >= most_plans) plans_.pop_back();
    Plan fresh = make(p, alignment, operands);
    plans_.push_front(std::move(fresh));
    return plans_.front();
  }

  Plan make(const BlasProduct& p, const std::array<std::uint32_t, 4>& alignment, const BlasOperands& operands) const {
    const auto none = [&] { return Object(nullptr, call_.destroy_layout); };
    Plan plan{p, alignment, false, 0, Object(nullptr, call_.destroy_product), none(), none(), none(), {}};
    LtHandle made = nullptr;
    check(call_.make_product(&made, p.tf32 ? values_.compute_tf32 : values_.compute_f32, lt_f32), "MatmulDescCreate");
    plan.product.reset(made);
    const auto set = [&](int attribute, auto value) {
      check(call_.set_product(made, attribute, &value, sizeof value), "MatmulDescSetAttribute");
    };
    if (p.b.transposed) set(values_.transpose_a, std::int32_t{values_.transpose});
    if (p.a.transposed) set(values_.transpose_b, std::int32_t{values_.transpose});
    if (p.bias) set(values_.epilogue, lt_bias);
    if (p.bias) set_bias(plan, operands);
    plan.a = layout(p.a, p.m, p.k, p.batch);
    plan.b = layout(p.b, p.k, p.n, p.batch);
    plan.out = layout(p.out, p.m, p.n, p.batch);

    LtHandle raw = nullptr;
    check(call_.make_preference(&raw), "MatmulPreferenceCreate");
    const Object preference(raw, call_.destroy_preference);
    check(call_.set_preference(raw, lt_most_workspace, &most_workspace, sizeof most_workspace),
          "MatmulPreferenceSetAttribute");
    for (int i = 0; i < 4 && values_.first_alignment >= 0; ++i)
      check(call_.set_preference(raw, values_.first_alignment + i, &alignment[static_cast<std::size_t>(i)],
                                 sizeof(std::uint32_t)),
            "MatmulPreferenceSetAttribute");
    plan.result.resize(values_.result_bytes);
    int found = 0;
    const Code code = call_.choose(handle_, plan.product.get(), plan.b.get(), plan.a.get(), plan.out.get(),
                                   plan.out.get(), raw, 1, plan.result.data(), &found);
    if (code == values_.not_supported || (code == 0 && found == 0)) return plan;
    check(code, "MatmulAlgoGetHeuristic");
    Code state = 0;
    std::memcpy(&state, plan.result.data() + values_.result_state, sizeof state);
    std::memcpy(&plan.workspace, plan.result.data() + values_.result_workspace, sizeof plan.workspace);
    plan.possible = state == 0 && plan.workspace <= most_workspace;
    return plan;
  }

  const LtFunctions call_;
  const LtValues& values_;
  std::string name_;
  const char* (*text_)(Code);
  LtHandle handle_ = nullptr;
  std::list<Plan> plans_;
};

}  // namespace

std::unique_ptr<DriverBlas> make_lt_blas(const LtFunctions& call, const LtValues& values, std::string name,
                                         const char* (*text)(Code)) {
  return std::make_unique<LtBlas>(call, values, std::move(name), text);
}

}  // namespace tessera::stream
