// SPDX-License-Identifier: Apache-2.0
// What makes binaries for Intel's GPUs: libocloc, which needs no GPU, or the OpenCL driver of the same card, which
// compiles for that card only. Used within this folder and by its tests.
#pragma once

#include <string>
#include <vector>

#include "tessera/backend/oneapi/api.h"
#include "tessera/backend/stream/api.h"
#include "tessera/base/os/library.h"

namespace tessera::oneapi {

/// Where libocloc is looked for.
std::vector<std::string> ocloc_candidates();

class Ocloc {
 public:
  /// Opens the file that TESSERA_OCLOC_LIBRARY names, else the first of the usual names and folders that loads. Does
  /// not throw.
  static Ocloc open();
  bool usable() const { return library_.loaded() && missing_.empty(); }
  const std::string& reason() const { return reason_; }  ///< why it is not usable
  const std::string& file() const { return library_.file(); }

  struct Result {
    stream::Image image;
    bool knows_device = true;
  };
  /// `device`: a PCI device id ("0x56a0"), or one of ocloc's names ("dg2", "12.55.8"); several are one archive.
  Result compile(const std::string& text, const std::string& device, const std::string& options) const;

 private:
  os::Library library_;
  std::string missing_, reason_;
  OclocFunctions call_;
};

/// Intel's OpenCL driver as a compiler: the devices with their identities, found when first asked for.
class OpenclCompiler {
 public:
  /// Opens the loader that TESSERA_OPENCL_LIBRARY names, else Intel's own driver, and no other platform's: by its table
  /// of functions (cl_khr_icd). Does not throw.
  static OpenclCompiler open();
  static std::vector<std::string> candidates();          ///< the libraries it may be
  const std::string& reason() const { return reason_; }  ///< why there is no device
  /// Whether it shows the card of one of these: "pci:...", "uuid:...".
  bool knows(const std::string& pci, const std::string& uuid) { return find(pci, uuid) != nullptr; }
  /// For a card that it knows.
  stream::Image compile(const std::string& text, const std::string& pci, const std::string& uuid,
                        const std::string& options);

 private:
  struct Card {
    void* device = nullptr;
    std::string pci, uuid;
    void* context = nullptr;  ///< made for the first program, never released
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

/// Options of OpenCL C with which every kernel is compiled. Buffers past 4 GiB cost address arithmetic on some cards.
std::string compile_options(bool large_buffers, bool rounded_divide_sqrt);

}  // namespace tessera::oneapi
