// SPDX-License-Identifier: Apache-2.0
#include "tessera/backend/cpu/pack_target.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>

#include "tessera/backend/common/codegen_module.h"
#include "tessera/backend/common/pack_names.h"
#include "tessera/backend/cpu/kernel.h"
#include "tessera/base/error.h"
#include "tessera/base/os/fork.h"
#include "tessera/base/os/processor.h"
#include "tessera/base/packed.h"

namespace tessera::cpu {

namespace {

constexpr std::string_view levels[] = {
#if defined(__x86_64__)
    "x86-64", "x86-64-v2", "x86-64-v3", "x86-64-v4"
#else
    "aarch64"
#endif
};

std::string pack_traits(const std::string& level, const TargetTraits& t) {
  return (Packer() << level << t.cpu << t.width << t.f16c << t.fma << t.vnni << t.avx_vnni).take();
}

CpuPackTarget unpack_target(const PackTarget& target) {
  CpuPackTarget out{.target = &target};
  Unpacker in(target.traits);
  out.level = in.text();
  TargetTraits& t = out.traits;
  t.cpu = in.text(), t.width = in.take<unsigned>(), t.f16c = in.take<bool>(), t.fma = in.take<bool>();
  t.vnni = in.take<bool>(), t.avx_vnni = in.take<bool>();
  in.end();
  return out;
}

class CpuPackCompiler final : public PackCompiler {
 public:
  CpuPackCompiler(const std::string& name, const std::string& level, std::uint32_t units) {
    // "generic" is LLVM's name for the processors that every aarch64 program runs on.
    module_ = open_module(level == "aarch64" ? "generic" : level, false);
    if (!module_.generator)
      fail<DeviceError>({.operation = "compile for " + name,
                         .wrong = module_.reason,
                         .remedy = "Install the code-generation module next to the library"});
    const TargetTraits& traits = module_.generator->target();
    info_ = describe_cpu(&traits);
    if (units != 0) info_.compute_units = units;
    target_ = {.name = name,
               .backend = Backend::cpu,
               .compiler = module_.generator->version(),
               .compute_units = info_.compute_units,
               .shared_bytes = info_.can.shared_bytes,
               .traits = pack_traits(level, traits)};
  }
  const PackTarget& target() const override { return target_; }
  const DeviceInfo& info() const override { return info_; }
  std::string build(const CompileRequest& request) override {
    check_llvm_after_fork("compile");
    const os::ForkGuard whole;  // LLVM is not fork-safe
    return build_kernel(*module_.generator, request);
  }

 private:
  Module module_;
  PackTarget target_;
  DeviceInfo info_;
};

}  // namespace

CpuPackTarget choose_pack_target(const std::string& asked) {
  CpuPackTarget best;
  const KernelPack* const pack = usable_pack();
  if (pack == nullptr) return best;
  const auto distance = [threads = describe_cpu(nullptr).compute_units](const CpuPackTarget& t) {
    return std::abs(static_cast<long>(t.target->compute_units) - static_cast<long>(threads));
  };
  for (const PackTarget& target : pack->targets()) {
    if (target.backend != Backend::cpu) continue;
    CpuPackTarget candidate = unpack_target(target);
    if ((asked != "native" && asked != candidate.level) || !os::supports_processor_level(candidate.level)) continue;
    if (best.target == nullptr || candidate.level > best.level ||
        (candidate.level == best.level && distance(candidate) < distance(best)))
      best = std::move(candidate);
  }
  return best;
}

std::unique_ptr<PackCompiler> pack_compiler(const std::string& target) {
  constexpr std::string_view prefix = "cpu:";
  if (!target.starts_with(prefix)) return nullptr;
  const auto [level, units] = backend::split_units(target, prefix.size());
  if (std::ranges::find(levels, level) == std::end(levels))
    fail<DeviceError>({.operation = "compile for " + target,
                       .wrong = "the processor level is not known, or is of another architecture than this machine's",
                       .remedy = fmt::format("Known levels are {}", fmt::join(levels, ", "))});
  return std::make_unique<CpuPackCompiler>(target, level, units);
}

}  // namespace tessera::cpu
