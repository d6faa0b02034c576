// SPDX-License-Identifier: Apache-2.0
// NCCL and RCCL: the libraries of NVIDIA and AMD that send data directly between GPUs. Both have the same API. They are
// optional and opened at run time. Internal.
// Source: NCCL's documentation and nccl.h, version 2.14 and later.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <type_traits>

#include "tessera/base/os/fork.h"
#include "tessera/device/device.h"
#include "tessera/device/memory/storage.h"
#include "tessera/dist/communicator.h"

namespace tessera::dist {

using NcclCode = int;  ///< ncclResult_t
inline constexpr NcclCode nccl_success = 0, nccl_in_progress = 7;
inline constexpr int nccl_char = 0;

/// ncclUniqueId: identifies a group of ranks.
struct NcclId {
  char bytes[128];
};
/// The fields of ncclConfig_t that version 2.14 has. Later versions use defaults for the others.
struct NcclConfig {
  std::size_t size = sizeof(NcclConfig);
  unsigned magic = 0xcafebeef, version = 21400;
  int blocking = 0;
};

/// The functions that are used: member, symbol, type.
#define TESSERA_NCCL(F)                                                                             \
  F(version, ncclGetVersion, NcclCode(int*))                                                        \
  F(error_text, ncclGetErrorString, const char*(NcclCode))                                          \
  F(last_error, ncclGetLastError, const char*(void*))                                               \
  F(unique_id, ncclGetUniqueId, NcclCode(NcclId*))                                                  \
  F(init, ncclCommInitRankConfig, NcclCode(void**, int, NcclId, int, NcclConfig*))                  \
  F(async_error, ncclCommGetAsyncError, NcclCode(void*, NcclCode*))                                 \
  F(abort, ncclCommAbort, NcclCode(void*))                                                          \
  F(group_start, ncclGroupStart, NcclCode())                                                        \
  F(group_end, ncclGroupEnd, NcclCode())                                                            \
  F(send, ncclSend, NcclCode(const void*, std::size_t, int, int, void* communicator, void* stream)) \
  F(receive, ncclRecv, NcclCode(void*, std::size_t, int, int, void* communicator, void* stream))

/// The library for the GPUs of a backend, or the reason why there is none.
class NcclLibrary {
 public:
  static constexpr int number = 2;  ///< of libraries: NCCL for cuda, RCCL for rocm
  /// Returns a library. The first call opens the file in TESSERA_NCCL_LIBRARY or TESSERA_RCCL_LIBRARY ("none": no
  /// file), otherwise the usual names. Does not throw.
  static const NcclLibrary& get(int index);
  /// Returns the index of the library for the GPUs of a backend; -1: there is none.
  static int index_for(Backend backend);

  int version() const { return version_; }               ///< 22105 for 2.21.5; 0 if there is no library
  const std::string& name() const { return name_; }      ///< "NCCL 2.21.5", or "NCCL" if there is no library
  const std::string& reason() const { return reason_; }  ///< why there is no library
  /// Throws ConnectionError if `code` is an error. `communicator` may be null.
  void check(NcclCode code, const char* function, void* communicator) const;

#define TESSERA_MEMBER(member, symbol, ...) std::add_pointer_t<__VA_ARGS__> member = nullptr;
  struct {
    TESSERA_NCCL(TESSERA_MEMBER)
  } call;
#undef TESSERA_MEMBER

 private:
  explicit NcclLibrary(int index);
  int version_ = 0;
  std::string name_, reason_;
};

/// The ranks of a World, each with one GPU of its own. Used by one thread at a time.
class NcclGroup {
 public:
  /// All ranks must pass the same id, which one of them has created, and queues of devices of one backend. Waits for
  /// all ranks. Throws ConnectionError if the library fails.
  NcclGroup(const NcclLibrary& library, Round& round, const NcclId& id, Queue& queue);
  ~NcclGroup();
  NcclGroup(const NcclGroup&) = delete;
  NcclGroup& operator=(const NcclGroup&) = delete;

  /// The queue on which all work of the group runs.
  Queue& queue() { return queue_; }
  struct Message {
    int peer;
    BufferView data;
  };
  /// Enqueues one message each to and from other ranks. Throws ConnectionError if the library reports an error or
  /// another rank fails. Then call abort().
  void exchange(Round& round, std::span<const Message> out, std::span<const Message> in);
  /// Waits until the queue is empty. Throws like exchange().
  void finish(Round& round);
  /// Ends all messages without waiting for other ranks. Afterwards, the group cannot be used.
  void abort() noexcept;

 private:
  bool in_progress();

  const NcclLibrary& library_;
  Queue& queue_;
  void* communicator_ = nullptr;
  const std::uint32_t generation_ = os::fork_generation();
};

}  // namespace tessera::dist
