// SPDX-License-Identifier: Apache-2.0
// Environment variables that configure a fake machine and inject faults.
//
//   TESSERA_FAKE_DEVICES=n      number of devices (default 1); "1,cuda=3": 3 in libraries whose file name contains
//                               "fake_cuda", 1 in others
//   TESSERA_FAKE_MEMORY=bytes   memory of each device (default 1 GiB)
//   TESSERA_FAKE_DELAY_US=n     maximum random delay before a queued command runs (default 100)
//   TESSERA_FAKE_KERNEL_US=list minimum duration of a kernel on each device, separated by commas (default 0); if there
//                               are more devices, the list is repeated. A device with a duration runs one kernel at a
//                               time, even on different streams
//   TESSERA_FAKE_SEED=n         seed of the random delays
//   TESSERA_FAKE_LEAKS=1        reports handles and memory that are not released at exit
//   TESSERA_FAKE_BREACHES=file  also appends rule violations to this file
//   TESSERA_FAKE_RUN=text       runs kernels from their emitted text, compiled for the host (text/compile.h), instead
//                               of in the interpreter; CUDA and HIP
//   TESSERA_FAKE_WARP=n         threads per subgroup (CUDA, HIP and Metal)
//   TESSERA_FAKE_ONLY=name      injects faults only in the library whose file name contains this name
//   TESSERA_FAKE_FAULT=list     faults, separated by commas: NAME[=n[+]][:code][@device]. n+ also fails
//                               all calls after the n-th call
//
//   init:code      the first call returns this code     crash-init, hang-init   the first call crashes or hangs
//   segv-init      the first call raises SIGSEGV        exit-init[:code]        the first call exits the process
//   print-init     it prints to standard output         slow-init[:ms]          it is slow
//   kill-init      it kills the process
//   no-devices     there are no devices                 context[:code]          contexts cannot be created
//   oom=n[+]       the n-th allocation fails            host-oom=n[+]  the n-th allocation of pinned memory fails
//   launch=n       the n-th launch is rejected (701, or :code)
//   instantiate[:code]  graphs cannot be instantiated (2)  graph-launch=n  the n-th graph launch is rejected (1)
//   no-graphs      streams cannot be captured (801)
//   lost=n         the n-th operation and all later ones fail (700, or :code)
//   late=n         the n-th operation fails when it runs, and only calls that wait report it
//   wrong          kernels compute wrong results        wrong=n[+]   only the n-th launch computes wrong results
//   compile        the compiler rejects all programs    cubin:code   binaries are rejected (209, or :code)
//   driver=n       version of the driver (12040)        compiler=n   version of the compiler (12040)
//   hip-major=n    major version of HIP (6)             threads=n    maximum block size of all functions
//   ze-api=n       version of Level Zero (104: 1.4)     no-target    ocloc supports none of the devices
//   blas=n[+]      the n-th product of a library is rejected (14, or :code)
//   blas-choose=n  the n-th choice of an algorithm fails   blas-create[:code]   the library cannot be initialised
//   blas-none      the library supports no product
//   blas-capture   it fails in a capture and invalidates it; blas-capture:code fails without invalidating it
//   nccl=n[+]      the n-th group of messages of each rank is rejected (3, or :code)
//   nccl-late=n[+] the n-th group of messages of each rank is accepted but never sent, and fails later (6, or :code)
//   nccl-init[:code]  ranks cannot be joined in a group (2)
//   no-peers       devices cannot access each other     peer[:code]             enabling peer access fails (711)
//   peer-empty     copies from another device succeed but copy nothing, as with some IOMMUs
//   reversed       devices are listed in reverse order (Metal)
//   ze-drivers=n   the devices of Level Zero are distributed round-robin among n drivers
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
  std::vector<std::uint32_t> kernel_us;  ///< per device; the list is repeated if there are more devices
  std::uint64_t seed = 1;
  bool leaks = false;
  std::uint32_t warp = 0;  ///< 0: the width of the device
  std::string breaches;
  static Settings from_environment();
};

/// Returns true if kernels are run from their text.
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
  /// Reads TESSERA_FAKE_FAULT. Prints an error and exits if it is malformed, because the test would then run without
  /// the fault.
  static Faults from_environment();
  /// Returns the fault with this name if it is set for this device (-1: any device), or null.
  const Fault* find(const std::string& name, int device = -1) const;
  /// Returns the code of the fault if it occurs at call number `count`, which starts at 1, or `code` if the fault has
  /// no code. Returns 0 if the fault does not occur.
  int strikes(const std::string& name, std::uint64_t count, int code, int device = -1) const;

 private:
  std::vector<Fault> faults_;
};

}  // namespace tessera::fake
