// SPDX-License-Identifier: Apache-2.0
// A library for LD_PRELOAD that makes a system call fail. The call does nothing and sets errno. Alternatively,
// write() writes half of its data, and the next write fails because the disk is full.
//
//   TESSERA_FAIL="write 3 28"   the third write fails with error 28; with 0, it writes half of the data
//   TESSERA_FAIL_IN=folder      counts all mmaps, but other calls only for files below this folder
//   TESSERA_FAIL_STRUCK=file    this file is created when a call has failed
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace {

/// Read from the environment once. There are no static objects, because mmap is called before they are constructed.
struct Plan {
  char call[16] = "";
  int number = 0, error = 0;
  const char *folder = nullptr, *struck = nullptr;
};
const Plan& plan() {
  static Plan the_plan;
  static std::atomic<bool> read = false;
  if (!read.exchange(true)) {
    const char* text = std::getenv("TESSERA_FAIL");
    the_plan.folder = std::getenv("TESSERA_FAIL_IN");
    the_plan.struck = std::getenv("TESSERA_FAIL_STRUCK");
    Plan asked;
    if (text != nullptr && std::sscanf(text, "%15s %d %d", asked.call, &asked.number, &asked.error) == 3) {
      std::memcpy(the_plan.call, asked.call, sizeof asked.call);
      the_plan.error = asked.error;
      the_plan.number = asked.number;
    }
  }
  return the_plan;
}

bool below(const char* path) {
  const char* folder = plan().folder;
  return folder != nullptr && path != nullptr && std::strncmp(path, folder, std::strlen(folder)) == 0;
}
bool below(int descriptor) {
  char link[64], path[4096];
  std::snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
  const ssize_t n = ::readlink(link, path, sizeof path - 1);
  if (n <= 0) return false;
  path[n] = '\0';
  return below(path);
}

/// Counts a call and returns whether it must fail.
bool strikes(const char* call) {
  static std::atomic<int> calls = 0;
  if (std::strcmp(plan().call, call) != 0 || ++calls != plan().number) return false;
  if (plan().struck != nullptr) {
    const long file = ::syscall(SYS_openat, AT_FDCWD, plan().struck, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    if (file >= 0) ::syscall(SYS_close, file);
  }
  errno = plan().error;
  return true;
}

std::atomic<bool> full = false;  // true after half of the data was written

}  // namespace

extern "C" {

ssize_t write(int file, const void* bytes, size_t size) {
  if (below(file)) {
    if (full.exchange(false)) return errno = ENOSPC, -1;
    if (strikes("write")) {
      if (plan().error != 0 || size < 2) return errno = plan().error != 0 ? plan().error : ENOSPC, -1;
      full = true;
      size /= 2;
    }
  }
  return ::syscall(SYS_write, file, bytes, size);
}
ssize_t writev(int file, const iovec* parts, int count) {
  if (below(file) && strikes("write")) {
    if (plan().error == 0) errno = ENOSPC;
    return -1;
  }
  return ::syscall(SYS_writev, file, parts, count);
}
int fsync(int file) {
  if (below(file) && strikes("fsync")) return -1;
  return static_cast<int>(::syscall(SYS_fsync, file));
}
int flock(int file, int operation) {
  if (below(file) && strikes("flock")) return -1;
  return static_cast<int>(::syscall(SYS_flock, file, operation));
}
int rename(const char* from, const char* to) noexcept {
  if (below(to) && strikes("rename")) return -1;
  return static_cast<int>(::syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0));
}
int renameat(int from_folder, const char* from, int to_folder, const char* to) noexcept {
  if ((to[0] == '/' ? below(to) : below(to_folder)) && strikes("rename")) return -1;
  return static_cast<int>(::syscall(SYS_renameat2, from_folder, from, to_folder, to, 0));
}
void* mmap(void* at, size_t size, int protection, int flags, int file, off_t offset) noexcept {
  if (strikes("mmap")) return MAP_FAILED;
  return reinterpret_cast<void*>(::syscall(SYS_mmap, at, size, protection, flags, file, offset));
}
void* mmap64(void* at, size_t size, int protection, int flags, int file, off64_t offset) noexcept {
  return mmap(at, size, protection, flags, file, offset);
}
}
