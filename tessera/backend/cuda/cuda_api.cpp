// SPDX-License-Identifier: Apache-2.0
#include "tessera/backend/cuda/cuda_api.h"

#include <algorithm>
#include <cstring>
#include <filesystem>

#include <fmt/format.h>

#include "tessera/backend/stream/load.h"
#include "tessera/base/os/library_search.h"

namespace tessera::cuda {

using stream::Handle;

std::vector<std::string> driver_candidates() {
  if (std::string named = stream::named_by("TESSERA_CUDA_LIBRARY"); !named.empty()) return {std::move(named)};
  std::vector<std::string> names = {"libcuda.so.1", "libcuda.so"};
  // Where Windows' Linux, containers' runtimes and NixOS put what the loader does not look for.
  const std::filesystem::path folders[] = {"/usr/lib/wsl/lib", "/usr/local/nvidia/lib64", "/usr/lib64/nvidia",
                                           "/usr/lib/x86_64-linux-gnu/nvidia/current", "/run/opengl-driver/lib"};
  for (std::string& file : os::library_files(folders, "libcuda.so")) names.push_back(std::move(file));
  return names;
}

DriverLibrary open_driver() {
  DriverLibrary library;
  library.file = os::Library::open(driver_candidates());
  if (!library.file.loaded()) return library;
#define TESSERA_TAKE(member, symbol, ...) stream::take(library.file, library.call.member, #symbol, library.missing);
  TESSERA_CUDA_DRIVER(TESSERA_TAKE)
  std::string lacks;  // these may be missing
#undef TESSERA_TAKE
#define TESSERA_TAKE(member, symbol, ...) stream::take(library.file, library.call.member, #symbol, lacks);
  TESSERA_CUDA_DRIVER_OPTIONAL(TESSERA_TAKE)
  lacks.clear();
  TESSERA_CUDA_GRAPHS(TESSERA_TAKE)
  TESSERA_CUDA_GRAPH_NODES(TESSERA_TAKE)
  library.call.graphs = lacks.empty();
#undef TESSERA_TAKE
  return library;
}

std::string CudaApi::code_text(Code code) const {
  const char *name = nullptr, *text = nullptr;
  if (call_.error_name(code, &name) != 0 || !name) return fmt::format("CUDA error {}", code);
  if (call_.error_string(code, &text) != 0 || !text) return fmt::format("{} ({})", name, code);
  return fmt::format("{} ({}), {}", name, code, text);
}

Code CudaApi::context_of(int ordinal, stream::Context* context) const {
  Ordinal device = 0;
  if (const Code code = call_.device_get(&device, ordinal)) return code;
  Context raw = nullptr;
  const Code code = call_.retain_context(&raw, device);
  *context = reinterpret_cast<std::uintptr_t>(raw);
  return code;
}
Code CudaApi::current(stream::Context* context) const {
  Context raw = nullptr;
  const Code code = call_.current_context(&raw);
  *context = reinterpret_cast<std::uintptr_t>(raw);
  return code;
}
Code CudaApi::set_current(stream::Context context) const {
  return call_.set_current_context(reinterpret_cast<Context>(static_cast<std::uintptr_t>(context)));
}

Code CudaApi::memory_info(std::size_t* free, std::size_t* total) const { return call_.memory_info(free, total); }
Code CudaApi::allocate(Address* address, std::size_t bytes) const { return call_.allocate(address, bytes); }
Code CudaApi::release(Address address) const { return call_.release(address); }
Code CudaApi::allocate_pinned(void** host, std::size_t bytes) const {
  return call_.allocate_host(host, bytes, host_alloc_portable);
}
Code CudaApi::release_pinned(void* host) const { return call_.release_host(host); }

Code CudaApi::create_stream(Handle* stream) const {
  return call_.create_stream(reinterpret_cast<Stream*>(stream), stream_non_blocking);
}
Code CudaApi::destroy_stream(Handle stream) const { return call_.destroy_stream(static_cast<Stream>(stream)); }
Code CudaApi::synchronize_stream(Handle stream) const { return call_.synchronize_stream(static_cast<Stream>(stream)); }
Code CudaApi::stream_wait_event(Handle stream, Handle event) const {
  return call_.stream_wait_event(static_cast<Stream>(stream), static_cast<Event>(event), 0);
}

Code CudaApi::create_event(Handle* event) const {
  return call_.create_event(reinterpret_cast<Event*>(event), event_disable_timing);
}
Code CudaApi::record_event(Handle event, Handle stream) const {
  return call_.record_event(static_cast<Event>(event), static_cast<Stream>(stream));
}
Code CudaApi::query_event(Handle event) const { return call_.query_event(static_cast<Event>(event)); }
Code CudaApi::synchronize_event(Handle event) const { return call_.synchronize_event(static_cast<Event>(event)); }
Code CudaApi::destroy_event(Handle event) const { return call_.destroy_event(static_cast<Event>(event)); }

Code CudaApi::copy_to_device(Address to, const void* from, std::size_t bytes, Handle stream) const {
  return call_.copy_to_device(to, from, bytes, static_cast<Stream>(stream));
}
Code CudaApi::copy_to_host(void* to, Address from, std::size_t bytes, Handle stream) const {
  return call_.copy_to_host(to, from, bytes, static_cast<Stream>(stream));
}
Code CudaApi::copy_on_device(Address to, Address from, std::size_t bytes, Handle stream) const {
  return call_.copy_on_device(to, from, bytes, static_cast<Stream>(stream));
}
Code CudaApi::fill(Address to, std::uint32_t word, unsigned word_bytes, std::size_t count, Handle stream) const {
  const auto raw = static_cast<Stream>(stream);
  switch (word_bytes) {
    case 1: return call_.fill8(to, static_cast<unsigned char>(word), count, raw);
    case 2: return call_.fill16(to, static_cast<unsigned short>(word), count, raw);
    default: return call_.fill32(to, word, count, raw);
  }
}

Code CudaApi::load_module(const std::string& image, Handle* module, std::string* log) const {
  std::string said(8192, '\0');  // what the driver's own compiler has to say of PTX
  int options[] = {jit_error_log_buffer, jit_error_log_buffer_size_bytes};
  void* values[] = {said.data(), reinterpret_cast<void*>(said.size() - 1)};
  const Code code = call_.load_module(reinterpret_cast<Module*>(module), image.data(), 2, options, values);
  said.resize(std::min(said.find('\0'), said.size()));
  *log = std::move(said);
  return code;
}
Code CudaApi::unload_module(Handle module) const { return call_.unload_module(static_cast<Module>(module)); }
Code CudaApi::get_function(Handle module, const char* entry, Handle* function) const {
  return call_.get_function(reinterpret_cast<Function*>(function), static_cast<Module>(module), entry);
}
Code CudaApi::largest_block(Handle function, int* threads) const {
  return call_.function_attribute(threads, function_max_threads_per_block, static_cast<Function>(function));
}
Code CudaApi::allow_shared(Handle function, std::size_t bytes) const {
  return call_.set_function_attribute(static_cast<Function>(function), function_max_dynamic_shared_size,
                                      static_cast<int>(bytes));
}
Code CudaApi::launch(Handle function, const backend::Grid& g, unsigned shared_bytes, Handle stream,
                     std::span<backend::BoundArgument> arguments) const {
  auto n = [](std::uint64_t v) { return static_cast<unsigned>(v); };
  return call_.launch(static_cast<Function>(function), n(g.blocks[0]), n(g.blocks[1]), n(g.blocks[2]), n(g.block[0]),
                      n(g.block[1]), n(g.block[2]), shared_bytes, static_cast<Stream>(stream),
                      stream::addresses_of(arguments), nullptr);
}

Code CudaApi::begin_capture(Handle stream) const {
  return call_.begin_capture(static_cast<Stream>(stream), capture_thread_local);
}
Code CudaApi::end_capture(Handle stream, Handle* graph) const {
  return call_.end_capture(static_cast<Stream>(stream), reinterpret_cast<Graph*>(graph));
}
Code CudaApi::newest_node(Handle stream, Handle* node) const {
  int status = 0;
  const Node* newest = nullptr;
  std::size_t count = 0;
  const Code code = call_.capture_info(static_cast<Stream>(stream), &status, nullptr, nullptr, &newest, &count);
  if (code != 0) return code;
  if (count != 1) return unsupported;  // what comes next depends on one piece of work: the newest
  *node = newest[0];
  return 0;
}
Code CudaApi::instantiate(Handle graph, Handle* executable) const {
  return call_.instantiate(reinterpret_cast<Executable*>(executable), static_cast<Graph>(graph), 0);
}
Code CudaApi::destroy_graph(Handle graph) const { return call_.destroy_graph(static_cast<Graph>(graph)); }
Code CudaApi::destroy_executable(Handle executable) const {
  return call_.destroy_executable(static_cast<Executable>(executable));
}
Code CudaApi::launch_graph(Handle executable, Handle stream) const {
  return call_.launch_graph(static_cast<Executable>(executable), static_cast<Stream>(stream));
}
Code CudaApi::set_kernel_node(Handle executable, Handle node, Handle function, const backend::Grid& g,
                              unsigned shared_bytes, std::span<backend::BoundArgument> arguments) const {
  KernelNode now;
  now.function = static_cast<Function>(function);
  for (std::size_t d = 0; d < 3; ++d)
    now.grid[d] = static_cast<unsigned>(g.blocks[d]), now.block[d] = static_cast<unsigned>(g.block[d]);
  now.shared_bytes = shared_bytes;
  now.arguments = stream::addresses_of(arguments);
  return call_.set_kernel_node(static_cast<Executable>(executable), static_cast<Node>(node), &now);
}

}  // namespace tessera::cuda
