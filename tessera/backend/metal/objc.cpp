// SPDX-License-Identifier: Apache-2.0
#include "tessera/backend/metal/objc.h"

#include "tessera/backend/stream/library.h"

namespace tessera::metal {

std::vector<std::string> metal_files() {
  if (std::string named = stream::library_from_variable("TESSERA_METAL_LIBRARY"); !named.empty())
    return {std::move(named)};
  return {"/System/Library/Frameworks/Metal.framework/Metal"};
}

Runtime open_runtime() {
  Runtime r;
  r.metal = os::Library::open(metal_files());
  if (!r.metal.loaded()) return r;
  r.objc = stream::library_from_variable("TESSERA_METAL_LIBRARY").empty()
               ? os::Library::open("/usr/lib/libobjc.A.dylib")
               : r.metal;
  if (!r.objc.loaded()) return r;
  stream::take(r.objc, r.get_class, "objc_getClass", r.missing);
  stream::take(r.objc, r.register_name, "sel_registerName", r.missing);
  stream::take(r.objc, r.message, "objc_msgSend", r.missing);
  stream::take(r.objc, r.push_pool, "objc_autoreleasePoolPush", r.missing);
  stream::take(r.objc, r.pop_pool, "objc_autoreleasePoolPop", r.missing);
  stream::take(r.metal, r.copy_all_devices, "MTLCopyAllDevices", r.missing);
  if (!r.missing.empty()) return r;
#define TESSERA_METAL_REGISTER(name, text) r.selectors.name = r.register_name(text);
  TESSERA_METAL_MESSAGES(TESSERA_METAL_REGISTER)
#undef TESSERA_METAL_REGISTER
  return r;
}

}  // namespace tessera::metal
