// SPDX-License-Identifier: Apache-2.0
// The driver library, opened and looked through, and its functions as the shared implementation calls them.
// Used within this folder only.
#pragma once

#include <string>
#include <vector>

#include "tessera/backend/cuda/api.h"
#include "tessera/backend/stream/api.h"
#include "tessera/base/os/library.h"

namespace tessera::cuda {

struct DriverLibrary {
  os::Library file;
  std::string missing;  ///< a function that it lacks
  DriverFunctions call;
  bool usable() const { return file.loaded() && missing.empty(); }
};
/// The file that TESSERA_CUDA_LIBRARY names, else the usual ones.
std::vector<std::string> driver_candidates();
/// The first of these that loads.
DriverLibrary open_driver();

class CudaApi final : public stream::Api {
 public:
  explicit CudaApi(const DriverFunctions& call) : call_(call) {}

  std::string code_text(Code code) const override;
  Code context_of(int ordinal, stream::Context* context) const override;
  Code current(stream::Context* context) const override;
  Code set_current(stream::Context context) const override;
  Code memory_info(std::size_t* free, std::size_t* total) const override;
  Code allocate(stream::Address* address, std::size_t bytes) const override;
  Code release(stream::Address address) const override;
  Code allocate_pinned(void** host, std::size_t bytes) const override;
  Code release_pinned(void* host) const override;
  Code create_stream(stream::Handle* stream) const override;
  Code destroy_stream(stream::Handle stream) const override;
  Code synchronize_stream(stream::Handle stream) const override;
  Code stream_wait_event(stream::Handle stream, stream::Handle event) const override;
  Code create_event(stream::Handle* event) const override;
  Code record_event(stream::Handle event, stream::Handle stream) const override;
  Code query_event(stream::Handle event) const override;
  Code synchronize_event(stream::Handle event) const override;
  Code destroy_event(stream::Handle event) const override;
  Code copy_to_device(stream::Address to, const void* from, std::size_t bytes, stream::Handle stream) const override;
  Code copy_to_host(void* to, stream::Address from, std::size_t bytes, stream::Handle stream) const override;
  Code copy_on_device(stream::Address to, stream::Address from, std::size_t bytes,
                      stream::Handle stream) const override;
  Code fill(stream::Address to, std::uint32_t word, unsigned word_bytes, std::size_t count,
            stream::Handle stream) const override;
  Code load_module(const std::string& image, stream::Handle* module, std::string* log) const override;
  Code unload_module(stream::Handle module) const override;
  Code get_function(stream::Handle module, const char* entry, stream::Handle* function) const override;
  Code largest_block(stream::Handle function, int* threads) const override;
  Code allow_shared(stream::Handle function, std::size_t bytes) const override;
  Code launch(stream::Handle function, const backend::Grid& grid, unsigned shared_bytes, stream::Handle stream,
              std::span<backend::BoundArgument> arguments) const override;
  bool graphs() const override { return call_.graphs; }
  Code begin_capture(stream::Handle stream) const override;
  Code end_capture(stream::Handle stream, stream::Handle* graph) const override;
  Code newest_node(stream::Handle stream, stream::Handle* node) const override;
  Code instantiate(stream::Handle graph, stream::Handle* executable) const override;
  Code destroy_graph(stream::Handle graph) const override;
  Code destroy_executable(stream::Handle executable) const override;
  Code launch_graph(stream::Handle executable, stream::Handle stream) const override;
  Code set_kernel_node(stream::Handle executable, stream::Handle node, stream::Handle function,
                       const backend::Grid& grid, unsigned shared_bytes,
                       std::span<backend::BoundArgument> arguments) const override;

 private:
  DriverFunctions call_;
};

}  // namespace tessera::cuda
