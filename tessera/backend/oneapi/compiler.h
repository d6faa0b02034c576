// SPDX-License-Identifier: Apache-2.0
// Compilers for Intel GPUs: libocloc, which needs no GPU, or the card's OpenCL driver, which compiles for that card
// only. Used within this folder and by its tests.
#pragma once

#include <string>
#include <vector>

#include "tessera/backend/oneapi/api.h"
#include "tessera/backend/stream/api.h"
#include "tessera/base/os/library.h"

namespace tessera::oneapi {

/// The files tried for libocloc.
std::vector<std::string> ocloc_candidates();

class Ocloc {
 public:
  /// Opens the file in TESSERA_OCLOC_LIBRARY, otherwise the first of the usual names and folders that loads. Does not
  /// throw.
  static Ocloc open();
  bool usable() const { return library_.loaded() && missing_.empty(); }
  const std::string& reason() const { return reason_; }  ///< why it is not usable
  const std::string& file() const { return library_.file(); }

  struct Result {
    stream::Image image;
    bool knows_device = true;
  };
  /// `device`: a PCI device id ("0x56a0"), or one of ocloc's names ("dg2", "12.55.8"); several names produce one
  /// archive.
  Result compile(const std::string& text, const std::string& device, const std::string& options) const;

 private:
  os::Library library_;
  std::string missing_, reason_;
  OclocFunctions call_;
};

/// Intel's OpenCL driver as a compiler: its devices with their identities, enumerated on first use.
class OpenclCompiler {
 public:
  /// Opens the loader in TESSERA_OPENCL_LIBRARY, otherwise Intel's own driver through its dispatch table (cl_khr_icd),
  /// so that no other platform is loaded. Does not throw.
  static OpenclCompiler open();
  static std::vector<std::string> candidates();          ///< the libraries tried
  const std::string& reason() const { return reason_; }  ///< why there is no device
  /// Whether the driver has a card with one of these identities: "pci:...", "uuid:...".
  bool knows(const std::string& pci, const std::string& uuid) { return find(pci, uuid) != nullptr; }
  /// Compiles for a card for which knows() returned true.
  stream::Image compile(const std::string& text, const std::string& pci, const std::string& uuid,
                        const std::string& options);

 private:
  struct Card {
    void* device = nullptr;
    std::string pci, uuid;
    void* context = nullptr;  ///< created for the first program, never released
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

/// OpenCL C options for all kernels. Buffers larger than 4 GiB cost address arithmetic on some cards.
std::string compile_options(bool large_buffers, bool rounded_divide_sqrt);

}  // namespace tessera::oneapi
