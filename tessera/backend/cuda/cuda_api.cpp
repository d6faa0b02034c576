// SPDX-License-Identifier: Apache-2.0
#include "tessera/backend/cuda/cuda_api.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <new>

#include <fmt/format.h>

#include "tessera/backend/stream/errors.h"
#include "tessera/backend/stream/library.h"
#include "tessera/base/os/library_search.h"

namespace tessera::cuda {

using stream::Handle;

namespace {
Context raw_context(stream::Context context) { return reinterpret_cast<Context>(static_cast<std::uintptr_t>(context)); }
}  // namespace

std::vector<std::string> driver_candidates() {
  if (std::string named = stream::library_from_variable("TESSERA_CUDA_LIBRARY"); !named.empty())
    return {std::move(named)};
  std::vector<std::string> names = {"libcuda.so.1", "libcuda.so"};
  // WSL, container runtimes and NixOS use folders that the dynamic loader does not search.
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
  std::string lacks;  // these functions are optional, so missing ones are ignored
#undef TESSERA_TAKE
#define TESSERA_TAKE(member, symbol, ...) stream::take(library.file, library.call.member, #symbol, lacks);
  TESSERA_CUDA_DRIVER_OPTIONAL(TESSERA_TAKE)
  lacks.clear();
  TESSERA_CUDA_GRAPHS(TESSERA_TAKE)
  TESSERA_CUDA_GRAPH_NODES(TESSERA_TAKE)
  library.call.graphs = lacks.empty();
  TESSERA_CUDA_LINKER(TESSERA_TAKE)
#undef TESSERA_TAKE
  return library;
}

// The constants of TableApi must be equal to those in api.h, which a test compares with the vendor's header.
static_assert(stream::TableValues::stream_non_blocking == stream_non_blocking &&
              stream::TableValues::event_blocking_sync == event_blocking_sync &&
              stream::TableValues::event_disable_timing == event_disable_timing &&
              stream::TableValues::host_portable == host_alloc_portable &&
              stream::TableValues::function_max_threads_per_block == function_max_threads_per_block);

std::string CudaApi::code_text(Code code) const {
  const char *name = nullptr, *text = nullptr;
  if (call_.error_name(code, &name) != 0 || !name) return fmt::format("CUDA error ({})", code);
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
Code CudaApi::set_current(stream::Context context) const { return call_.set_current_context(raw_context(context)); }

Code CudaApi::allocate(Address* address, std::size_t bytes) const { return call_.allocate(address, bytes); }

// Without peer access, cuMemcpyPeerAsync would copy through staging memory of the driver. Tessera then uses its own
// staging memory, which is pooled and counted.
Code CudaApi::enable_peer(int ordinal, int peer_ordinal, stream::Context peer, bool* can) const {
  Ordinal device = 0, other = 0;
  if (const Code code = call_.device_get(&device, ordinal)) return code;
  if (const Code code = call_.device_get(&other, peer_ordinal)) return code;
  int answer = 0;
  if (const Code code = call_.can_access_peer(&answer, device, other)) return code;
  *can = answer != 0;
  if (!*can) return 0;
  const Code code = call_.enable_peer(raw_context(peer), 0);
  return code == stream::peer_already_enabled ? 0 : code;  // other code in this process has already enabled it
}
Code CudaApi::copy_from_peer(stream::Address to, int, stream::Context context, stream::Address from, int,
                             stream::Context peer, std::size_t bytes, Handle stream) const {
  return call_.copy_from_peer(to, raw_context(context), from, raw_context(peer), bytes, static_cast<Stream>(stream));
}

Code CudaApi::load_module(const std::string& image, Handle* module, std::string* log) const {
  std::string said(8192, '\0');  // messages of the driver's PTX compiler
  int options[] = {jit_error_log_buffer, jit_error_log_buffer_size_bytes};
  void* values[] = {said.data(), reinterpret_cast<void*>(said.size() - 1)};
  const Code code = call_.load_module(reinterpret_cast<Module*>(module), image.data(), 2, options, values);
  said.resize(std::min(said.find('\0'), said.size()));
  *log = std::move(said);
  return code;
}
bool CudaApi::link(const std::string& ptx, std::string* machine_code) const {
  if (!call_.link_create || !call_.link_add || !call_.link_complete || !call_.link_destroy) return false;
  Linker linker = nullptr;
  if (call_.link_create(0, nullptr, nullptr, &linker) != 0) return false;
  void* code = nullptr;  // belongs to the linker
  std::size_t bytes = 0;
  // The size includes the terminator. The driver does not change the text.
  const bool linked = call_.link_add(linker, jit_input_ptx, const_cast<char*>(ptx.c_str()), ptx.size() + 1,
                                     "kernel.ptx", 0, nullptr, nullptr) == 0 &&
                      call_.link_complete(linker, &code, &bytes) == 0;
  try {
    if (linked) machine_code->assign(static_cast<const char*>(code), bytes);
  } catch (const std::bad_alloc&) {
    call_.link_destroy(linker);
    throw;
  }
  call_.link_destroy(linker);
  return linked;
}
Code CudaApi::allow_shared(Handle function, std::size_t bytes) const {
  return call_.set_function_attribute(static_cast<Function>(function), function_max_dynamic_shared_size,
                                      static_cast<int>(bytes));
}

Code CudaApi::instantiate(Handle graph, Handle* executable) const {
  return call_.instantiate(reinterpret_cast<Executable*>(executable), static_cast<Graph>(graph), 0);
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
