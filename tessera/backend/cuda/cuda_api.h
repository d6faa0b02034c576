// SPDX-License-Identifier: Apache-2.0
// Opens the driver library and implements stream::Api with its functions. Used only in this folder.
#pragma once

#include <string>
#include <vector>

#include "tessera/backend/cuda/api.h"
#include "tessera/backend/stream/table_api.h"
#include "tessera/base/os/library.h"

namespace tessera::cuda {

struct DriverLibrary {
  os::Library file;
  std::string missing;  ///< name of a required function that the library lacks
  DriverFunctions call;
  bool usable() const { return file.loaded() && missing.empty(); }
};
/// Returns the driver files to try: the file in TESSERA_CUDA_LIBRARY if it is set, otherwise the usual ones.
std::vector<std::string> driver_candidates();
/// Opens the first candidate that can be loaded.
DriverLibrary open_driver();

class CudaApi final : public stream::TableApi<DriverFunctions> {
 public:
  using TableApi::TableApi;

  std::string code_text(Code code) const override;
  Code context_of(int ordinal, stream::Context* context) const override;
  Code current(stream::Context* context) const override;
  Code set_current(stream::Context context) const override;
  Code allocate(stream::Address* address, std::size_t bytes) const override;
  Code enable_peer(int ordinal, int peer_ordinal, stream::Context peer, bool* can) const override;
  Code copy_from_peer(stream::Address to, int ordinal, stream::Context context, stream::Address from, int peer_ordinal,
                      stream::Context peer, std::size_t bytes, stream::Handle stream) const override;
  Code load_module(const std::string& image, stream::Handle* module, std::string* log) const override;
  bool link(const std::string& ptx, std::string* machine_code) const override;
  Code allow_shared(stream::Handle function, std::size_t bytes) const override;
  Code instantiate(stream::Handle graph, stream::Handle* executable) const override;
  Code set_kernel_node(stream::Handle executable, stream::Handle node, stream::Handle function,
                       const backend::Grid& grid, unsigned shared_bytes,
                       std::span<backend::BoundArgument> arguments) const override;
};

}  // namespace tessera::cuda
