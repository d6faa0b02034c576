// SPDX-License-Identifier: Apache-2.0
#include "tests/drivers/resolver.h"

#include <algorithm>
#include <cstdio>
#include <exception>
#include <map>
#include <memory>
#include <mutex>

#include "tessera/emit/c_emitter.h"
#include "tessera/ir/interpreter.h"

namespace tessera::fake {
namespace {

struct Entry {
  KernelFacts facts;
  std::vector<KernelArgument> arguments;
  HandWritten body;
  ir::Function function;
  std::mutex lock;
  std::map<std::uint32_t, std::unique_ptr<ir::Interpreter>> interpreters;  // by subgroup width; guarded by `lock`
};

struct Registry {
  std::mutex lock;
  // Entries are never freed, because drivers store their addresses.
  std::map<std::pair<std::string, bool>, std::unique_ptr<Entry>> entries;
};
Registry& registry() {
  static auto* the_registry = new Registry;
  return *the_registry;
}

void keep(const std::string& name, bool opencl, std::unique_ptr<Entry> entry) {
  entry->facts.kernel = entry.get();
  entry->facts.arguments = entry->arguments.data();
  entry->facts.argument_count = static_cast<std::uint32_t>(entry->arguments.size());
  std::lock_guard hold(registry().lock);
  registry().entries.try_emplace({name, opencl}, std::move(entry));
}

KernelArgument argument_of(const emit::KernelArgument& a, const ir::Function& fn) {
  KernelArgument out{.number = a.number};
  switch (a.kind) {
    case emit::KernelArgument::Kind::pointer:
      out.kind = KernelArgument::pointer;
      out.element_bytes = static_cast<std::uint32_t>(dtype_size(fn.params[a.number].dtype));
      out.writes = fn.params[a.number].access != ir::Access::read;
      break;
    case emit::KernelArgument::Kind::offset: out.kind = KernelArgument::offset; break;
    case emit::KernelArgument::Kind::length: out.kind = KernelArgument::length; break;
    case emit::KernelArgument::Kind::extent: out.kind = KernelArgument::extent; break;
    case emit::KernelArgument::Kind::scalar: out.kind = KernelArgument::scalar; break;
  }
  if (out.kind != KernelArgument::pointer) out.bytes = static_cast<std::uint32_t>(dtype_size(a.dtype));
  return out;
}

void note(const emit::EmittedKernel& kernel, const ir::Function& function) {
  const bool opencl = kernel.text.find("__kernel ") != std::string::npos;
  {
    std::lock_guard hold(registry().lock);
    if (registry().entries.contains({kernel.entry, opencl})) return;
  }
  auto entry = std::make_unique<Entry>();
  for (const emit::KernelArgument& a : kernel.arguments) entry->arguments.push_back(argument_of(a, function));
  KernelFacts& facts = entry->facts;
  facts.block = function.kind == ir::KernelKind::block;
  for (std::size_t d = 0; d < 3; ++d) {
    facts.block_size[d] = function.block_size[d];
    facts.guarded[d] = !facts.block && kernel.dimensions[d];
  }
  if (kernel.flat) facts.block_size[0] = function.threads_per_block(), facts.block_size[1] = facts.block_size[2] = 1;
  facts.dynamic_shared_bytes = kernel.dynamic_shared_bytes;
  facts.static_shared_bytes = kernel.dynamic_shared_bytes == 0 ? ir::shared_bytes(function) : 0;
  facts.noalias = !kernel.entry.ends_with("_alias");
  facts.parameters = static_cast<std::uint32_t>(function.params.size());
  entry->function = function;
  keep(kernel.entry, opencl, std::move(entry));
}

int find(const char* name, int opencl, KernelFacts* facts) {
  std::lock_guard hold(registry().lock);
  const auto it = registry().entries.find({name, opencl != 0});
  if (it == registry().entries.end()) return 0;
  *facts = it->second->facts;
  return 1;
}

int run(const void* kernel, std::uint32_t subgroup_width, const std::uint64_t shape[3], const KernelValue* values,
        char* error, std::size_t error_bytes) try {
  auto& entry = *static_cast<Entry*>(const_cast<void*>(kernel));
  if (entry.body) {
    entry.body(std::span(shape, 3), values);
    return 1;
  }
  const ir::Interpreter* interpreter = nullptr;
  {
    std::lock_guard hold(entry.lock);
    auto& made = entry.interpreters[subgroup_width];
    if (!made)
      made =
          std::make_unique<ir::Interpreter>(entry.function, ir::InterpreterOptions{.subgroup_width = subgroup_width});
    interpreter = made.get();
  }
  std::vector<ir::InterpreterArgument> arguments;
  for (std::uint32_t p = 0; p < entry.facts.parameters; ++p)
    arguments.push_back({values[p].data, values[p].elements, values[p].bits});
  interpreter->run({shape[0], shape[1], shape[2]}, arguments);
  return 1;
} catch (const std::exception& e) {
  std::snprintf(error, error_bytes, "%s", e.what());
  return 0;
}

/// Starts to observe emission before main.
const bool watching = [] {
  emit::observe_emission(note);
  return true;
}();

}  // namespace

void register_kernel(const std::string& name, KernelFacts facts, std::vector<KernelArgument> arguments,
                     HandWritten body) {
  for (const bool opencl : {false, true}) {
    auto entry = std::make_unique<Entry>();
    entry->facts = facts;
    entry->arguments = arguments;
    entry->body = body;
    for (const KernelArgument& a : arguments)
      if (a.kind == KernelArgument::pointer || a.kind == KernelArgument::scalar)
        entry->facts.parameters = std::max(entry->facts.parameters, a.number + 1);
    keep(name, opencl, std::move(entry));
  }
}

}  // namespace tessera::fake

extern "C" __attribute__((visibility("default"), used))
const tessera::fake::Resolver tessera_fake_resolver = {tessera::fake::find, tessera::fake::run};
