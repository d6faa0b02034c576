// SPDX-License-Identifier: Apache-2.0
// Memory, kernels and launches. Streams and events are in metal_stream.cpp.
#include "tessera/backend/metal/metal_api.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include <fmt/format.h>

#include "tessera/base/os/per_thread.h"
#include "tessera/emit/metal.h"

namespace tessera::metal {

using stream::Address;
using stream::Handle;

namespace {

thread_local stream::Context current_context = 0;
/// Metal's message about the last failed call on this thread.
std::string& last_text() { return os::PerThread<std::string, struct MetalLastText>::get(); }

/// Gap between the address ranges of allocations, in bytes, so that an address identifies its buffer.
constexpr Address gap = 256;

// Must match emit::metal_copy_and_fill.
struct CopyArguments {
  std::uint64_t bytes;
};
struct FillArguments {
  std::uint64_t count;
  std::uint32_t word, bytes;
};

}  // namespace

// Errors.

std::string MetalApi::code_text(Code code) const {
  std::string said = std::exchange(last_text(), {});  // cleared, because the next failure may have no message
  if (!said.empty()) said.insert(0, ": ");
  switch (code) {
    case out_of_memory: return "out of memory (Metal returned nil)" + said;
    case refused: return "rejected" + said;
    case no_function: return "there is no function with this name" + said;
    case not_ready: return "not ready";
    default: break;
  }
  static constexpr const char* names[] = {"",
                                          "internal",
                                          "timeout",
                                          "page fault",
                                          "access revoked",
                                          "",
                                          "",
                                          "not permitted",
                                          "out of memory",
                                          "invalid resource",
                                          "memoryless",
                                          "device removed",
                                          "stack overflow"};
  const int which = code - command_failed;
  const bool named = which > 0 && which < static_cast<int>(std::size(names)) && *names[which] != 0;
  return fmt::format("MTLCommandBufferError {}{}{}", which, named ? std::string(" (") + names[which] + ")" : "", said);
}
stream::Fault MetalApi::fault_of(Code code) const {
  if (code == 0 || code == not_ready) return stream::Fault::none;
  if (code == out_of_memory) return stream::Fault::memory;
  if (code == refused || code == no_function) return stream::Fault::refused;
  return stream::Fault::lost;
}
Code MetalApi::code_of(Id buffer) const {
  const UInt status = runtime_.send<UInt>(buffer, runtime_.selectors.status);
  if (status == status_completed) return 0;
  if (status != status_error) return not_ready;
  const Id error = runtime_.send<Id>(buffer, runtime_.selectors.error);
  last_text() = runtime_.error_text(error);
  const Int number = runtime_.send<Int>(error, runtime_.selectors.code);
  return command_failed + static_cast<Code>(std::clamp<Int>(number, 0, 999));
}

// Devices.

void MetalApi::add(Id id) {
  auto made = std::make_unique<MetalDevice>();
  made->device = id;
  made->unified = runtime_.send<bool>(id, runtime_.selectors.has_unified_memory);
  made->largest_buffer = runtime_.send<UInt>(id, runtime_.selectors.max_buffer);
  devices_.push_back(std::move(made));
}
MetalDevice& MetalApi::current_metal_device() const { return *reinterpret_cast<MetalDevice*>(current_context); }
Code MetalApi::context_of(int ordinal, stream::Context* context) const {
  MetalDevice& made = device(ordinal);
  if (const Code code = prepare(made)) return code;
  *context = reinterpret_cast<stream::Context>(&made);
  return 0;
}
Code MetalApi::current(stream::Context* context) const {
  *context = current_context;
  return 0;
}
Code MetalApi::set_current(stream::Context context) const {
  current_context = context;
  return 0;
}
void* MetalApi::native_context(stream::Context context) const {
  return reinterpret_cast<MetalDevice*>(context)->device;
}

// Memory.

Code MetalApi::memory_info(std::size_t* free, std::size_t* total) const {
  const Pool pool(runtime_);
  const Id device = current_metal_device().device;
  *total = runtime_.send<UInt>(device, runtime_.selectors.working_set);
  const std::size_t used = runtime_.send<UInt>(device, runtime_.selectors.allocated);
  *free = used < *total ? *total - used : 0;
  return 0;
}
Owned MetalApi::new_buffer(MetalDevice& device, std::size_t bytes, UInt options) const {
  last_text().clear();
  if (device.largest_buffer != 0 && bytes > device.largest_buffer) {
    last_text() = fmt::format("buffers of this device have at most {} bytes", device.largest_buffer);
    return {};
  }
  return {runtime_, runtime_.send<Id>(device.device, runtime_.selectors.new_buffer, UInt{bytes}, options)};
}
Code MetalApi::allocate(Address* address, std::size_t bytes) const {
  const Pool pool(runtime_);
  MetalDevice& device = current_metal_device();
  // With unified memory, the host reads shared buffers without a copy.
  const Id buffer = new_buffer(device, bytes, device.unified ? storage_shared : storage_private).release();
  if (buffer == nullptr) return out_of_memory;
  std::lock_guard guard(device.lock);
  *address = device.next;
  device.next += (bytes + 2 * gap - 1) / gap * gap;
  device.buffers[*address] = {buffer, bytes};
  return 0;
}
Code MetalApi::release(Address address) const {
  const Pool pool(runtime_);
  MetalDevice& device = current_metal_device();
  std::lock_guard guard(device.lock);
  const auto it = device.buffers.find(address);
  if (it == device.buffers.end()) return refused;
  runtime_.send(it->second.buffer, runtime_.selectors.release);
  device.buffers.erase(it);
  return 0;
}
Code MetalApi::allocate_pinned(void** host, std::size_t bytes) const {
  const Pool pool(runtime_);
  MetalDevice& device = current_metal_device();
  const Id buffer = new_buffer(device, bytes, storage_shared).release();
  if (buffer == nullptr) return out_of_memory;
  *host = runtime_.send<void*>(buffer, runtime_.selectors.contents);
  std::lock_guard guard(device.lock);
  device.pinned[reinterpret_cast<std::uintptr_t>(*host)] = {buffer, bytes};
  return 0;
}
Code MetalApi::release_pinned(void* host) const {
  const Pool pool(runtime_);
  MetalDevice& device = current_metal_device();
  std::lock_guard guard(device.lock);
  const auto it = device.pinned.find(reinterpret_cast<std::uintptr_t>(host));
  if (it == device.pinned.end()) return refused;
  runtime_.send(it->second.buffer, runtime_.selectors.release);
  device.pinned.erase(it);
  return 0;
}
namespace {
template <class Map, class Key>
std::pair<Id, UInt> find_in(const Map& map, Key key) {
  auto it = map.upper_bound(key);
  if (it == map.begin()) return {};
  --it;
  const UInt offset = key - it->first;
  return offset < it->second.bytes ? std::pair{it->second.buffer, offset} : std::pair<Id, UInt>{};
}
}  // namespace
MetalApi::Place MetalApi::place_of(MetalDevice& device, Address address) {
  std::lock_guard guard(device.lock);
  const auto [buffer, offset] = find_in(device.buffers, address);
  return {buffer, offset};
}
MetalApi::Place MetalApi::pinned_place(MetalDevice& device, const void* host) {
  std::lock_guard guard(device.lock);
  const auto [buffer, offset] = find_in(device.pinned, reinterpret_cast<std::uintptr_t>(host));
  return {buffer, offset};
}

// Copies and fills.

Code MetalApi::copy(MetalStream& stream, Place to, Place from, std::size_t bytes) const {
  const Selectors& selectors = runtime_.selectors;
  if (to.buffer == nullptr || from.buffer == nullptr) return refused;
  // On macOS, blit copies require offsets and sizes that are multiples of four bytes (MTLBlitCommandEncoder).
  if ((to.offset | from.offset | bytes) % 4 == 0) {
    const Id blit = encoder(stream, false);
    if (blit == nullptr) return out_of_memory;
    runtime_.send(blit, selectors.copy_buffer, from.buffer, from.offset, to.buffer, to.offset, UInt{bytes});
  } else {
    const Id compute = encoder(stream, true);
    if (compute == nullptr) return out_of_memory;
    const CopyArguments arguments{bytes};
    const UInt threads = stream.device->own_threads;
    runtime_.send(compute, selectors.set_pipeline, stream.device->copy);
    runtime_.send(compute, selectors.set_buffer, from.buffer, from.offset, UInt{0});
    runtime_.send(compute, selectors.set_buffer, to.buffer, to.offset, UInt{1});
    runtime_.send(compute, selectors.set_bytes, static_cast<const void*>(&arguments), UInt{sizeof arguments}, UInt{2});
    runtime_.send(compute, selectors.dispatch, Size{(bytes + threads - 1) / threads, 1, 1}, Size{threads, 1, 1});
  }
  count_command(stream);
  return 0;
}
Code MetalApi::copy_to_device(Address to, const void* from, std::size_t bytes, Handle handle) const {
  const Pool pool(runtime_);
  auto& stream = *static_cast<MetalStream*>(handle);
  const Place target = place_of(*stream.device, to), source = pinned_place(*stream.device, from);
  if (source.buffer != nullptr) return copy(stream, target, source, bytes);
  // Copies the program's pageable memory to a new buffer. The command buffer holds a reference to this buffer.
  const Owned now(runtime_, runtime_.send<Id>(stream.device->device, runtime_.selectors.new_buffer_with, from,
                                              UInt{bytes}, storage_shared));
  return now ? copy(stream, target, {now.get(), 0}, bytes) : out_of_memory;
}
Code MetalApi::copy_to_host(void* to, Address from, std::size_t bytes, Handle handle) const {
  const Pool pool(runtime_);
  auto& stream = *static_cast<MetalStream*>(handle);
  const Place source = place_of(*stream.device, from), target = pinned_place(*stream.device, to);
  if (target.buffer != nullptr) return copy(stream, target, source, bytes);
  if (source.buffer == nullptr) return refused;
  // Copies to the program's pageable memory. After synchronisation, the host reads the buffer itself or a host-visible
  // copy of it.
  Owned seen;
  Id shown = source.buffer;
  UInt offset = source.offset;
  if (!stream.device->unified) {
    seen = new_buffer(*stream.device, bytes, storage_shared);
    if (!seen) return out_of_memory;
    if (const Code code = copy(stream, {seen.get(), 0}, source, bytes)) return code;
    shown = seen.get(), offset = 0;
  }
  if (const Code code = synchronize_stream(handle)) return code;
  std::memcpy(to, runtime_.send<const std::byte*>(shown, runtime_.selectors.contents) + offset, bytes);
  return 0;
}
Code MetalApi::copy_on_device(Address to, Address from, std::size_t bytes, Handle handle) const {
  const Pool pool(runtime_);
  auto& stream = *static_cast<MetalStream*>(handle);
  return copy(stream, place_of(*stream.device, to), place_of(*stream.device, from), bytes);
}
Code MetalApi::fill(Address to, std::uint32_t word, unsigned word_bytes, std::size_t count, Handle handle) const {
  const Pool pool(runtime_);
  const Selectors& selectors = runtime_.selectors;
  auto& stream = *static_cast<MetalStream*>(handle);
  const Place target = place_of(*stream.device, to);
  if (target.buffer == nullptr) return refused;
  const Id compute = encoder(stream, true);
  if (compute == nullptr) return out_of_memory;
  const FillArguments arguments{count, word, word_bytes};
  const UInt threads = stream.device->own_threads;
  runtime_.send(compute, selectors.set_pipeline, stream.device->fill);
  runtime_.send(compute, selectors.set_buffer, target.buffer, target.offset, UInt{0});
  runtime_.send(compute, selectors.set_bytes, static_cast<const void*>(&arguments), UInt{sizeof arguments}, UInt{1});
  runtime_.send(compute, selectors.dispatch, Size{(count + threads - 1) / threads, 1, 1}, Size{threads, 1, 1});
  count_command(stream);
  return 0;
}

// Kernels.

Owned MetalApi::compile(const MetalDevice& device, const std::string& text, std::string* log) const {
  const Selectors& selectors = runtime_.selectors;
  const Owned options(runtime_, runtime_.send<Id>(runtime_.get_class("MTLCompileOptions"), selectors.make));
  runtime_.send(options.get(), selectors.set_fast_math, false);
  runtime_.send(options.get(), selectors.set_language, language_2_4);
  const Id source = runtime_.send<Id>(runtime_.get_class("NSString"), selectors.string_with, text.c_str());
  Id error = nullptr;
  Owned library(runtime_, runtime_.send<Id>(device.device, selectors.new_library, source, options.get(), &error));
  if (!library) *log = runtime_.error_text(error);  // if there is a library, the error contains only warnings
  return library;
}
Owned MetalApi::pipeline_of(const MetalDevice& device, Id library, const char* name, std::string* log) const {
  const Selectors& selectors = runtime_.selectors;
  const Id text = runtime_.send<Id>(runtime_.get_class("NSString"), selectors.string_with, name);
  const Owned function(runtime_, runtime_.send<Id>(library, selectors.new_function, text));
  if (!function) {
    *log = fmt::format("the library has no function {}", name);
    return {};
  }
  Id error = nullptr;
  Owned pipeline(runtime_, runtime_.send<Id>(device.device, selectors.new_pipeline, function.get(), &error));
  if (!pipeline) *log = runtime_.error_text(error);
  return pipeline;
}
Code MetalApi::prepare(MetalDevice& device) const {
  if (device.library != nullptr) return 0;
  const Pool pool(runtime_);
  last_text().clear();
  Owned library = compile(device, emit::metal_copy_and_fill(), &last_text());
  if (!library) return refused;
  Owned copy = pipeline_of(device, library.get(), "tessera_copy", &last_text());
  Owned fill = pipeline_of(device, library.get(), "tessera_fill", &last_text());
  if (!copy || !fill) return refused;
  for (const Owned* pipeline : {&copy, &fill})
    device.own_threads = std::min(
        device.own_threads, std::max<UInt>(runtime_.send<UInt>(pipeline->get(), runtime_.selectors.max_threads), 1));
  device.copy = copy.release(), device.fill = fill.release(), device.library = library.release();  // never released
  return 0;
}
Code MetalApi::load_module(const std::string& image, Handle* module, std::string* log) const {
  const Pool pool(runtime_);
  Owned library = compile(current_metal_device(), image, log);
  if (!library) return refused;
  *module = new MetalModule{std::move(library), {}};
  return 0;
}
Code MetalApi::unload_module(Handle module) const {
  const Pool pool(runtime_);
  delete static_cast<MetalModule*>(module);
  return 0;
}
Code MetalApi::get_function(Handle module, const char* entry, Handle* function) const {
  const Pool pool(runtime_);
  last_text().clear();
  auto& of = *static_cast<MetalModule*>(module);
  Owned pipeline = pipeline_of(current_metal_device(), of.library.get(), entry, &last_text());
  if (!pipeline) return no_function;
  of.functions.push_back(std::make_unique<MetalFunction>(MetalFunction{std::move(pipeline)}));
  *function = of.functions.back().get();
  return 0;
}
Code MetalApi::max_block_size(Handle function, int* threads) const {
  const Id pipeline = static_cast<MetalFunction*>(function)->pipeline.get();
  *threads = static_cast<int>(runtime_.send<UInt>(pipeline, runtime_.selectors.max_threads));
  return 0;
}

Code MetalApi::launch(Handle function, const backend::Grid& grid, unsigned shared_bytes, Handle handle,
                      std::span<backend::BoundArgument> arguments) const {
  using Kind = emit::KernelArgument::Kind;
  const Pool pool(runtime_);
  const Selectors& selectors = runtime_.selectors;
  auto& stream = *static_cast<MetalStream*>(handle);
  const Id compute = encoder(stream, true);
  if (compute == nullptr) return out_of_memory;
  runtime_.send(compute, selectors.set_pipeline, static_cast<MetalFunction*>(function)->pipeline.get());
  // Scalars are passed in a struct after the buffers (see emit/metal.h).
  auto& others = os::PerThread<std::vector<std::byte>, struct MetalScalars>::get();
  others.clear();
  UInt index = 0;
  for (const backend::BoundArgument& a : arguments) {
    if (a.kind == Kind::pointer) {
      // An empty buffer also needs a binding, but the kernel never reads it.
      Place place = a.value != 0 ? place_of(*stream.device, a.value) : Place{};
      if (place.buffer == nullptr && a.value != 0) place = place_of(*stream.device, a.value - 1), ++place.offset;
      runtime_.send(compute, selectors.set_buffer, place.buffer, place.buffer != nullptr ? place.offset : 0, index++);
      continue;
    }
    others.resize((others.size() + a.bytes - 1) / a.bytes * a.bytes + a.bytes);
    std::memcpy(others.data() + others.size() - a.bytes, &a.value, a.bytes);
  }
  if (!others.empty()) {
    others.resize((others.size() + 7) / 8 * 8);  // the size of the struct is a multiple of 8
    runtime_.send(compute, selectors.set_bytes, static_cast<const void*>(others.data()), UInt{others.size()}, index);
  }
  if (shared_bytes != 0) runtime_.send(compute, selectors.set_threadgroup_memory, UInt{shared_bytes}, UInt{0});
  runtime_.send(compute, selectors.dispatch, Size{grid.blocks[0], grid.blocks[1], grid.blocks[2]},
                Size{grid.block[0], grid.block[1], grid.block[2]});
  count_command(stream);
  return 0;
}

}  // namespace tessera::metal
