// SPDX-License-Identifier: Apache-2.0
#include "tessera/backend/rocm/hip_api.h"

#include <filesystem>

#include <fmt/format.h>

#include "tessera/backend/stream/errors.h"
#include "tessera/backend/stream/library.h"
#include "tessera/base/os/library_search.h"

namespace tessera::rocm {

using stream::Address, stream::Handle;

namespace {

void* pointer(Address address) { return reinterpret_cast<void*>(static_cast<std::uintptr_t>(address)); }

}  // namespace

std::vector<std::filesystem::path> toolkit_folders() {
  std::vector<std::filesystem::path> folders;
  for (const char* variable : {"ROCM_PATH", "ROCM_HOME", "HIP_PATH"})
    if (const std::string root = stream::library_from_variable(variable); !root.empty())
      folders.push_back(std::filesystem::path(root) / "lib");
  for (auto& folder : os::folders_named("/opt", "rocm", "lib")) folders.push_back(std::move(folder));
  for (auto& packages : os::python_packages()) folders.push_back(packages / "_rocm_sdk_core" / "lib");
  return folders;
}

std::vector<std::string> runtime_candidates() {
  if (std::string named = stream::library_from_variable("TESSERA_ROCM_LIBRARY"); !named.empty())
    return {std::move(named)};
  std::vector<std::string> names = {"libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so.5", "libamdhip64.so"};
  for (std::string& file : os::library_files(toolkit_folders(), "libamdhip64.so")) names.push_back(std::move(file));
  return names;
}

RuntimeLibrary open_runtime() {
  RuntimeLibrary library;
  library.file = os::Library::open(runtime_candidates());
  if (!library.file.loaded()) return library;
#define TESSERA_TAKE(member, symbol, ...) stream::take(library.file, library.call.member, #symbol, library.missing);
  TESSERA_HIP(TESSERA_TAKE)
  std::string lacks;  // these functions are optional, so missing ones are ignored
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

// The constants of TableApi must be equal to those in api.h, which a test compares with the vendor's header.
static_assert(stream::TableValues::stream_non_blocking == stream_non_blocking &&
              stream::TableValues::event_blocking_sync == event_blocking_sync &&
              stream::TableValues::event_disable_timing == event_disable_timing &&
              stream::TableValues::host_portable == host_malloc_portable &&
              stream::TableValues::function_max_threads_per_block == function_max_threads_per_block);

std::string HipApi::code_text(Code code) const {
  const char *name = call_.error_name(code), *text = call_.error_string(code);
  if (!name) return fmt::format("HIP error ({})", code);
  if (!text || std::string_view(text) == name) return fmt::format("{} ({})", name, code);
  return fmt::format("{} ({}), {}", name, code, text);
}

// HIP identifies a primary context by the number of its device.
Code HipApi::context_of(int ordinal, stream::Context* context) const {
  *context = static_cast<stream::Context>(ordinal);
  int before = 0;
  if (const Code code = call_.current_device(&before)) return code;
  const Code code = call_.set_current_device(ordinal);  // creates the context if it does not exist
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

Code HipApi::allocate(Address* address, std::size_t bytes) const {
  void* raw = nullptr;
  const Code code = call_.allocate(&raw, bytes);
  *address = reinterpret_cast<std::uintptr_t>(raw);
  return code;
}

Code HipApi::enable_peer(int ordinal, int peer_ordinal, stream::Context, bool* can) const {
  int answer = 0;
  if (const Code code = call_.can_access_peer(&answer, ordinal, peer_ordinal)) return code;
  *can = answer != 0;
  if (!*can) return 0;
  const Code code = call_.enable_peer(peer_ordinal, 0);
  return code == stream::peer_already_enabled ? 0 : code;  // other code in this process has already enabled it
}
Code HipApi::copy_from_peer(Address to, int ordinal, stream::Context, Address from, int peer_ordinal, stream::Context,
                            std::size_t bytes, Handle stream) const {
  return call_.copy_from_peer(pointer(to), ordinal, pointer(from), peer_ordinal, bytes, static_cast<Stream>(stream));
}

Code HipApi::load_module(const std::string& image, Handle* module, std::string*) const {
  return call_.load_module(reinterpret_cast<Module*>(module), image.data());
}
Code HipApi::allow_shared(Handle, std::size_t) const { return 0; }  // AMD devices do not require this

Code HipApi::instantiate(Handle graph, Handle* executable) const {
  return call_.instantiate(reinterpret_cast<Executable*>(executable), static_cast<Graph>(graph), nullptr, nullptr, 0);
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
