// SPDX-License-Identifier: Apache-2.0
// Compilers for Intel GPUs. libocloc needs no GPU. The OpenCL driver of a card compiles only for that card. Used only
// in this folder and its tests.
#pragma once

#include <string>
#include <vector>

#include "tessera/backend/oneapi/api.h"
#include "tessera/backend/stream/api.h"
#include "tessera/base/os/library.h"

namespace tessera::oneapi {

/// Returns the files to try for libocloc.
std::vector<std::string> ocloc_candidates();

class Ocloc {
 public:
  /// Opens the file in TESSERA_OCLOC_LIBRARY if it is set, otherwise the first of the usual files that loads. Does not
  /// throw.
  static Ocloc open();
  bool usable() const { return library_.loaded() && missing_.empty(); }
  const std::string& reason() const { return reason_; }  ///< why the compiler is not usable
  const std::string& file() const { return library_.file(); }

  struct Result {
    stream::Image image;
    bool knows_device = true;
  };
  /// Compiles `text` for a device. `device` is a PCI device id ("0x56a0") or a name that ocloc knows ("dg2",
  /// "12.55.8"). If it contains several names, the image is an archive for all of them.
  Result compile(const std::string& text, const std::string& device, const std::string& options) const;

 private:
  os::Library library_;
  std::string missing_, reason_;
  OclocFunctions call_;
};

/// Compiles with Intel's OpenCL driver. Its devices are enumerated on first use.
class OpenclCompiler {
 public:
  /// Opens the OpenCL loader in TESSERA_OPENCL_LIBRARY if it is set. Otherwise opens Intel's driver directly and calls
  /// it through its dispatch table (cl_khr_icd), so that the drivers of other platforms are not loaded. Does not throw.
  static OpenclCompiler open();
  static std::vector<std::string> candidates();          ///< returns the libraries to try
  const std::string& reason() const { return reason_; }  ///< why there is no device
  /// Returns true if the driver has a card with this PCI address ("pci:...") or UUID ("uuid:...").
  bool knows(const std::string& pci, const std::string& uuid) { return find(pci, uuid) != nullptr; }
  /// Compiles `text` for a card for which knows() returned true.
  stream::Image compile(const std::string& text, const std::string& pci, const std::string& uuid,
                        const std::string& options);

 private:
  struct Card {
    void* device = nullptr;
    std::string pci, uuid;
    void* context = nullptr;  ///< created by the first compilation and never released
  };
  Card* find(const std::string& pci, const std::string& uuid);
  void take_by_name();
  void take_by_table();
  void find_devices();
  os::Library library_;
  std::string missing_, reason_;
  ClFunctions call_;
  std::vector<Card> cards_;
};

/// Returns the OpenCL C options that are used for all kernels. Support for buffers larger than 4 GiB makes address
/// arithmetic slower on some cards.
std::string compile_options(bool large_buffers, bool rounded_divide_sqrt);

}  // namespace tessera::oneapi
