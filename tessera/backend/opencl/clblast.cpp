// SPDX-License-Identifier: Apache-2.0
#include "tessera/backend/opencl/clblast.h"

#include <fmt/format.h>

#include "tessera/backend/opencl/device.h"
#include "tessera/base/error.h"
#include "tessera/base/os/system.h"
#include "tessera/device/driver.h"

namespace tessera::cl {

namespace {

class Clblast final : public DriverBlas {
 public:
  Clblast(const ClblastFunctions& call, Queue queue) : call_(call), queue_(queue) {}
  const std::string& name() const override { return name_; }

  // Batched products use a workspace that the library allocates, because the function has no workspace parameter.
  std::optional<std::size_t> plan(const BlasProduct& p, const BlasOperands& operands) override {
    if (p.a.dtype != DType::f32 || p.b.dtype != DType::f32 || p.out.dtype != DType::f32 || p.bias) return std::nullopt;
    if (p.batch != 1) return 0;
    Queue queue = queue_;
    std::size_t bytes = 0;
    check(call_.workspace(clblast_rows, side(p.a), side(p.b), n(p.m), n(p.n), n(p.k), at(operands.a), n(p.a.ld),
                          at(operands.b), n(p.b.ld), at(operands.out), n(p.out.ld), &queue, &bytes),
          "CLBlastSGemmTempBufferSize");
    return bytes;
  }

  void enqueue(DriverQueue& queue, const BlasProduct& p, const BlasOperands& operands) override {
    Event event = nullptr;  // event of the last kernel that CLBlast launched
    queue.with_native([&](void* native) {
      auto raw = static_cast<Queue>(native);
      if (p.batch == 1)
        check(call_.multiply(clblast_rows, side(p.a), side(p.b), n(p.m), n(p.n), n(p.k), 1, memory(operands.a),
                             at(operands.a), n(p.a.ld), memory(operands.b), at(operands.b), n(p.b.ld), 0,
                             memory(operands.out), at(operands.out), n(p.out.ld), &raw, &event,
                             static_cast<Memory>(operands.workspace.handle)),
              "CLBlastSgemm");
      else
        check(call_.multiply_batch(clblast_rows, side(p.a), side(p.b), n(p.m), n(p.n), n(p.k), 1, memory(operands.a),
                                   at(operands.a), n(p.a.ld), n(p.a.batch_stride), memory(operands.b), at(operands.b),
                                   n(p.b.ld), n(p.b.batch_stride), 0, memory(operands.out), at(operands.out),
                                   n(p.out.ld), n(p.out.batch_stride), n(p.batch), &raw, &event),
              "CLBlastSgemmStridedBatched");
    });
    static_cast<ClQueue&>(queue).watch(event);
  }

 private:
  static std::size_t at(const BlasOperand& o) { return o.offset / sizeof(float); }
  static Memory memory(const BlasOperand& o) { return static_cast<Memory>(o.allocation->handle); }
  static int side(const BlasMatrix& m) { return m.transposed ? clblast_transposed : clblast_plain; }
  static std::size_t n(std::int64_t v) { return static_cast<std::size_t>(v); }
  void check(Code code, const char* function) const {
    if (code == 0) return;
    fail<KernelError>({.operation = name_, .wrong = fmt::format("{} returned {}", function, code_text(code))});
  }
  const ClblastFunctions call_;
  const Queue queue_;
  const std::string name_ = "CLBlast";
};

}  // namespace

std::vector<std::string> clblast_candidates() {
  const std::string named = os::environment("TESSERA_CLBLAST_LIBRARY").value_or("");
  if (named == "none") return {};
  if (!named.empty()) return {named};
#if defined(_WIN32)
  return {"clblast.dll"};
#else
  return {"libclblast.so.1", "libclblast.so"};
#endif
}

std::unique_ptr<DriverBlas> open_clblast(Queue queue, std::string& why) {
  const os::Library library = os::Library::open(clblast_candidates());
  if (!library.loaded()) {
    why = library.reason().empty() ? "TESSERA_CLBLAST_LIBRARY is 'none'" : library.reason();
    return nullptr;
  }
  ClblastFunctions call;
  std::string missing;
#define TESSERA_TAKE(member, symbol, ...)               \
  call.member = library.function<__VA_ARGS__>(#symbol); \
  if (!call.member && missing.empty()) missing = #symbol;
  TESSERA_CLBLAST(TESSERA_TAKE)
#undef TESSERA_TAKE
  if (!missing.empty()) {
    why = fmt::format("{}: it has no {}", library.file(), missing);
    return nullptr;
  }
  return std::make_unique<Clblast>(call, queue);
}

}  // namespace tessera::cl
