// SPDX-License-Identifier: Apache-2.0
// Runs every command of the program in a folder full of the user's own files, links, pipes and devices. The folder is
// also the cache folder. None of the user's entries may change, and no value of an environment variable may be written
// to disk.
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/un.h>

#include <filesystem>
#include <fstream>
#include <random>
#include <regex>
#include <set>
#include <sstream>

#include "tessera/base/test_seed.h"
#include "tests/app/app_program.h"
#include "tests/support/fake_backends.h"
#include "tests/support/folder.h"

using namespace tessera::test;

namespace {

namespace fs = std::filesystem;

/// Describes all properties of an entry of a folder, except its access time.
std::string looks(const fs::path& path) {
  struct stat s {};
  if (::lstat(path.c_str(), &s) != 0) return "not there";
  std::ostringstream out;
  out << std::oct << s.st_mode << std::dec << " of " << s.st_uid << ":" << s.st_gid << ", file " << s.st_ino
      << ", links " << s.st_nlink << ", device " << s.st_rdev << ", written " << s.st_mtim.tv_sec << "."
      << s.st_mtim.tv_nsec << ": ";
  if (S_ISLNK(s.st_mode)) out << fs::read_symlink(path).string();
  if (S_ISREG(s.st_mode)) out << s.st_size << " bytes, " << std::hash<std::string>()(text_of(path));
  return out.str();
}

std::map<std::string, std::string> looks_of_all(const fs::path& folder) {
  std::map<std::string, std::string> all;
  for (const std::string& name : names(folder)) all[name] = looks(folder / name);
  return all;
}

class UserFiles : public ::testing::Test {
 protected:
  UserFiles() : random(tessera::test_seed()) {
    for (const char* name : {"work", "home", "tmp", "outside"}) fs::create_directory(root / name);
    before = fs::current_path();
    fs::current_path(root / "work");
    // Three drivers that crash when probed. The result is cached, and their devices are never opened.
    for (const auto& [name, value] :
         with_fakes({{"TESSERA_OPENCL_LIBRARY", "/nonexistent"}, {"TESSERA_FAKE_FAULT", "segv-init"}}))
      variables[name] = value;
    variables["TESSERA_CACHE_DIR"] = work().string();
    variables["TESSERA_KERNEL_CACHE"] = "1";
    for (const char* name : {"HOME", "XDG_CACHE_HOME", "XDG_CONFIG_HOME"}) variables[name] = (root / "home").string();
    variables["TMPDIR"] = (root / "tmp").string();
    // Variables that vendors read may contain a token.
    for (const char* name : {"NVIDIA",    "CUDA",     "HIP",  "ROCR",    "ROCM",  "HSA",     "GPU_DEVICE",  "AMD",
                             "AMDGPU",    "ZE",       "ZES",  "ONEAPI",  "SYCL",  "NEO",     "IGC",         "INTEL",
                             "OCL_ICD",   "OPENCL",   "POCL", "RUSTICL", "MESA",  "GALLIUM", "GALLIVM",     "LP",
                             "CL_CONFIG", "OCLGRIND", "VK",   "LD",      "DPCPP", "TESSERA", "TESSERA_FAKE"}) {
      secrets.push_back("s" + digits(20));
      variables[std::string(name) + "_API_KEY"] = secrets.back();
    }
    // These variables are part of the key.
    for (const char* name : {"VIRTUAL_ENV", "CONDA_PREFIX"}) {
      secrets.push_back("/s" + digits(20));
      variables[name] = secrets.back();
    }
  }
  ~UserFiles() override {
    fs::current_path(before);
    std::error_code ignored;
    for (const auto& one : fs::directory_iterator(work()))
      if (one.is_directory(ignored)) fs::permissions(one, fs::perms{0700}, ignored);
  }

  fs::path work() const { return root / "work"; }
  fs::path kernels() const { return work() / "kernels"; }
  std::string digits(int n) {
    std::string text;
    while (n-- > 0) text += "0123456789abcdef"[random() % 16];
    return text;
  }
  void put(const fs::path& file, const std::string& text) { std::ofstream(file, std::ios::binary) << text; }

  /// Creates an entry of one of eight kinds, depending on `kind`.
  void make(const fs::path& path, int kind) {
    const mode_t mode = std::array<mode_t, 6>{0644, 0600, 0666, 0400, 0777, 0755}[random() % 6];
    switch (kind % 8) {
      case 0: fs::create_symlink(root / "outside" / "file", path); return;
      case 1: fs::create_directory_symlink(root / "outside", path); return;
      case 2: fs::create_symlink("nowhere", path); return;
      case 3: ASSERT_EQ(::mkfifo(path.c_str(), mode), 0); return;
      case 4:
        fs::create_directory(path);
        put(path / "inside", "x");
        fs::permissions(path, fs::perms(mode));
        return;
      case 5: {
        const int socket = ::socket(AF_UNIX, SOCK_STREAM, 0);
        sockaddr_un address{};
        address.sun_family = AF_UNIX;
        const std::string name = path.filename().string();  // relative, because paths of sockets must be short
        ASSERT_LT(name.size(), sizeof address.sun_path);
        name.copy(address.sun_path, name.size());
        EXPECT_EQ(::bind(socket, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
        ::close(socket);
        return;
      }
      case 6:
        // The devices null and zero.
        if (::mknod(path.c_str(), S_IFCHR | mode, makedev(1, random() % 2 == 0 ? 3 : 5)) == 0) return;
        [[fallthrough]];  // only root can do this, and not on all systems
      default: put(path, digits(static_cast<int>(random() % 5000))); fs::permissions(path, fs::perms(mode));
    }
  }

  Outcome tessera(std::vector<std::string> arguments) {
    const std::string command = arguments.front();
    const Outcome o = run(std::move(arguments), {.environment = variables, .limit = 60});
    EXPECT_FALSE(o.late) << command << " did not end: " << o.out << o.err;
    EXPECT_TRUE(o.code == 0 || o.code == 1) << command << " ended with " << o.code << ": " << o.out << o.err;
    return o;
  }
  void every_command() {
    const std::string model = (before / "models/pgdocs-2m-q8_0.gguf").string();
    tessera({"devices"});
    tessera({"devices", "--json"});
    EXPECT_EQ(tessera({"prefer", "cpu"}).code, 0);
    EXPECT_EQ(tessera({"prefer"}).code, 0);
    tessera({"prefer", "cpu", "--project"});
    EXPECT_EQ(tessera({"generate", model, "-p", "The index", "-n", "2"}).code, 0);
    EXPECT_EQ(tessera({"verify", "--device", "cpu", "--operation", "^add$"}).code, 0);
    EXPECT_EQ(tessera({"estimate", model}).code, 0);
    EXPECT_EQ(tessera({"kernel", "softmax_f32_16", "--source", "cpu"}).code, 0);
    EXPECT_EQ(tessera({"cache"}).code, 0);
    EXPECT_EQ(tessera({"cache", "--clear"}).code, 0);
    tessera({"prefer", "--clear", "--project"});
    EXPECT_EQ(tessera({"prefer", "--clear"}).code, 0);
    tessera({"doctor", "--no-figures", "--limit", "10"});
    tessera({"devices", "--rescan"});
    tessera({"devices"});
  }
  void no_secret_on_disk() {
    int files = 0;
    for (const auto& one : fs::recursive_directory_iterator(root.path())) {
      if (!one.is_regular_file() || one.is_symlink()) continue;
      ++files;
      const std::string text = one.path().string() + "\n" + text_of(one.path());
      for (const std::string& secret : secrets) EXPECT_EQ(text.find(secret), text.npos) << one.path();
    }
    EXPECT_GT(files, 0);
  }
  /// Checks that new files of the program are regular, private, and have valid names.
  void only_ours_beside(const std::map<std::string, std::string>& theirs) {
    only_ours_beside(theirs, work(), "((probe|open|opening)-[a-z]+-[0-9a-f]{16}\\.json|processor-[0-9a-f]{16}\\.bin)");
    EXPECT_EQ(fs::symlink_status(kernels()).permissions(), fs::perms{0700});
  }
  void only_ours_beside(const std::map<std::string, std::string>& theirs, const fs::path& folder, const char* pattern) {
    const std::regex exact(pattern);
    for (const std::string& name : names(folder)) {
      if (theirs.count(name) || folder / name == kernels()) continue;
      EXPECT_TRUE(std::regex_match(name, exact)) << name;
      const fs::file_status status = fs::symlink_status(folder / name);
      EXPECT_TRUE(fs::is_regular_file(status)) << name;
      EXPECT_EQ(status.permissions(), fs::perms{0600}) << name;
    }
  }

  Folder root;
  fs::path before;
  std::mt19937_64 random;
  std::map<std::string, std::string> variables;
  std::vector<std::string> secrets;
};

TEST_F(UserFiles, AreNotChangedByAnyCommand) {
  put(root / "outside" / "file", "outside");
  // Create the user's entries with names that the program would use for its files.
  tessera({"devices"});
  const std::vector<std::string> named = names(work());
  ASSERT_GE(named.size(), 3u) << "an entry for each fake driver";
  int kind = static_cast<int>(random() % 8);
  for (const std::string& name : names(kernels())) {  // the first kernel on `cpu`
    fs::remove(kernels() / name);
    if (kind % 8 >= 6) ++ ++kind;
    make(kernels() / name, kind++);
  }
  for (int i = 1; i <= 16; ++i) make(kernels() / ("kernel-" + digits(i) + ".bin"), kind++);
  for (const std::string& name : named) {
    if (name == "kernels") continue;
    fs::remove(work() / name);
    if (kind % 8 >= 6) ++ ++kind;  // a regular file of the user with a valid name would be a cache entry
    make(work() / name, kind++);
    make(work() / (".tessera-" + name + ".lock"), kind++);
  }
  ASSERT_EQ(::mkfifo((work() / "tessera.toml").c_str(), 0600), 0);
  const std::vector<std::string> beginnings = {"probe-",  "probe-cuda-", "probe-opencl-", "open-cuda-", ".tessera-",
                                               "kernel-", "data",        "tessera",       "salt",       ".probe"},
                                 endings = {".json", ".tmp", ".csv", "", ".lock", ".json.lock", ".bak"};
  while (names(work()).size() < 120) {
    const std::string name = beginnings[random() % beginnings.size()] + digits(1 + static_cast<int>(random() % 15)) +
                             endings[random() % endings.size()];
    if (!fs::exists(fs::symlink_status(work() / name))) make(work() / name, kind++);
  }
  fs::create_hard_link(root / "outside" / "file", work() / "hard-link");
  auto theirs = looks_of_all(work());
  theirs.erase("kernels");  // the program creates new files there
  const auto their_kernels = looks_of_all(kernels()), outside = looks_of_all(root / "outside");
  const std::string folder = std::to_string(static_cast<int>(fs::status(work()).permissions()));
  every_command();
  for (const bool inner : {false, true}) {
    const auto now = looks_of_all(inner ? kernels() : work());
    for (const auto& [name, was] : inner ? their_kernels : theirs) {
      const auto is = now.find(name);
      EXPECT_EQ(is == now.end() ? "gone" : is->second, was) << name;
    }
  }
  EXPECT_EQ(looks_of_all(root / "outside"), outside);
  EXPECT_EQ(std::to_string(static_cast<int>(fs::status(work()).permissions())), folder);
  only_ours_beside(theirs);
  only_ours_beside(their_kernels, kernels(), "kernel-[0-9a-f]{32}\\.bin");
  no_secret_on_disk();
}

TEST_F(UserFiles, CacheContainsNoValuesOfVariables) {
  every_command();
  fs::remove(work() / "tessera.toml");  // written by `prefer --project`
  EXPECT_GE(names(work()).size(), 3u);
  only_ours_beside({});
  no_secret_on_disk();
}

TEST_F(UserFiles, FolderThatOthersCanWriteToIsNotUsed) {
  put(work() / "notes", "the user's");
  fs::permissions(work(), fs::perms{0777});
  const auto theirs = looks_of_all(work());
  for (int again = 0; again < 2; ++again) {
    const Outcome o = tessera({"devices"});
    EXPECT_NE(o.err.find("other users can write to"), o.err.npos) << o.err;
  }
  EXPECT_EQ(looks_of_all(work()), theirs);
}

}  // namespace
