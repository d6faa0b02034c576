// SPDX-License-Identifier: Apache-2.0
// How do I find out what is in a GGUF file, and whether it fits into memory?
// GgufFile reads only the metadata, which is enough for estimate_memory(). `tessera inspect FILE` prints everything.
#include <tessera/llm/estimate.h>
#include <tessera/llm/gguf.h>

#include <cstdio>

using namespace tessera;

int main(int argc, char** argv) {
  const auto file =
      GgufFile::open(argc > 1 ? argv[1] : "models/pgdocs-2m-q8_0.gguf");  // relative to the top of the repository
  const auto architecture = file.get<std::string>("general.architecture");
  std::printf("%s, %lld layers, %zu tensors\n", architecture.c_str(),
              static_cast<long long>(file.get<std::int64_t>(architecture + ".block_count")), file.tensors().size());
  const GgufTensor& embedding = file.tensor("token_embd.weight");
  std::printf("%s: %llu x %llu\n", embedding.name.c_str(), static_cast<unsigned long long>(embedding.dims[1]),
              static_cast<unsigned long long>(embedding.dims[0]));  // dims[0] is the length of a row

  const std::vector<Device> devices{current_device()};
  const ModelMemory memory = estimate_memory(file, devices, {.context = 512});
  for (const DeviceMemory& d : memory.devices)
    std::printf("weights %llu KiB, keys and values %llu KiB: %s\n", static_cast<unsigned long long>(d.weights >> 10),
                static_cast<unsigned long long>(d.cache >> 10), d.fits() ? "fits" : "does not fit");
  const std::int64_t context = largest_context(file, devices);
  std::printf("longest context: %lld tokens\n", static_cast<long long>(context));
  return memory.fits() && context == file.get<std::int64_t>(architecture + ".context_length") ? 0 : 1;
}

// Output:
// llama, 5 layers, 47 tensors
// token_embd.weight: 2048 x 192
// weights ... KiB, keys and values 640 KiB: fits
// longest context: 1024 tokens
