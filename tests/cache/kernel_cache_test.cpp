// SPDX-License-Identifier: Apache-2.0
// The kernel cache with a compiler that only counts its calls. Entries are loaded only if they are intact and were
// built for exactly this kernel and device. Other data never reaches the device, even if other programs change the
// folder.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>

#include "tessera/base/error.h"
#include "tessera/base/sha256.h"
#include "tessera/device/driver.h"
#include "tessera/device/launch/kernel_cache.h"
#include "tessera/device/settings.h"
#include "tests/ir/traced.h"
#include "tests/support/folder.h"
#include "tests/support/run_in_child.h"
#include "tests/support/sanitized.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;
using test::Folder;
using test::run_in_child;
using test::Variables;

/// A device whose images are plain text. It records the images that it loads.
struct Maker : DriverDevice {
  struct Nothing : LoadedKernel {
    std::string source() const override { return {}; }
  };
  DeviceInfo about{.device = {Backend::cpu, 0}, .name = "maker"};
  std::string key = "architecture: old\ncompiler: 1\n";
  std::size_t padding = 100;
  int builds = 0, loads = 0;
  bool refuses_kept = false;
  std::string built;

  const DeviceInfo& info() const override { return about; }
  std::uint64_t free_memory() const override { return 0; }
  Allocation allocate(std::size_t, MemoryKind) override { return {}; }
  void release(const Allocation&) noexcept override {}
  std::unique_ptr<DriverQueue> make_queue() override { return nullptr; }
  std::string image_key() override { return key; }
  std::string image(const ir::Function& function) const {
    return key + function.name + "\n" + std::string(padding, '.');
  }
  std::string build(const CompileRequest& request) override {
    ++builds;
    return built = image(*request.function);
  }
  std::unique_ptr<LoadedKernel> load(const CompileRequest& request, const std::string& bytes) override {
    ++loads;
    EXPECT_EQ(bytes, image(*request.function)) << "the driver got an image that was never built";
    if (refuses_kept && built.empty()) fail<KernelError>({.operation = "load", .wrong = "refused"});
    built.clear();
    return std::make_unique<Nothing>();
  }
};

class Kept : public ::testing::Test {
 protected:
  Kept() { use({}); }
  ~Kept() override {
    ::setenv("TESSERA_KERNEL_CACHE", "0", 1);
    for (const char* name : {"TESSERA_CACHE_DIR", "TESSERA_KERNEL_CACHE_SIZE"}) ::unsetenv(name);
    forget_settings();
  }
  void use(const Variables& more) {
    ::setenv("TESSERA_KERNEL_CACHE", "1", 1);
    ::setenv("TESSERA_CACHE_DIR", (root / "cache").c_str(), 1);
    for (const auto& [name, value] : more) ::setenv(name.c_str(), value.c_str(), 1);
    forget_settings();
  }
  /// Returns "compiled" or "loaded".
  std::string make(const ir::Function& function, Variant variant = {}) {
    const CompileRequest request{&function, variant};
    const auto made = load_or_compile(maker, std::span(&request, 1), counters);
    EXPECT_EQ(made.size(), 1u);
    EXPECT_NE(made.at(0).kernel, nullptr);
    return made.at(0).kept ? "loaded" : "compiled";
  }
  fs::path folder() const { return root / "cache" / "kernels"; }
  fs::path only_file() const { return test::files_in(folder()).at(0); }

  Folder root;
  Maker maker;
  KernelCounters counters;
};

ir::Function plus(double constant, const std::string& name = "plus") {
  return test::map_kernel(name, [&] {
    const auto x = ir::buffer_param("x", DType::f32, ir::Access::read_write);
    const ir::Value i = ir::global_id();
    x.store(i, x.load(i) + static_cast<float>(constant));
  });
}

void put(const fs::path& file, const std::string& bytes) { std::ofstream(file, std::ios::binary) << bytes; }
unsigned mode(const fs::path& file) {
  struct stat status {};
  return ::lstat(file.c_str(), &status) == 0 ? status.st_mode & 07777u : 0;
}

TEST_F(Kept, LoadsOnlyEntriesWithTheSameKey) {
  EXPECT_EQ(make(plus(1)), "compiled");
  EXPECT_EQ(make(plus(1)), "loaded");
  EXPECT_EQ(make(plus(2)), "compiled") << "another kernel";
  EXPECT_EQ(make(plus(1, "other")), "compiled") << "the name is part of the source";
  EXPECT_EQ(make(plus(1), {.noalias = false}), "compiled");
  EXPECT_EQ(make(plus(1), {.index64 = true}), "compiled");
  const std::string before = maker.key;
  maker.key = "architecture: new\ncompiler: 1\n";
  EXPECT_EQ(make(plus(1)), "compiled");
  maker.key = before;
  EXPECT_EQ(make(plus(1)), "loaded") << "devices have separate entries";
  EXPECT_EQ(counters.compiled, 6u);
  EXPECT_EQ(counters.loaded, 2u);
  EXPECT_TRUE(counters.kept);
  EXPECT_EQ(maker.builds, 6);

  EXPECT_EQ(mode(root / "cache"), 0700u);
  EXPECT_EQ(mode(folder()), 0700u);
  const KernelCache cache = kernel_cache();
  EXPECT_EQ(cache.kernels.size(), 6u);
  EXPECT_EQ(cache.folder, folder());
  EXPECT_TRUE(cache.damaged.empty());
  for (const CachedKernel& kernel : cache.kernels) {
    EXPECT_EQ(mode(folder() / kernel.file), 0600u);
    EXPECT_TRUE(kernel.kernel == "plus" || kernel.kernel == "other");
    EXPECT_TRUE(kernel.device == "cpu old" || kernel.device == "cpu new") << kernel.device;
  }
  put(folder() / "kernel-notours.bin", "x");
  EXPECT_EQ(clear_kernel_cache(), 6u);
  EXPECT_EQ(test::names(folder()), std::vector<std::string>{"kernel-notours.bin"});
  EXPECT_EQ(make(plus(1)), "compiled");
}

TEST_F(Kept, IsDisabledByUserOrDevice) {
  use({{"TESSERA_KERNEL_CACHE", "0"}});
  EXPECT_EQ(make(plus(1)), "compiled");
  EXPECT_EQ(make(plus(1)), "compiled");
  EXPECT_FALSE(fs::exists(root / "cache"));
  EXPECT_NE(kernel_cache().off, "");
  use({});
  maker.key.clear();
  struct Whole : Maker {
    std::vector<std::unique_ptr<LoadedKernel>> compile(std::span<const CompileRequest> requests) override {
      std::vector<std::unique_ptr<LoadedKernel>> out;
      for (std::size_t i = 0; i < requests.size(); ++i) out.push_back(std::make_unique<Nothing>());
      return out;
    }
  } whole;
  whole.key.clear();
  const ir::Function one = plus(1), two = plus(2);
  const CompileRequest requests[] = {{&one, {}}, {&two, {}}};
  EXPECT_EQ(load_or_compile(whole, requests, counters).size(), 2u);
  EXPECT_FALSE(counters.kept);
  EXPECT_FALSE(fs::exists(root / "cache"));
}

TEST_F(Kept, DamagedEntriesNeverReachTheDriver) {
  ASSERT_EQ(make(plus(1)), "compiled");
  const fs::path file = only_file();
  const std::string whole = test::text_of(file);
  ASSERT_GT(whole.size(), 400u);
  const auto expect_anew = [&](const std::string& bytes, const std::string& what) {
    put(file, bytes);
    EXPECT_EQ(make(plus(1)), "compiled") << what;
    EXPECT_EQ(test::text_of(file), whole) << what;
  };
  for (std::size_t i = 0; i < whole.size(); ++i) {
    std::string bytes = whole;
    bytes[i] = static_cast<char>(bytes[i] ^ (1 << i % 8));
    expect_anew(bytes, "a bit of byte " + std::to_string(i));
  }
  for (std::size_t n = 0; n < whole.size(); n += 7) expect_anew(whole.substr(0, n), "its first " + std::to_string(n));
  expect_anew(whole + '\0', "a byte more");
  expect_anew(whole + whole, "twice");
  EXPECT_EQ(counters.damaged, counters.compiled - 1) << "counted as damaged";
  EXPECT_EQ(make(plus(1)), "loaded");
}

// An intact entry may still be wrong, if it has the name of another entry or a forged checksum.
TEST_F(Kept, RejectsIntactEntriesWithAnotherKey) {
  ASSERT_EQ(make(plus(1)), "compiled");
  const fs::path file = only_file();
  const std::string first = test::text_of(file);
  fs::remove(file);
  ASSERT_EQ(make(plus(2)), "compiled");
  fs::rename(only_file(), file);
  EXPECT_EQ(make(plus(1)), "compiled");
  EXPECT_EQ(test::text_of(file), first);
}

TEST_F(Kept, RecompilesKernelsWhoseImagesTheDeviceRejects) {
  ASSERT_EQ(make(plus(1)), "compiled");
  maker.refuses_kept = true;
  EXPECT_EQ(make(plus(1)), "compiled");
  EXPECT_EQ(counters.refused, 1u);
  maker.refuses_kept = false;
  EXPECT_EQ(make(plus(1)), "loaded");
}

TEST_F(Kept, IgnoresFilesThatOthersOwnOrCanWriteTo) {
  ASSERT_EQ(make(plus(1)), "compiled");
  const fs::path file = only_file(), aside = root / "aside";
  const std::string whole = test::text_of(file);
  fs::rename(file, aside);
  const auto expect_left = [&](const char* what) {
    EXPECT_EQ(make(plus(1)), "compiled") << what;
    EXPECT_EQ(make(plus(1)), "compiled") << what;
    EXPECT_EQ(test::text_of(aside), whole) << what;
  };
  fs::create_symlink(aside, file);
  expect_left("a link to an entry");
  EXPECT_TRUE(fs::is_symlink(file));
  fs::remove(file);
  fs::create_directory(file);
  expect_left("a folder");
  fs::remove(file);
  ASSERT_EQ(::mkfifo(file.c_str(), 0600), 0);
  expect_left("a pipe");
  fs::remove(file);
  if (::geteuid() == 0) {
    fs::copy(aside, file);
    ASSERT_EQ(::chown(file.c_str(), 65534, 65534), 0);
    expect_left("another user");
    fs::remove(file);
  }
  fs::copy(aside, file);
  fs::permissions(file, fs::perms{0622});
  EXPECT_EQ(make(plus(1)), "compiled") << "others could have written it";
  EXPECT_EQ(mode(file), 0600u);
  EXPECT_EQ(make(plus(1)), "loaded");

  fs::permissions(folder(), fs::perms{0777});
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(make(plus(1)), "compiled") << "others could have created it";
  EXPECT_EQ(make(plus(1)), "compiled");
  const std::string said = ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(std::count(said.begin(), said.end(), '\n'), 1) << "one warning: " << said;
  fs::permissions(folder(), fs::perms{0700});
  EXPECT_EQ(make(plus(1)), "loaded");
}

/// Runs `work` in a child. If this process is running as root, the child runs as an ordinary user.
std::string unprivileged(const fs::path& owned, const std::function<std::string()>& work) {
  if (::geteuid() == 0)
    for (const fs::path& one : {owned, owned / "cache", owned / "cache" / "kernels"}) {
      if (fs::exists(one)) {
        EXPECT_EQ(::chown(one.c_str(), 65534, 65534), 0);
      }
    }
  return run_in_child({}, [&] {
    if (::geteuid() == 0 && (::setresgid(65534, 65534, 65534) != 0 || ::setresuid(65534, 65534, 65534) != 0))
      return std::string("no other user");
    return work();
  });
}

TEST_F(Kept, UnwritableFolderOnlyDisablesCaching) {
  const auto twice = [&] {
    const std::string first = make(plus(1));
    return first + " " + make(plus(1));
  };
  fs::create_directories(folder());
  fs::permissions(folder(), fs::perms{0500});
  EXPECT_EQ(unprivileged(root.path(), twice), "compiled compiled") << "read-only";
  fs::permissions(folder(), fs::perms{0700});
  EXPECT_EQ(unprivileged(root.path(), twice), "compiled loaded") << "writable again";
  fs::remove_all(root / "cache");
  put(root / "cache", "a file");
  EXPECT_EQ(twice(), "compiled compiled") << "the folder cannot be created";
  fs::remove(root / "cache");
  use({{"TESSERA_CACHE_DIR", "/proc/nowhere"}});
  EXPECT_EQ(twice(), "compiled compiled");
  use({});
  EXPECT_EQ(run_in_child({},
                         [&] {  // acts like a full disk: a few bytes can be written, then no more
                           ::signal(SIGXFSZ, SIG_IGN);
                           const rlimit little{300, 300};
                           ::setrlimit(RLIMIT_FSIZE, &little);
                           return twice();
                         }),
            "compiled compiled")
      << "disk full";
  EXPECT_TRUE(test::names(folder()).empty()) << "no partial file remains";
  EXPECT_EQ(twice(), "compiled loaded");
  fs::remove_all(root / "cache");
  EXPECT_EQ(twice(), "compiled loaded") << "the folder was deleted in the meantime";
}

TEST_F(Kept, EvictsLeastRecentlyUsedAboveLimit) {
  constexpr std::uint64_t limit = 512 << 10;
  use({{"TESSERA_KERNEL_CACHE_SIZE", std::to_string(limit)}});
  maker.padding = 15 << 10;
  const auto age = [&](std::chrono::hours hours) {
    for (const fs::path& file : test::files_in(folder())) fs::last_write_time(file, fs::last_write_time(file) - hours);
  };
  for (int i = 0; i < 200; ++i) {
    ASSERT_EQ(make(plus(i)), "compiled");
    if (i % 5 == 0) age(std::chrono::hours(48));
    if (i >= 10) {
      ASSERT_EQ(make(plus(0)), "loaded") << "used repeatedly, after " << i;
    }
    ASSERT_LE(kernel_cache().bytes, limit) << i;
  }
  EXPECT_GT(kernel_cache().bytes, limit / 2);
  maker.padding = 200 << 10;
  EXPECT_EQ(make(plus(1000)), "compiled");
  EXPECT_EQ(make(plus(1000)), "compiled") << "too large: it would evict all other entries";
}

TEST_F(Kept, LookupAmongTenThousandEntriesIsFast) {
  ASSERT_EQ(make(plus(1)), "compiled");
  const auto best = [&] {
    double milliseconds = 1e9;
    for (int i = 0; i < 20; ++i) {
      const auto start = std::chrono::steady_clock::now();
      EXPECT_EQ(make(plus(1)), "loaded");
      const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - start;
      milliseconds = std::min(milliseconds, took.count());
    }
    return milliseconds;
  };
  const double alone = best();
  const std::string whole = test::text_of(only_file());
  for (int i = 0; i < 10'000; ++i)
    put(folder() / ("kernel-" + sha256(std::to_string(i)).substr(0, 32) + ".bin"), whole);
  const double among = best();
  std::printf("a kernel from disk: %.3f ms, among 10,000 entries %.3f ms\n", alone, among);
  EXPECT_LT(among, alone + (test::sanitized ? 100 : 1));
}

}  // namespace
}  // namespace tessera
