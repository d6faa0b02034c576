// SPDX-License-Identifier: Apache-2.0
#include "tessera/backend/rocm/hip_api.h"

#include <filesystem>

#include <fmt/format.h>

#include "tessera/backend/stream/load.h"
#include "tessera/base/os/library_search.h"

namespace tessera::rocm {

using stream::Address, stream::Handle;

namespace {

void* pointer(Address address) { return reinterpret_cast<void*>(static_cast<std::uintptr_t>(address)); }

}  // namespace

std::vector<std::string> runtime_candidates() {
  if (std::string named = stream::named_by("TESSERA_ROCM_LIBRARY"); !named.empty()) return {std::move(named)};
  std::vector<std::string> names = {"libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so.5", "libamdhip64.so"};
  std::vector<std::filesystem::path> folders;
  for (const char* variable : {"ROCM_PATH", "ROCM_HOME", "HIP_PATH"})
    if (const std::string root = stream::named_by(variable); !root.empty())
      folders.push_back(std::filesystem::path(root) / "lib");
  for (auto& folder : os::folders_named("/opt", "rocm", "lib")) folders.push_back(std::move(folder));
  for (auto& packages : os::python_packages()) folders.push_back(packages / "_rocm_sdk_core" / "lib");
  for (std::string& file : os::library_files(folders, "libamdhip64.so")) names.push_back(std::move(file));
  return names;
}

RuntimeLibrary open_runtime() {
  RuntimeLibrary library;
  library.file = os::Library::open(runtime_candidates());
  if (!library.file.loaded()) return library;
#define TESSERA_TAKE(member, symbol, ...) stream::take(library.file, library.call.member, #symbol, library.missing);
  TESSERA_HIP(TESSERA_TAKE)
  std::string lacks;  // these may be missing
#undef TESSERA_TAKE
#define TESSERA_TAKE(member, symbol, ...) stream::take(library.file, library.call.member, #symbol, lacks);
  TESSERA_HIP_OPTIONAL(TESSERA_TAKE)
  lacks.clear();
  TESSERA_HIP_GRAPHS(TESSERA_TAKE)
  library.call.graphs = lacks.empty();
#undef TESSERA_TAKE
  if (!library.missing.empty()) return library;
  if (library.call.runtime_version(&library.version) != 0) library.version = 0;
  switch (library.major()) {
    case 5: library.layout = properties_5; break;
    case 6:
    case 7: library.layout = properties_6; break;
    default: return library;
  }
  stream::take(library.file, library.call.properties, library.layout.symbol, library.missing);
  return library;
}

std::string HipApi::code_text(Code code) const {
  const char *name = call_.error_name(code), *text = call_.error_string(code);
  if (!name) return fmt::format("HIP error {}", code);
  if (!text || std::string_view(text) == name) return fmt::format("{} ({})", name, code);
  return fmt::format("{} ({}), {}", name, code, text);
}

// A device's number stands for its primary context, as in all of HIP.
Code HipApi::context_of(int ordinal, stream::Context* context) const {
  *context = static_cast<stream::Context>(ordinal);
  int before = 0;
  if (const Code code = call_.current_device(&before)) return code;
  const Code code = call_.set_current_device(ordinal);  // makes the context if there is none yet
  if (code == 0 && before != ordinal) return call_.set_current_device(before);
  return code;
}
Code HipApi::current(stream::Context* context) const {
  int device = 0;
  const Code code = call_.current_device(&device);
  *context = static_cast<stream::Context>(device);
  return code;
}
Code HipApi::set_current(stream::Context context) const { return call_.set_current_device(static_cast<int>(context)); }

Code HipApi::memory_info(std::size_t* free, std::size_t* total) const { return call_.memory_info(free, total); }
Code HipApi::allocate(Address* address, std::size_t bytes) const {
  void* raw = nullptr;
  const Code code = call_.allocate(&raw, bytes);
  *address = reinterpret_cast<std::uintptr_t>(raw);
  return code;
}
Code HipApi::release(Address address) const { return call_.release(pointer(address)); }
Code HipApi::allocate_pinned(void** host, std::size_t bytes) const {
  return call_.allocate_host(host, bytes, host_malloc_portable);
}
Code HipApi::release_pinned(void* host) const { return call_.release_host(host); }

Code HipApi::create_stream(Handle* stream) const {
  return call_.create_stream(reinterpret_cast<Stream*>(stream), stream_non_blocking);
}
Code HipApi::destroy_stream(Handle stream) const { return call_.destroy_stream(static_cast<Stream>(stream)); }
Code HipApi::synchronize_stream(Handle stream) const { return call_.synchronize_stream(static_cast<Stream>(stream)); }
Code HipApi::stream_wait_event(Handle stream, Handle event) const {
  return call_.stream_wait_event(static_cast<Stream>(stream), static_cast<Event>(event), 0);
}

Code HipApi::create_event(Handle* event) const {
  return call_.create_event(reinterpret_cast<Event*>(event), event_disable_timing);
}
Code HipApi::record_event(Handle event, Handle stream) const {
  return call_.record_event(static_cast<Event>(event), static_cast<Stream>(stream));
}
Code HipApi::query_event(Handle event) const { return call_.query_event(static_cast<Event>(event)); }
Code HipApi::synchronize_event(Handle event) const { return call_.synchronize_event(static_cast<Event>(event)); }
Code HipApi::destroy_event(Handle event) const { return call_.destroy_event(static_cast<Event>(event)); }

Code HipApi::copy_to_device(Address to, const void* from, std::size_t bytes, Handle stream) const {
  return call_.copy_to_device(pointer(to), const_cast<void*>(from), bytes, static_cast<Stream>(stream));
}
Code HipApi::copy_to_host(void* to, Address from, std::size_t bytes, Handle stream) const {
  return call_.copy_to_host(to, pointer(from), bytes, static_cast<Stream>(stream));
}
Code HipApi::copy_on_device(Address to, Address from, std::size_t bytes, Handle stream) const {
  return call_.copy_on_device(pointer(to), pointer(from), bytes, static_cast<Stream>(stream));
}
Code HipApi::fill(Address to, std::uint32_t word, unsigned word_bytes, std::size_t count, Handle stream) const {
  const auto raw = static_cast<Stream>(stream);
  switch (word_bytes) {
    case 1: return call_.fill8(pointer(to), static_cast<unsigned char>(word), count, raw);
    case 2: return call_.fill16(pointer(to), static_cast<unsigned short>(word), count, raw);
    default: return call_.fill32(pointer(to), static_cast<int>(word), count, raw);
  }
}

Code HipApi::load_module(const std::string& image, Handle* module, std::string*) const {
  return call_.load_module(reinterpret_cast<Module*>(module), image.data());
}
Code HipApi::unload_module(Handle module) const { return call_.unload_module(static_cast<Module>(module)); }
Code HipApi::get_function(Handle module, const char* entry, Handle* function) const {
  return call_.get_function(reinterpret_cast<Function*>(function), static_cast<Module>(module), entry);
}
Code HipApi::largest_block(Handle function, int* threads) const {
  return call_.function_attribute(threads, function_max_threads_per_block, static_cast<Function>(function));
}
Code HipApi::allow_shared(Handle, std::size_t) const { return 0; }  // AMD's devices need no permission
Code HipApi::launch(Handle function, const backend::Grid& g, unsigned shared_bytes, Handle stream,
                    std::span<backend::BoundArgument> arguments) const {
  auto n = [](std::uint64_t v) { return static_cast<unsigned>(v); };
  return call_.launch(static_cast<Function>(function), n(g.blocks[0]), n(g.blocks[1]), n(g.blocks[2]), n(g.block[0]),
                      n(g.block[1]), n(g.block[2]), shared_bytes, static_cast<Stream>(stream),
                      stream::addresses_of(arguments), nullptr);
}

Code HipApi::begin_capture(Handle stream) const {
  return call_.begin_capture(static_cast<Stream>(stream), capture_thread_local);
}
Code HipApi::end_capture(Handle stream, Handle* graph) const {
  return call_.end_capture(static_cast<Stream>(stream), reinterpret_cast<Graph*>(graph));
}
Code HipApi::newest_node(Handle stream, Handle* node) const {
  int status = 0;
  const Node* newest = nullptr;
  std::size_t count = 0;
  const Code code = call_.capture_info(static_cast<Stream>(stream), &status, nullptr, nullptr, &newest, &count);
  if (code != 0) return code;
  if (count != 1) return unsupported;  // what comes next depends on one piece of work: the newest
  *node = newest[0];
  return 0;
}
Code HipApi::instantiate(Handle graph, Handle* executable) const {
  return call_.instantiate(reinterpret_cast<Executable*>(executable), static_cast<Graph>(graph), nullptr, nullptr, 0);
}
Code HipApi::destroy_graph(Handle graph) const { return call_.destroy_graph(static_cast<Graph>(graph)); }
Code HipApi::destroy_executable(Handle executable) const {
  return call_.destroy_executable(static_cast<Executable>(executable));
}
Code HipApi::launch_graph(Handle executable, Handle stream) const {
  return call_.launch_graph(static_cast<Executable>(executable), static_cast<Stream>(stream));
}
Code HipApi::set_kernel_node(Handle executable, Handle node, Handle function, const backend::Grid& g,
                             unsigned shared_bytes, std::span<backend::BoundArgument> arguments) const {
  KernelNode now;
  now.function = function;
  for (std::size_t d = 0; d < 3; ++d)
    now.grid[d] = static_cast<unsigned>(g.blocks[d]), now.block[d] = static_cast<unsigned>(g.block[d]);
  now.shared_bytes = shared_bytes;
  now.arguments = stream::addresses_of(arguments);
  return call_.set_kernel_node(static_cast<Executable>(executable), static_cast<Node>(node), &now);
}

}  // namespace tessera::rocm
