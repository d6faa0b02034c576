// SPDX-License-Identifier: Apache-2.0
#include "tessera/backend/common/image.h"

#include <fmt/format.h>

#include "tessera/backend/common/program.h"
#include "tessera/base/os/library.h"
#include "tessera/base/packed.h"

namespace tessera::backend {

std::string lowering_key() {
  // Never destroyed: kernels may be compiled until the process exits.
  static const auto& key = *new std::string(fmt::format("lowering: {}, build {}\n", emit::lowering_version,
                                                        os::build_id(reinterpret_cast<const void*>(&emit::lower))));
  return key;
}

std::string text_key(const emit::Dialect& dialect, const DeviceInfo& info) {
  return fmt::format("{}language: {}\nlimits: {}\n", lowering_key(), emit::text_of(dialect),
                     emit::text_of(target_for(dialect, info.can, {})));
}

std::string pack(const KernelImage& image) {
  const emit::EmittedKernel& form = image.form;
  Packer out;
  out << form.entry << std::uint64_t{form.arguments.size()};
  for (const emit::KernelArgument& a : form.arguments)
    out << static_cast<std::uint8_t>(a.kind) << a.number << static_cast<std::uint8_t>(a.dtype);
  for (const bool guarded : form.dimensions) out << guarded;
  out << form.flat << std::uint64_t{form.dynamic_shared_bytes} << image.is_text << image.program << image.ptx;
  return out.take();
}

KernelImage unpack(std::string_view bytes) {
  KernelImage image;
  Unpacker in(bytes);
  image.form.entry = in.text();
  for (auto arguments = in.take<std::uint64_t>(); arguments > 0; --arguments) {
    const auto kind = static_cast<emit::KernelArgument::Kind>(in.take<std::uint8_t>());
    const auto number = in.take<std::uint32_t>();
    image.form.arguments.push_back({kind, number, static_cast<DType>(in.take<std::uint8_t>())});
  }
  for (bool& guarded : image.form.dimensions) guarded = in.take<bool>();
  image.form.flat = in.take<bool>();
  image.form.dynamic_shared_bytes = in.take<std::uint64_t>();
  image.is_text = in.take<bool>();
  image.program = in.text();
  image.ptx = in.text();
  in.end();
  return image;
}

}  // namespace tessera::backend
