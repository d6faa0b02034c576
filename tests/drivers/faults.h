// SPDX-License-Identifier: Apache-2.0
// How a fake machine is made and how it is told to fail, by environment variables.
//
//   TESSERA_FAKE_DEVICES=n      devices (default 1); "1,cuda=3": three of the library whose file name holds "fake_cuda"
//   TESSERA_FAKE_MEMORY=bytes   of each device (default 1 GiB)
//   TESSERA_FAKE_DELAY_US=n     most that a piece of queued work waits before it runs (default 100)
//   TESSERA_FAKE_KERNEL_US=list what a kernel takes on each device in turn, at least, with commas between (default 0):
//   a
//                               device with such a time runs one kernel after the other, whatever their streams
//   TESSERA_FAKE_SEED=n         of those delays
//   TESSERA_FAKE_LEAKS=1        handles and memory that are left at exit are breaches
//   TESSERA_FAKE_BREACHES=file  breaches are appended there too
//   TESSERA_FAKE_RUN=text       kernels are run from their emitted text, compiled for the host (text/compile.h),
//   instead of
//                               by the interpreter; CUDA and HIP
//   TESSERA_FAKE_WARP=n         threads of a subgroup (CUDA, HIP and Metal)
//   TESSERA_FAKE_ONLY=name      the faults are of the library whose file name holds this; the other fakes work
//   TESSERA_FAKE_FAULT=list     with commas between: NAME[=n[+]][:code][@device]
//
//   init:code      the first call answers this          crash-init, hang-init   it crashes, or never returns
//   segv-init      it is told that memory was touched   exit-init[:code]        it ends the process
//   print-init     it prints on standard output        slow-init[:ms]          it takes its time
//   kill-init      it is killed
//   no-devices     there is none                        context[:code]          no context can be made
//   oom=n          the n-th allocation fails; n+: and all later ones            host-oom=n  of pinned memory
//   launch=n       the n-th launch is refused (701, or :code)
//   instantiate[:code]  no graph can be instantiated (2)   graph-launch=n  the n-th launch of a graph is refused (1)
//   no-graphs      a stream cannot be captured (801)
//   lost=n         the n-th operation fails, and everything after it (700, or :code)
//   late=n         the n-th operation fails when it runs, and only calls that wait tell
//   wrong          kernels compute wrongly             wrong=n                 the n-th launch does, n+: all from it on
//   compile        the compiler refuses every program  cubin:code              binaries are refused (209, or :code)
//   driver=n       the driver's version (12040)         compiler=n              the compiler's (12040)
//   hip-major=n    HIP's major version (6)              threads=n               most threads of a block of any function
//   ze-api=n       Level Zero's version (104: 1.4)      no-target               ocloc knows none of the devices
//   blas=n         the n-th product of a library is refused (14, or :code), n+: and all later ones; likewise
//   blas-choose=n  the n-th choice of an algorithm    blas-create[:code]      the library does not start
//   blas-none      the library does no product
//   no-peers       no device reaches another's memory  peer[:code]             access to it is refused (711)
//   peer-empty     a copy from another device reports success and moves nothing, as behind some IOMMUs
//   reversed       devices are listed last first (Metal)
//   ze-drivers=n   Level Zero's devices in turn are of n drivers
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
  std::vector<std::uint32_t> kernel_us;  ///< of each device in turn
  std::uint64_t seed = 1;
  bool leaks = false;
  std::uint32_t warp = 0;  ///< 0: as the device has it
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
  /// From TESSERA_FAKE_FAULT; a list that cannot be read ends the process with a sentence: a test asked for nothing.
  static Faults from_environment();
  /// The fault of this name if it is asked for on this device (-1: on any).
  const Fault* find(const std::string& name, int device = -1) const;
  /// Whether it strikes the `count`-th time, counted from 1; its code, or `code` if it names none. 0: it does not.
  int strikes(const std::string& name, std::uint64_t count, int code, int device = -1) const;

 private:
  std::vector<Fault> faults_;
};

}  // namespace tessera::fake
