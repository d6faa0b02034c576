// SPDX-License-Identifier: Apache-2.0
// A wrapper around the fake libcuda, with which it is linked, that misbehaves in one way. TESSERA_HOSTILE_CUDA selects
// an act of hostile.h at one of the places ctor, init, ctx and dtor, or one of these modes:
//
//   ctx_2, ctx_46, ctx_999            contexts cannot be created: out of memory, device unavailable, unknown error
//   no_device, many_devices, negative_count            wrong numbers of devices
//   zero_attributes, negative_attributes               wrong values of all attributes
//   no_name, unterminated_name, latin1, escapes        wrong names
#include <dlfcn.h>

#include <algorithm>
#include <cstdio>

#include "tests/drivers/hostile/hostile.h"

namespace {

namespace hostile = tessera::hostile;
using Code = int;

const hostile::Mode& mode() {
  static const auto* const the_mode = new hostile::Mode("TESSERA_HOSTILE_CUDA");
  return *the_mode;
}
template <class F>
F* real(const char* name) {
  return reinterpret_cast<F*>(::dlsym(RTLD_NEXT, name));
}

__attribute__((constructor)) void loaded() { hostile::perform(mode().act_at("ctor")); }
__attribute__((destructor)) void unloaded() { hostile::perform(mode().act_at("dtor")); }

}  // namespace

#define EXPORT extern "C" __attribute__((visibility("default")))

EXPORT Code cuInit(unsigned flags) {
  hostile::perform(mode().act_at("init"));
  return real<Code(unsigned)>("cuInit")(flags);
}
EXPORT Code cuDeviceGetCount(int* count) {
  const Code code = real<Code(int*)>("cuDeviceGetCount")(count);
  if (mode().is("no_device")) *count = 0;
  if (mode().is("negative_count")) *count = -3;
  return code;
}
EXPORT Code cuDeviceGetName(char* name, int bytes, int device) {
  const Code code = real<Code(char*, int, int)>("cuDeviceGetName")(name, bytes, device);
  const auto say = [&](const char* text) { std::snprintf(name, static_cast<std::size_t>(bytes), "%s", text); };
  if (mode().is("no_name")) say("");
  if (mode().is("unterminated_name")) std::fill_n(name, bytes, 'x');
  if (mode().is("latin1")) say("GeForce\xae 770");
  if (mode().is("escapes")) say("Hostile\x1b]0;taken\x07\x1b[2J\nnew line\r\x9b");
  return code;
}
EXPORT Code cuDeviceGetAttribute(int* value, int attribute, int device) {
  const Code code = real<Code(int*, int, int)>("cuDeviceGetAttribute")(value, attribute, device);
  if (mode().is("zero_attributes")) *value = 0;
  if (mode().is("negative_attributes")) *value = -7;
  return code;
}
EXPORT Code cuDevicePrimaryCtxRetain(void** context, int device) {
  for (const auto& [name, code] : {std::pair("ctx_2", 2), std::pair("ctx_46", 46), std::pair("ctx_999", 999)})
    if (mode().is(name)) return code;
  hostile::perform(mode().act_at("ctx"));
  return real<Code(void**, int)>("cuDevicePrimaryCtxRetain")(context, device);
}
