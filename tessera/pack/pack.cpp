// SPDX-License-Identifier: Apache-2.0
#include "tessera/pack/pack.h"

#include <memory>
#include <set>
#include <utility>

#include "tessera/base/error.h"
#include "tessera/base/os/atomic_file.h"
#include "tessera/device/discovery/verify_device.h"
#include "tessera/device/launch/kernel.h"
#include "tessera/device/launch/kernel_pack.h"
#include "tessera/device/launch/launch_check.h"
#include "tessera/device/placement/dry_launch.h"
#include "tessera/ir/node.h"

namespace tessera {

namespace {

/// The content of a pack while it is made.
class PackBuilder {
 public:
  explicit PackBuilder(std::span<const std::string> targets) {
    if (targets.empty())
      fail<ArgumentError>({.operation = "pack", .wrong = "no target was given", .remedy = "Name at least one target"});
    for (const std::string& target : targets) compilers_.push_back(make_pack_compiler(target));
    keys_.resize(compilers_.size());
  }

  std::size_t size() const { return compilers_.size(); }
  const DeviceInfo& info(std::size_t target) const { return compilers_[target]->info(); }

  /// Compiles a kernel, unless it was added before.
  void add(std::size_t target, const CompileRequest& request) {
    PackCompiler& compiler = *compilers_[target];
    std::string key = kernel_lines(compiler.target().backend, request);
    if (!keys_[target].insert(key).second) return;
    entries_.push_back({static_cast<std::uint32_t>(target), std::move(key), compiler.build(request)});
  }
  /// Adds the kernels that run when a device is opened.
  void add_verification(std::size_t target) {
    for (const ir::Function& fn : verify_kernels(info(target).can)) add(target, {&fn, {}});
  }

  std::vector<PackedTarget> write(const std::string& file) const {
    std::vector<PackTarget> targets;
    std::vector<PackedTarget> out;
    for (const auto& compiler : compilers_) {
      targets.push_back(compiler->target());
      out.push_back({.name = targets.back().name, .compiler = targets.back().compiler});
    }
    for (const KernelPack::Entry& e : entries_) ++out[e.target].kernels, out[e.target].bytes += e.image.size();
    os::write_text(file, KernelPack::to_bytes(targets, entries_));
    return out;
  }

 private:
  std::vector<std::unique_ptr<PackCompiler>> compilers_;
  std::vector<std::set<std::string>> keys_;
  std::vector<KernelPack::Entry> entries_;
};

}  // namespace

std::vector<PackedTarget> pack(std::span<const Kernel> kernels, std::span<const std::string> targets,
                               const std::string& file) {
  os::require_writable(file);
  PackBuilder builder(targets);
  for (std::size_t target = 0; target < builder.size(); ++target) {
    builder.add_verification(target);
    for (const Kernel& kernel : kernels) {
      const ir::Function& fn = kernel.function();
      const KernelFacts facts(fn);
      check_capabilities(fn, facts, builder.info(target));
      for (const bool noalias : {true, false})
        for (const bool index64 : {false, true}) {
          builder.add(target, {&fn, {.noalias = noalias, .index64 = index64}});
          if (!facts.vectors.empty())
            builder.add(target, {&fn, {.noalias = noalias, .index64 = index64, .aligned = false}});
        }
    }
  }
  return builder.write(file);
}

std::vector<PackedTarget> pack_launches(std::span<const std::string> targets, const std::string& file,
                                        Callback<void(Device)> work) {
  os::require_writable(file);
  PackBuilder builder(targets);
  for (std::size_t target = 0; target < builder.size(); ++target) {
    builder.add_verification(target);
    const DryRun run(builder.info(target));
    work(run.device());
    std::set<std::pair<const ir::Function*, int>> seen;  // most launches repeat a kernel
    for (const DryLaunch& launch : launches_of(run)) {
      const Variant v = launch.variant;
      if (seen.emplace(launch.function.get(), v.noalias + 2 * v.index64 + 4 * v.aligned).second)
        builder.add(target, {launch.function.get(), v});
    }
  }
  return builder.write(file);
}

void use_pack(const std::string& file) { set_pack(file); }

}  // namespace tessera
