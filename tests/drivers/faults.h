// SPDX-License-Identifier: Apache-2.0
// Environment variables that configure a fake machine and make it fail.
//
//   TESSERA_FAKE_DEVICES=n      devices (default 1); "1,cuda=3": 3 for libraries whose file name contains "fake_cuda"
//   TESSERA_FAKE_MEMORY=bytes   per device (default 1 GiB)
//   TESSERA_FAKE_DELAY_US=n     maximum random delay before a piece of queued work runs (default 100)
//   TESSERA_FAKE_KERNEL_US=list minimum duration of a kernel on each device, comma-separated and repeated (default 0);
//                               a device with a duration runs its kernels one at a time, on whichever streams
//   TESSERA_FAKE_SEED=n         seed of the random delays
//   TESSERA_FAKE_LEAKS=1        handles and memory left at exit are breaches
//   TESSERA_FAKE_BREACHES=file  also append breaches to this file
//   TESSERA_FAKE_RUN=text       run kernels from their emitted text, compiled for the host (text/compile.h), instead
//                               of in the interpreter; CUDA and HIP
//   TESSERA_FAKE_WARP=n         threads per subgroup (CUDA, HIP and Metal)
//   TESSERA_FAKE_ONLY=name      faults apply only to the library whose file name contains this
//   TESSERA_FAKE_FAULT=list     comma-separated faults: NAME[=n[+]][:code][@device]
//
//   init:code      the first call returns this code     crash-init, hang-init   the first call crashes or hangs
//   segv-init      the first call gets SIGSEGV          exit-init[:code]        the first call exits the process
//   print-init     it prints on standard output         slow-init[:ms]          it is slow
//   kill-init      it is killed
//   no-devices     no devices                           context[:code]          no context can be created
//   oom=n          the n-th allocation fails; n+: and all later ones            host-oom=n  of pinned memory
//   launch=n       the n-th launch is rejected (701, or :code)
//   instantiate[:code]  no graph can be instantiated (2)   graph-launch=n  the n-th graph launch is rejected (1)
//   no-graphs      streams cannot be captured (801)
//   lost=n         the n-th operation and everything after it fails (700, or :code)
//   late=n         the n-th operation fails when it runs, and only calls that wait report it
//   wrong          kernels compute wrong results        wrong=n      only the n-th launch; n+: all from it on
//   compile        the compiler rejects every program   cubin:code   binaries are rejected (209, or :code)
//   driver=n       the driver's version (12040)         compiler=n   the compiler's version (12040)
//   hip-major=n    HIP's major version (6)              threads=n    every function's maximum block size
//   ze-api=n       Level Zero's version (104: 1.4)      no-target    ocloc supports none of the devices
//   blas=n         a library's n-th product is rejected (14, or :code), n+: and all later ones; the same for
//   blas-choose=n  the n-th algorithm selection         blas-create[:code]      the library does not start
//   blas-none      the library supports no product
//   no-peers       devices cannot access each other     peer[:code]             enabling peer access fails (711)
//   peer-empty     a copy from another device reports success and moves nothing, as behind some IOMMUs
//   reversed       devices are listed in reverse order (Metal)
//   ze-drivers=n   Level Zero's devices belong to n drivers in turn
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace tessera::fake {

struct Settings {
  int devices = 1;
  std::uint64_t memory = std::uint64_t{1} << 30;
  std::uint32_t delay_us = 100;
  std::vector<std::uint32_t> kernel_us;  ///< per device, repeated
  std::uint64_t seed = 1;
  bool leaks = false;
  std::uint32_t warp = 0;  ///< 0: the device's own width
  std::string breaches;
  static Settings from_environment();
};

/// Whether kernels are run from their text.
bool run_text();

struct Fault {
  std::string name;
  std::uint64_t number = 0;
  bool onward = false;
  std::optional<int> code;
  std::optional<int> device;
};

class Faults {
 public:
  /// Reads TESSERA_FAKE_FAULT. Prints an error and exits if it is malformed, because a test would otherwise test
  /// nothing.
  static Faults from_environment();
  /// The fault of this name if it is set for this device (-1: any device).
  const Fault* find(const std::string& name, int device = -1) const;
  /// Whether the fault occurs at call number `count`, from 1. Returns its code, or `code` if it has none; 0: it does
  /// not.
  int strikes(const std::string& name, std::uint64_t count, int code, int device = -1) const;

 private:
  std::vector<Fault> faults_;
};

}  // namespace tessera::fake
