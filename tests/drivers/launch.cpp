// SPDX-License-Identifier: Apache-2.0
// Modules, functions and launches. A fake driver only knows the entry and the arguments of a kernel. The test process
// runs it.
#include <dlfcn.h>

#include <algorithm>
#include <cstring>
#include <exception>
#include <mutex>

#include "tests/drivers/machine.h"
#include "tests/drivers/text/compile.h"

namespace tessera::fake {
namespace {

std::string text_of(const Dimensions& d) {
  return std::to_string(d.x) + " x " + std::to_string(d.y) + " x " + std::to_string(d.z);
}

/// The data of a launch, for the interpreter or the compiled text.
struct Launch {
  const Resolver* resolver;
  KernelFacts facts;
  std::uint32_t warp;
  std::array<std::uint64_t, 3> shape;
  std::vector<KernelValue> values;
  bool wrong;
  std::byte* spoilt = nullptr;      ///< fault `wrong`: the byte of a result to change
  std::string object;               ///< the compiled text, if the kernel runs from its text
  std::vector<std::uint64_t> bits;  ///< arguments for the compiled text, with host addresses
  Dimensions grid, block;
  std::uint64_t number = 0;

  std::shared_ptr<DirectLaunch> direct;

  /// Returns an error message, or an empty string on success.
  std::string run(const std::string& name) {
    if (direct) try {
        return direct->run(facts, bits);
      } catch (const std::exception& e) {
        return e.what();
      }
    if (!object.empty()) try {
        std::vector<void*> arguments;
        for (std::uint64_t& b : bits) arguments.push_back(&b);
        return text::object_of(object).run(name, {{grid.x, grid.y, grid.z}, {block.x, block.y, block.z}, warp, number},
                                           std::move(arguments));
      } catch (const std::exception& e) {
        return e.what();
      }
    char error[1024] = "";
    return resolver->run(facts.kernel, warp, shape.data(), values.data(), error, sizeof error) != 0 ? "" : error;
  }
};

}  // namespace

Code Machine::load(Context& context, const std::map<std::string, int>& entries, Module** out,
                   const std::string& object) {
  if (const Code code = outside_of_capture(); code != ok) return code;
  auto* module = new Module{Handle{.kind = Kind::module, .context = &context}, {}, {}, {}, {}};
  module->entries = entries;
  module->object = object;
  std::lock_guard hold(lock_);
  keep(module);
  *out = module;
  return ok;
}

Code Machine::unload(Context* context, Module* handle) {
  std::lock_guard hold(lock_);
  Code code = outside_of_capture_locked();
  if (code != ok) return code;
  auto* module = static_cast<Module*>(handle_of(handle, Kind::module, &code));
  if (module == nullptr) return code;
  if (module->context->sticky == ok && module->context->deferred == ok)
    for (const auto& [stream, sequence] : module->used)
      if (host_clock_[stream] < sequence) {
        breach_locked("a module is unloaded before the host has waited for its last launch", ok);
        break;
      }
  if (context != nullptr && module->context != context) breach_locked("the module belongs to another device", ok);
  module->live = false;
  for (auto& [name, function] : module->functions) function->live = false;
  return module->context->sticky;
}

Code Machine::function(Context& context, Module* handle, const char* entry, Function** out) {
  std::lock_guard hold(lock_);
  Code code = ok;
  auto* module = static_cast<Module*>(handle_of(handle, Kind::module, &code));
  if (module == nullptr) return code;
  if (module->context != &context) return breach_locked("the module belongs to another device", invalid_handle);
  const auto it = module->entries.find(entry);
  if (it == module->entries.end()) return not_found;
  Function*& function = module->functions[entry];
  if (function == nullptr) {
    function = new Function{Handle{.kind = Kind::function, .context = module->context}, module, entry, it->second};
    keep(function);
  }
  *out = function;
  return ok;
}

Function* Machine::function_of(void* handle, Code* code) {
  std::lock_guard hold(lock_);
  return static_cast<Function*>(handle_of(handle, Kind::function, code));
}

Code Machine::raise_shared(Function& function, int bytes) {
  const Limits most = limits(function.context->device);
  std::lock_guard hold(lock_);
  if (bytes < 0 || static_cast<std::uint32_t>(bytes) > most.shared_optin)
    return breach_locked(
        std::to_string(bytes) + " bytes of shared memory are requested, of " + std::to_string(most.shared_optin),
        invalid_value);
  function.max_dynamic_shared = static_cast<std::uint32_t>(bytes);
  return ok;
}

/// Sets `values` to the bits of all arguments. Arguments are passed separately in `parameters`, or in one buffer in
/// `extra`.
Code Machine::read_arguments(Context& context, const Function& function, const KernelFacts& facts, void** parameters,
                             void** extra, std::vector<std::uint64_t>* values) {
  if (function.parameters >= 0 && static_cast<std::uint32_t>(function.parameters) != facts.argument_count)
    return breach_locked(function.entry + " has " + std::to_string(function.parameters) +
                             " parameters in its text, but " + std::to_string(facts.argument_count) +
                             " in its description",
                         invalid_value);
  const std::byte* buffer = nullptr;
  std::size_t size = 0, at = 0;
  if (extra != nullptr)
    for (void** e = extra; *e != nullptr && *e != reinterpret_cast<void*>(3); e += 2) {
      if (*e == reinterpret_cast<void*>(1)) buffer = static_cast<const std::byte*>(e[1]);
      if (*e == reinterpret_cast<void*>(2)) size = *static_cast<const std::size_t*>(e[1]);
    }
  if ((buffer != nullptr) == (parameters != nullptr) && facts.argument_count != 0)
    return breach_locked("arguments must be passed either one by one or as a buffer", invalid_value);
  for (std::uint32_t i = 0; i < facts.argument_count; ++i) {
    const KernelArgument& a = facts.arguments[i];
    const std::byte* from = nullptr;
    at = (at + a.bytes - 1) / a.bytes * a.bytes;
    if (buffer != nullptr) {
      if (at + a.bytes > size)
        return breach_locked("the buffer of arguments ends within argument " + std::to_string(i), invalid_value);
      from = buffer + at;
    } else {
      from = static_cast<const std::byte*>(parameters[i]);
      if (from == nullptr) return breach_locked("argument " + std::to_string(i) + " is null", invalid_value);
      if (reinterpret_cast<std::uintptr_t>(from) % a.bytes != 0)
        return breach_locked("argument " + std::to_string(i) + " is not aligned to its size", invalid_value);
    }
    std::uint64_t bits = 0;
    std::memcpy(&bits, from, a.bytes);
    values->push_back(bits);
    at += a.bytes;
  }
  if (buffer != nullptr && size != at)
    return breach_locked(
        "the buffer of arguments has " + std::to_string(size) + " bytes, the kernel takes " + std::to_string(at),
        invalid_value);
  const std::uint32_t most = limits(context.device).parameter_bytes;
  if (at > most)
    return breach_locked(std::to_string(at) + " bytes of arguments, of " + std::to_string(most), invalid_value);
  return ok;
}

Code Machine::launch(Context& context, Function& function, Dimensions grid, Dimensions block,
                     std::uint32_t shared_bytes, Stream& stream, void** parameters, void** extra, const Order& order,
                     std::shared_ptr<DirectLaunch> direct) {
  if (!execute_) return ok;
  Work work;
  if (const Code code = prepare_launch(context, function, grid, block, shared_bytes, parameters, extra, order, &work,
                                       std::move(direct));
      code != ok)
    return code;
  return enqueue(stream, std::move(work), false);
}

/// Checks a launch, and sets `out` to the work item with its accesses.
Code Machine::prepare_launch(Context& context, Function& function, Dimensions grid, Dimensions block,
                             std::uint32_t shared_bytes, void** parameters, void** extra, const Order& order, Work* out,
                             std::shared_ptr<DirectLaunch> direct) {
  const Limits most = limits(context.device);
  auto launch = std::make_shared<Launch>();
  Work& work = *out;
  Module* const module = function.module;
  {
    std::lock_guard hold(lock_);
    const std::string name = "kernel " + function.entry;
    if (context.sticky != ok) return context.sticky;
    if (!module->live) return breach_locked(name + ": its module has been unloaded", invalid_handle);
    if (function.context != &context)
      return breach_locked(name + " is loaded on device " + std::to_string(function.context->device) + ", and device " +
                               std::to_string(context.device) + " is current",
                           invalid_handle);
    if (const Code code = faults_.strikes("launch", ++counts_["launches"], launch_out_of_resources, context.device))
      return code;
    if (grid.x == 0 || grid.y == 0 || grid.z == 0 || block.x == 0 || block.y == 0 || block.z == 0)
      return breach_locked(name + ": an empty grid or block", invalid_value);
    if (block.x > most.max_block[0] || block.y > most.max_block[1] || block.z > most.max_block[2] ||
        std::uint64_t{block.x} * block.y * block.z > most.max_threads)
      return breach_locked(name + ": a block of " + text_of(block) + " is too large", invalid_value);
    if (const Fault* f = faults_.find("threads", context.device);
        f != nullptr && std::uint64_t{block.x} * block.y * block.z > f->number)
      return breach_locked(name + ": a block of " + text_of(block) + " is too large for this function",
                           launch_out_of_resources);
    if (grid.x > most.max_grid[0] || grid.y > most.max_grid[1] || grid.z > most.max_grid[2])
      return breach_locked(name + ": a grid of " + text_of(grid) + " is too large", invalid_value);

    if (resolver_ == nullptr) resolver_ = static_cast<const Resolver*>(dlsym(RTLD_DEFAULT, "tessera_fake_resolver"));
    if (direct)
      launch->facts = direct->facts, launch->direct = direct;
    else if (resolver_ == nullptr || resolver_->find(function.entry.c_str(), opencl, &launch->facts) == 0)
      return breach_locked(name + ": the test program has no definition of this kernel", not_found);
    const KernelFacts& facts = launch->facts;
    if (facts.block &&
        (block.x != facts.block_size[0] || block.y != facts.block_size[1] || block.z != facts.block_size[2]))
      return breach_locked(name + " is written for blocks of " +
                               text_of({facts.block_size[0], facts.block_size[1], facts.block_size[2]}) +
                               " and launched with " + text_of(block),
                           invalid_value);
    if (shared_bytes < facts.dynamic_shared_bytes)
      return breach_locked(name + " uses " + std::to_string(facts.dynamic_shared_bytes) +
                               " bytes of dynamic shared memory and gets " + std::to_string(shared_bytes),
                           illegal_address);
    if (facts.static_shared_bytes > most.shared || facts.static_shared_bytes + shared_bytes > most.shared_optin ||
        shared_bytes > function.max_dynamic_shared)
      return breach_locked(name + ": more shared memory than allowed: " + std::to_string(facts.static_shared_bytes) +
                               " + " + std::to_string(shared_bytes),
                           invalid_value);

    std::vector<std::uint64_t> bits;
    if (const Code code = read_arguments(context, function, facts, parameters, extra, &bits); code != ok) return code;
    for (std::size_t i = 0; i < order.argument_bytes.size(); ++i)
      if (order.argument_bytes[i] != facts.arguments[i].bytes)
        return breach_locked(name + ": argument " + std::to_string(i) + " has " +
                                 std::to_string(facts.arguments[i].bytes) + " bytes and was set with " +
                                 std::to_string(order.argument_bytes[i]),
                             invalid_value);
    std::vector<std::uint64_t> lengths(facts.parameters, ~std::uint64_t{0}), offsets(facts.parameters);
    std::array<std::uint64_t, 3> threads = {std::uint64_t{grid.x} * block.x, std::uint64_t{grid.y} * block.y,
                                            std::uint64_t{grid.z} * block.z};
    launch->shape = facts.block ? std::array<std::uint64_t, 3>{grid.x, grid.y, grid.z} : threads;
    launch->values.resize(facts.parameters);
    launch->bits = bits;
    for (std::uint32_t i = 0; i < facts.argument_count; ++i)
      if (facts.arguments[i].kind == KernelArgument::pointer) launch->bits[i] = 0;  // set below if the address is valid
    for (std::uint32_t i = 0; i < facts.argument_count; ++i) {
      const KernelArgument& a = facts.arguments[i];
      switch (a.kind) {
        case KernelArgument::length: lengths[a.number] = bits[i]; break;
        case KernelArgument::offset: offsets[a.number] = bits[i]; break;
        case KernelArgument::scalar: launch->values[a.number].bits = bits[i]; break;
        case KernelArgument::extent:
          if (bits[i] > threads[a.number])
            return breach_locked(name + ": the grid has " + std::to_string(threads[a.number]) +
                                     " threads for an extent of " + std::to_string(bits[i]),
                                 invalid_value);
          launch->shape[a.number] = bits[i];
          break;
        default: break;
      }
    }
    for (std::uint32_t i = 0; i < facts.argument_count; ++i) {
      const KernelArgument& a = facts.arguments[i];
      if (a.kind != KernelArgument::pointer) continue;
      const bool known = lengths[a.number] != ~std::uint64_t{0};
      if (known && lengths[a.number] == 0) continue;
      if (!known && bits[i] == 0) continue;  // an empty buffer
      const std::uint64_t address = bits[i] + offsets[a.number] * a.element_bytes;
      if (address % a.element_bytes != 0)
        return breach_locked(name + ": argument " + std::to_string(i) + " is not aligned to its elements of " +
                                 std::to_string(a.element_bytes) + " bytes",
                             misaligned_address);
      Touch touch;
      if (const Code code =
              range(context, address, known ? lengths[a.number] * a.element_bytes : 1, a.writes != 0, &touch);
          code != ok) {
        breaches_.back() += " (" + name + ", argument " + std::to_string(i) + ")";
        context.sticky = code;  // a real device detects this when the kernel runs, and is then lost
        changed_.notify_all();
        return code;
      }
      if (!known) {  // the length is not an argument, so this uses the end of the allocation
        lengths[a.number] = (touch.memory->bytes - touch.begin) / a.element_bytes;
        touch.end = touch.memory->bytes;
      }
      KernelValue& value = launch->values[a.number];
      value.data = touch.memory->data + touch.begin;
      value.elements = lengths[a.number];
      launch->bits[i] = reinterpret_cast<std::uint64_t>(value.data);
      if (a.writes && value.elements != 0)
        launch->spoilt = value.data + (value.elements * 7 / 10 + 1) * a.element_bytes - 1;
      if (facts.noalias && known)
        for (const Touch& other : work.touches)
          if (other.memory == touch.memory && other.begin < touch.end && touch.begin < other.end &&
              (other.write || touch.write) && other.end != other.memory->bytes)
            breach_locked(name + ": its buffers are declared disjoint but overlap", ok);
      work.touches.push_back(touch);
    }
    work.what = name;
    launch->resolver = resolver_;
    launch->warp = most.warp;
    launch->object = module->object;
    launch->grid = grid, launch->block = block;
    launch->number = settings_.seed * 1000003 + counts_["launches"];
    const Fault* wrong = faults_.find("wrong", context.device);
    launch->wrong = wrong != nullptr && (wrong->number == 0 || counts_["launches"] == wrong->number ||
                                         (wrong->onward && counts_["launches"] > wrong->number));
  }
  work.module = module;
  work.order = order;
  work.run = [this, launch, name = function.entry]() -> Code {
    if (const std::string error = launch->run(name); !error.empty()) {
      breach("kernel " + name + " failed: " + error, ok);
      return illegal_address;
    }
    if (launch->wrong && launch->spoilt != nullptr) *launch->spoilt ^= std::byte{0x41};
    return ok;
  };
  return ok;
}

bool Machine::facts_of(const std::string& entry, KernelFacts* facts) {
  std::lock_guard hold(lock_);
  if (resolver_ == nullptr) resolver_ = static_cast<const Resolver*>(dlsym(RTLD_DEFAULT, "tessera_fake_resolver"));
  return resolver_ != nullptr && resolver_->find(entry.c_str(), opencl, facts) != 0;
}

Code Machine::outside(Stream& stream, const char* what, const OutsideTouch* touches, int count,
                      void (*run)(void* state, void* const* data), void* state) {
  if (!execute_) return ok;
  Work work;
  work.what = what;
  std::vector<void*> data;
  {
    std::lock_guard hold(lock_);
    if (stream.context->sticky != ok) return stream.context->sticky;
    const Fault* const refuses = faults_.find("blas-capture", stream.context->device);
    if (stream.capture != nullptr && refuses != nullptr) {
      if (!refuses->code) stream.spoilt = true;
      return refuses->code.value_or(capture_unsupported);
    }
    for (int i = 0; i < count; ++i) {
      if (touches[i].bytes == 0) {
        data.push_back(nullptr);
        continue;
      }
      Touch touch;
      if (const Code code = range(*stream.context, touches[i].address, touches[i].bytes, touches[i].write != 0, &touch);
          code != ok) {
        breaches_.back() += " (" + work.what + ", operand " + std::to_string(i) + ")";
        return code;
      }
      data.push_back(touch.memory->data + touch.begin);
      work.touches.push_back(touch);
    }
  }
  work.run = [run, state, data]() -> Code {
    run(state, data.data());
    return ok;
  };
  return enqueue(stream, std::move(work), false);
}

}  // namespace tessera::fake
