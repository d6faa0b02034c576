// SPDX-License-Identifier: Apache-2.0
// Versions, statuses and strings of the C interface.
#include "tessera/c/status.h"

#include <cstdlib>

namespace tessera::c {

namespace {
std::string& last_error() {
  thread_local std::string text;
  return text;
}

tessera_status store(tessera_status status, const char* text) noexcept {
  try {
    last_error() = text;
  } catch (...) {  // there is no memory for the message
    last_error().clear();
  }
  return status;
}
}  // namespace

tessera_status status_of_exception() noexcept {
  try {
    throw;
  } catch (const DeviceLost& e) {
    return store(TESSERA_DEVICE_LOST, e.what());
  } catch (const DeviceError& e) {
    return store(TESSERA_DEVICE_ERROR, e.what());
  } catch (const ShapeError& e) {
    return store(TESSERA_SHAPE_ERROR, e.what());
  } catch (const DtypeError& e) {
    return store(TESSERA_DTYPE_ERROR, e.what());
  } catch (const OutOfMemory& e) {
    return store(TESSERA_OUT_OF_MEMORY, e.what());
  } catch (const KernelError& e) {
    return store(TESSERA_KERNEL_ERROR, e.what());
  } catch (const FormatError& e) {
    return store(TESSERA_FORMAT_ERROR, e.what());
  } catch (const ArgumentError& e) {
    return store(TESSERA_ARGUMENT_ERROR, e.what());
  } catch (const std::bad_alloc&) {
    return store(TESSERA_OUT_OF_MEMORY, "the host's memory is exhausted");
  } catch (const std::exception& e) {
    return store(TESSERA_ERROR, e.what());
  } catch (...) {
    return store(TESSERA_ERROR, "an exception of unknown type was thrown");
  }
}

char* text_copy(const std::string& text) {
  char* const out = static_cast<char*>(std::malloc(text.size() + 1));
  if (out == nullptr) throw std::bad_alloc();
  std::memcpy(out, text.c_str(), text.size() + 1);
  return out;
}

}  // namespace tessera::c

using namespace tessera::c;

extern "C" {

uint32_t tessera_abi_version(void) { return TESSERA_ABI_VERSION; }
const char* tessera_version(void) { return TESSERA_VERSION; }
const char* tessera_last_error(void) { return last_error().c_str(); }
const char* tessera_status_name(tessera_status status) {
  switch (status) {
    case TESSERA_OK: return "ok";
    case TESSERA_ERROR: return "error";
    case TESSERA_DEVICE_ERROR: return "device error";
    case TESSERA_DEVICE_LOST: return "device lost";
    case TESSERA_SHAPE_ERROR: return "shape error";
    case TESSERA_DTYPE_ERROR: return "dtype error";
    case TESSERA_OUT_OF_MEMORY: return "out of memory";
    case TESSERA_KERNEL_ERROR: return "kernel error";
    case TESSERA_FORMAT_ERROR: return "format error";
    case TESSERA_ARGUMENT_ERROR: return "argument error";
  }
  return "unknown status";
}
void tessera_string_free(char* text) { std::free(text); }

}  // extern "C"
