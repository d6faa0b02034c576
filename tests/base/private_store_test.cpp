// SPDX-License-Identifier: Apache-2.0
// The folder for cached files. Files of other users are never read, replaced or deleted, and links are never followed.
// Only one process can hold a lock.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <thread>

#include "tessera/base/error.h"
#include "tessera/base/os/private_store.h"
#include "tessera/base/sha256.h"
#include "tests/support/folder.h"
#include "tests/support/run_in_child.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;
using os::PrivateStore;
using test::Folder;

constexpr const char* entry = "probe-cuda-0123456789abcdef.json";

void put(const fs::path& file, const std::string& text) { std::ofstream(file, std::ios::binary) << text; }
unsigned mode(const fs::path& file) {
  struct stat status {};
  return ::lstat(file.c_str(), &status) == 0 ? status.st_mode & 07777u : 0;
}

TEST(Sha256, MatchesExamplesOfTheStandard) {
  EXPECT_EQ(sha256(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(sha256("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(sha256("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(sha256(std::string(1'000'000, 'a')), "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST(PrivateStore, TouchUpdatesOldEntries) {
  const Folder place;
  const PrivateStore store(place / "tessera");
  const std::string old_name = "kernel-" + std::string(32, '1') + ".bin",
                    new_name = "kernel-" + std::string(32, '0') + ".bin";
  for (const std::string& name : {old_name, new_name, std::string("kernel-0123456789abcdef.bin")})
    ASSERT_EQ(store.write(name, "x"), std::nullopt);
  const auto names = [&] {
    std::string all;
    for (const auto& one : store.list("kernel-", ".bin", 32)) all += one.name + " ";
    return all;
  };
  const auto age = [&](const std::string& name) {
    const fs::path file = place / "tessera" / name;
    fs::last_write_time(file, fs::last_write_time(file) - 48h);
  };
  age(new_name);
  EXPECT_EQ(names(), new_name + " " + old_name + " ");
  store.touch(new_name, 72h);
  EXPECT_EQ(names(), new_name + " " + old_name + " ") << "it is not old enough";
  age(old_name), age(old_name);
  store.touch(new_name, 24h);
  EXPECT_EQ(names(), old_name + " " + new_name + " ");
  store.touch("kernel-none.bin", 1s);
  fs::create_symlink(place / "tessera" / old_name, place / "tessera" / "link");
  store.touch("link", 1s);
  EXPECT_EQ(names(), old_name + " " + new_name + " ") << "touch does not follow links";
}

TEST(PrivateStore, EntriesArePrivateToTheUser) {
  const Folder place;
  const ::mode_t before = ::umask(0);
  const PrivateStore store(place / "new" / "tessera/");
  EXPECT_EQ(store.read(entry), std::nullopt);
  EXPECT_FALSE(fs::exists(place / "new")) << "read creates no folder";
  EXPECT_EQ(store.write(entry, "one"), std::nullopt);
  EXPECT_EQ(store.write(entry, std::string("t\0wo", 4)), std::nullopt);
  ::umask(before);
  EXPECT_EQ(store.read(entry), std::string("t\0wo", 4));
  EXPECT_EQ(store.read(entry, 3), std::nullopt);
  EXPECT_EQ(mode(place / "new" / "tessera"), 0700u);
  EXPECT_EQ(mode(place / "new" / "tessera" / entry), 0600u);
  EXPECT_EQ(test::names(place / "new" / "tessera"), std::vector<std::string>{entry});
  EXPECT_EQ(store.why_not_written(), std::nullopt);
  EXPECT_TRUE(store.remove(entry));
  EXPECT_FALSE(store.remove(entry));
  for (const char* name : {"", ".hidden", "a/b", "..", "a b"}) EXPECT_THROW(store.read(name), ArgumentError) << name;
}

TEST(PrivateStore, ListsOnlyExactNames) {
  const Folder place;
  const PrivateStore store(place.path());
  for (const char* name : {"probe-cuda-0123456789abcdef.json", "probe-cuda-aaaaaaaaaaaaaaaa.json"})
    EXPECT_EQ(store.write(name, "x"), std::nullopt);
  for (const char* name : {"probe-cuda-.json", "probe-cuda-0123456789ABCDEF.json", "probe-cuda-0123456789abcde.json",
                           "probe-cuda-0123456789abcdef.json.bak", "probe-cuda-0123456789abcdef0.json",
                           "probe-results.csv", "xprobe-cuda-0123456789abcdef.json"})
    put(place / name, "the user's");
  fs::create_symlink(place / entry, place / "probe-cuda-bbbbbbbbbbbbbbbb.json");
  fs::create_directory(place / "probe-cuda-cccccccccccccccc.json");
  const auto found = store.list("probe-cuda-", ".json");
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(found[0].name, entry);
  EXPECT_LE(found[0].written, found[1].written);
  EXPECT_EQ(found[1].bytes, 1u);
}

TEST(PrivateStore, IgnoresLinksAndFilesOfOtherUsers) {
  const Folder place;
  const PrivateStore store(place / "store");
  EXPECT_EQ(store.why_not_written(), std::nullopt);
  put(place / "target", "mine");
  const fs::path at = place / "store" / entry;
  const auto untouched = [&](const char* what) {
    SCOPED_TRACE(what);
    const auto start = std::chrono::steady_clock::now();
    const unsigned before = mode(at);
    EXPECT_EQ(store.read(entry), std::nullopt);
    EXPECT_NE(store.write(entry, "ours"), std::nullopt);
    EXPECT_FALSE(store.remove(entry));
    EXPECT_TRUE(store.list("probe-cuda-", ".json").empty());
    EXPECT_EQ(mode(at), before);
    EXPECT_LT(std::chrono::steady_clock::now() - start, 5s) << "it blocked";
    fs::remove_all(at);
    EXPECT_TRUE(fs::is_empty(place / "store"));
  };
  fs::create_symlink(place / "target", at);
  untouched("a link to a file");
  EXPECT_EQ(test::text_of(place / "target"), "mine");
  fs::create_symlink(place / "absent", at);
  untouched("a dangling link");
  EXPECT_FALSE(fs::exists(place / "absent"));
  fs::create_symlink("/dev/zero", at);
  untouched("a link to a device");
  ASSERT_EQ(::mkfifo(at.c_str(), 0600), 0);
  untouched("a pipe");
  fs::create_directory(at);
  untouched("a folder");
  if (::geteuid() == 0) {  // only root can change the owner of a file
    put(at, "theirs");
    ASSERT_EQ(::chown(at.c_str(), 65534, 65534), 0);
    untouched("another user's file");
  }
  put(at, "untrusted");
  fs::permissions(at, fs::perms{0666});
  EXPECT_EQ(store.read(entry), std::nullopt) << "others can write to it";
  EXPECT_EQ(store.write(entry, "ours"), std::nullopt);
  EXPECT_EQ(store.read(entry), "ours");
  EXPECT_EQ(mode(at), 0600u);
}

TEST(PrivateStore, RejectsFoldersThatOthersCanWriteTo) {
  const auto refuses = [](const fs::path& folder, const std::string& words) {
    const std::string all = test::run_in_child({}, [&] {
      ::testing::internal::CaptureStderr();
      const PrivateStore store(folder);
      std::string text =
          store.write(entry, "x").value_or("written") + "|" + store.why_not_written().value_or("can") + "|";
      text += store.read(entry) ? "read" : "";
      text += store.remove(entry) ? "removed" : "";
      text += store.lock(entry, 1s) ? "locked" : "";
      text += std::to_string(store.list("probe-cuda-", ".json").size());
      const std::string log = ::testing::internal::GetCapturedStderr();
      const auto first = log.find("the disk cache is not used");
      return text + (first == log.npos                                               ? " silent"
                     : log.find("the disk cache is not used", first + 1) == log.npos ? " once"
                                                                                     : " often");
    });
    EXPECT_NE(all.find(words), std::string::npos) << all;
    EXPECT_TRUE(all.ends_with("|0 once")) << all;
  };
  const Folder place;
  fs::create_directory(place / "real");
  put(place / "real" / entry, "x");
  fs::create_directory_symlink(place / "real", place / "link");
  refuses(place / "link", "is a symbolic link");
  refuses(place / "link/", "is a symbolic link");
  for (const int bits : {0720, 0702, 0777}) {
    fs::permissions(place / "real", fs::perms(bits));
    refuses(place / "real", "other users can write to");
  }
  fs::permissions(place / "real", fs::perms{0755});
  EXPECT_EQ(PrivateStore(place / "real").read(entry), "x");
  if (::geteuid() == 0) {
    ASSERT_EQ(::chown((place / "real").c_str(), 65534, 65534), 0);
  }
  refuses(::geteuid() == 0 ? place / "real" : fs::path("/usr"), "belongs to another user");
  EXPECT_EQ(mode(place / "real"), 0755u);
  EXPECT_NE(PrivateStore("").why_not_written(), std::nullopt);
  put(place / "file", "x");
  EXPECT_NE(PrivateStore(place / "file").write(entry, "x"), std::nullopt);
  EXPECT_NE(PrivateStore(place / "file" / "below").write(entry, "x"), std::nullopt);
}

TEST(PrivateStore, LockIsExclusiveAndReleasedOnProcessDeath) {
  const Folder place;
  const PrivateStore store(place / "store");
  std::atomic<int> inside = 0, most = 0, got = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i)
    threads.emplace_back([&] {
      for (int n = 0; n < 20; ++n)
        if (const auto lock = store.lock(entry, 20s)) {
          ++got;
          most = std::max(most.load(), ++inside);
          std::this_thread::sleep_for(200us);
          --inside;
        }
    });
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(got, 160);
  EXPECT_EQ(most, 1);
  EXPECT_TRUE(fs::is_empty(place / "store")) << "released locks are deleted";
  {
    const auto held = store.lock(entry, 0ms);
    ASSERT_TRUE(held);
    const auto start = std::chrono::steady_clock::now();
    EXPECT_FALSE(store.lock(entry, 100ms));
    EXPECT_GE(std::chrono::steady_clock::now() - start, 100ms);
    EXPECT_TRUE(store.lock("probe-cuda-ffffffffffffffff.json", 0ms)) << "locks of other entries are independent";
    const pid_t child = ::fork();  // the child exits normally and runs destructors
    if (child == 0) {
      {
        auto copy = std::move(*const_cast<std::optional<PrivateStore::Lock>*>(&held));
      }
      ::_exit(0);
    }
    ::waitpid(child, nullptr, 0);
    EXPECT_FALSE(store.lock(entry, 0ms)) << "a child cannot release its parent's lock";
  }
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    const auto lock = store.lock(entry, 10s);
    const char c = lock ? 'y' : 'n';
    if (::write(ends[1], &c, 1) != 1) ::_exit(1);
    ::pause();
    ::_exit(0);
  }
  char c = 0;
  ASSERT_EQ(::read(ends[0], &c, 1), 1);
  EXPECT_EQ(c, 'y');
  EXPECT_FALSE(store.lock(entry, 0ms));
  std::thread later([&] {
    std::this_thread::sleep_for(50ms);
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
  });
  EXPECT_TRUE(store.lock(entry, 20s));
  later.join();
  ::close(ends[0]);
  ::close(ends[1]);
}

TEST(PrivateStore, RemoveStaleDeletesOnlyItsOwnOldFiles) {
  const Folder place;
  const PrivateStore store(place.path());
  const std::string lock = std::string(".tessera-") + entry + ".lock";
  const std::vector<std::string> ours = {".tessera-0123456789abcdef.tmp", lock};
  const std::vector<std::string> theirs = {".tessera-notes.tmp", ".tessera-notes.lock", "0123456789abcdef.tmp", entry};
  const auto long_ago = fs::file_time_type::clock::now() - 2h;
  for (const auto& names : {ours, theirs})
    for (const std::string& name : names) {
      put(place / name, "");
      fs::last_write_time(place / name, long_ago);
    }
  put(place / ".tessera-aaaaaaaaaaaaaaaa.tmp", "being written");
  store.remove_stale("probe-cuda-", ".json");
  for (const std::string& name : ours) EXPECT_FALSE(fs::exists(place / name)) << name;
  for (const std::string& name : theirs) EXPECT_TRUE(fs::exists(place / name)) << name;
  EXPECT_TRUE(fs::exists(place / ".tessera-aaaaaaaaaaaaaaaa.tmp"));
  fs::create_symlink(place / "x", place / lock);
  const auto start = std::chrono::steady_clock::now();
  EXPECT_FALSE(store.lock(entry, 10s));
  EXPECT_LT(std::chrono::steady_clock::now() - start, 5s);
  EXPECT_TRUE(fs::is_symlink(place / lock));
}

}  // namespace
}  // namespace tessera
