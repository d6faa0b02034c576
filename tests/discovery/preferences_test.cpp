// SPDX-License-Identifier: Apache-2.0
// Preferences files: contents, precedence, errors and editing. Each test runs in a separate process with its own home
// and project folder.
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <limits>
#include <random>
#include <sstream>
#include <thread>

#include "tessera/base/error.h"
#include "tessera/base/test_seed.h"
#include "tessera/device/driver.h"
#include "tessera/device/selection/preferences.h"
#include "tessera/device/selection/preferences_file.h"
#include "tests/support/errors.h"
#include "tests/support/folder.h"
#include "tests/support/fresh_process.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;
using test::add;
using test::expect_contains;
using test::expect_throw;
using test::in_fresh_process;
using test::TestDriver;
using enum PreferenceScope;
constexpr std::uint64_t gib = std::uint64_t{1} << 30;

void write(const fs::path& file, const std::string& text) {
  fs::create_directories(file.parent_path());
  std::ofstream(file) << text;
}

/// Sets HOME to a new folder and the working directory to a folder below it. They are deleted when the test ends.
struct Place {
  const test::Folder made;
  const fs::path root = made.path(), home = root / "home", project = home / "work" / "project",
                 project_file = project / "tessera.toml", user_file = home / ".config" / "tessera" / "config.toml";
  Place() {
    fs::create_directories(project / "deep" / "er");
    fs::current_path(project);
    ::setenv("HOME", (home.string() + "/").c_str(), 1);  // the trailing slash must be ignored
    ::unsetenv("XDG_CONFIG_HOME");
    ::unsetenv("TESSERA_DEVICE");
  }
  ~Place() { fs::current_path("/"); }
};

const Device cpu0{Backend::cpu, 0}, cuda0{Backend::cuda, 0}, cuda1{Backend::cuda, 1}, cuda2{Backend::cuda, 2};

/// Registers a CPU and CUDA devices with these identities; an empty string means no identity.
TestDriver& machine(std::initializer_list<const char*> identities) {
  add(Backend::cpu, {{DeviceKind::cpu, gib}});
  auto driver = std::make_unique<TestDriver>(Backend::cuda);
  for (const char* identity : identities) driver->add_device(DeviceKind::discrete_gpu, gib).identity = identity;
  TestDriver& kept = *driver;
  register_driver(std::move(driver));
  return kept;
}

TEST(Preferences, EnvironmentOverridesProjectWhichOverridesUser) {
  in_fresh_process([] {
    const Place place;
    machine({"", "", ""});
    EXPECT_EQ(current_device(), cuda0);
    write(place.user_file, "[device]\nprefer = \"cuda:1\"\n");
    EXPECT_EQ(current_device(), cuda0) << "files are cached until rescan()";
    rescan();
    EXPECT_EQ(current_device(), cuda1);
    expect_contains(why_current_device(), {"cuda:1", "the user's file", place.user_file.string() + ":2"});
    write(place.project_file, "# ours\n[device]\n  prefer = \"cuda:2\"\n");
    rescan();
    EXPECT_EQ(current_device(), cuda2);
    expect_contains(why_current_device(), {"the project's file", place.project_file.string() + ":3"});
    ::setenv("TESSERA_DEVICE", "cpu", 1);
    rescan();
    EXPECT_EQ(current_device(), cpu0);
    {
      DeviceScope scope(cuda0);
      EXPECT_EQ(current_device(), cuda0);
    }
    // TESSERA_DEVICE takes precedence even if a file is invalid.
    write(place.project_file, "nonsense");
    rescan();
    EXPECT_EQ(current_device(), cpu0);
  });
}

TEST(Preferences, ProjectFileIsFoundInParentsUpToHome) {
  in_fresh_process([] {
    const Place place;
    machine({"", ""});
    // Above the home folder, so it is not searched.
    write(place.root / "tessera.toml", "[device]\nprefer = \"cuda:1\"\n");
    fs::current_path(place.project / "deep" / "er");
    EXPECT_EQ(preference_file(project), (place.project / "deep" / "er" / "tessera.toml").string());
    EXPECT_EQ(read_preference(project), std::nullopt);
    write(place.home / "tessera.toml", "[device]\nprefer = \"cpu\"\n");
    ASSERT_TRUE(read_preference(project));
    EXPECT_EQ(read_preference(project)->device, cpu0);
    write(place.project_file, "[device]\nprefer = \"cuda:1\"\n");
    EXPECT_EQ(preference_file(project), place.project_file.string());
    EXPECT_EQ(read_preference(project)->device, cuda1);
    EXPECT_EQ(current_device(), cuda1);
    ::setenv("XDG_CONFIG_HOME", (place.root / "xdg").c_str(), 1);
    EXPECT_EQ(preference_file(user), (place.root / "xdg/tessera/config.toml").string());
    ::setenv("XDG_CONFIG_HOME", "relative", 1);  // ignored, as required by the XDG specification
    EXPECT_EQ(preference_file(user), place.user_file.string());
    ::unsetenv("HOME");
    EXPECT_EQ(preference_file(user), "");
    EXPECT_EQ(read_preference(user), std::nullopt);
    EXPECT_THROW(set_preferred_device(cuda0, user), ArgumentError);
  });
}

TEST(Preferences, IdentityTakesPrecedenceOverIndexWithAWarning) {
  in_fresh_process([] {
    const Place place;
    machine({"pci:0000:3b:00.0", "pci:0000:5e:00.0"});
    set_preferred_device(cuda1, project);
    expect_contains(test::text_of(place.project_file),
                    {"prefer = \"cuda:1\"", "identity = \"pci:0000:5e:00.0\"", "name = \"test device 1\""});
    EXPECT_EQ(current_device(), cuda1);
    machine({"pci:0000:5e:00.0", "pci:0000:3b:00.0"});  // another card was inserted before it
    ::testing::internal::CaptureStderr();
    rescan();
    EXPECT_EQ(current_device(), cuda0);
    expect_contains(::testing::internal::GetCapturedStderr(), {"warning", "cuda:1 is now cuda:0", "pci:0000:5e:00.0"});
    expect_contains(why_current_device(), {"cuda:0", "as cuda:1", "found by its identity pci:0000:5e:00.0"});
    machine({"pci:0000:3b:00.0", "pci:0000:99:00.0"});  // the card is missing now, although there is a cuda:1
    rescan();
    for (int again = 0; again < 2; ++again)
      expect_throw<DeviceError>(
          [] { current_device(); },
          {place.project_file.string() + ":2:10", "the preferred device was not found", "pci:0000:5e:00.0",
           "cuda:1 (test device 1, pci:0000:99:00.0)", "Devices that exist: cpu:0"});
    EXPECT_THROW(gpu_device(), DeviceError) << "no other GPU is used instead";
    set_preferred_device(cuda0, project);
    EXPECT_EQ(current_device(), cuda0);
  });
}

TEST(Preferences, DeviceWithoutIdentityIsMatchedByIndexAndName) {
  in_fresh_process([] {
    const Place place;
    machine({"", "pci:0000:3b:00.0", ""});
    const auto with = [](const std::string& device, const std::string& name) {
      return "[device]\nprefer = \"" + device + "\"\nidentity = \"cpu\"\nname = \"" + name + "\"\n";
    };
    write(place.user_file, with("cuda:2", "test device 2"));
    ::testing::internal::CaptureStderr();
    EXPECT_EQ(current_device(), cuda2);
    expect_contains(
        ::testing::internal::GetCapturedStderr(),
        {"warning",
         "no device has the identity cpu; using cuda:2, which has no identity but the same name (test device 2)",
         "`tessera prefer cuda:2 --user` to update the file"});
    expect_contains(why_current_device(),
                    {"cuda:2", "preferred by the user's file", "whose identity cpu matches no device"});
    // With a different name, a different identity or no name, it may be another device.
    for (const std::string& text : {with("cuda:2", "test device 0"), with("cuda:1", "test device 1"),
                                    std::string("[device]\nprefer = \"cuda:2\"\nidentity = \"cpu\"\n")}) {
      write(place.user_file, text);
      rescan();
      EXPECT_THROW(current_device(), DeviceError) << text;
    }
  });
}

TEST(Preferences, InvalidFileErrorsContainLineAndColumn) {
  in_fresh_process([] {
    const Place place;
    machine({""});
    std::string nested = "device";
    for (int i = 0; i < 200'000; ++i) nested += ".a";
    const struct {
      const char *text, *where, *wrong;
    } cases[] = {
        {"[device\nprefer = \"cpu\"\n", ":1:8", ""},
        {"[device]\nprefer = cpu\n", ":2:", ""},
        {"[device]\nprefer = 3\n", ":2:10", "\"device.prefer\" is not a string"},
        {"[device]\nprefer = \"cpu\"\nidentity = true\n", ":3:12", "\"device.identity\" is not a string"},
        {"[device]\n\n  preferred = \"cpu\"\n", ":3:3", "the key \"device.preferred\" is unknown"},
        {"# ä\ncolour = 1\n", ":2:1", "the key \"colour\" is unknown"},
        {"device = \"cpu\"\n", ":1:10", "\"device\" is not a table"},
        {"[device]\nprefer = \"gpu\"\n", ":2:10", "\"gpu\" is not a device"},
        {"[device]\nprefer = \"cuda:7\"\n", ":2:10", "cuda:7 does not exist: the backend cuda has 1 device"},
        {"[device]\nname = \"x\"\n", ":2:1", "has no key prefer"},
        {"[device]\nprefer = \"cpu\"\nprefer = \"cpu\"\n", ":3:", ""},
        // Input that toml++ 3.3 does not handle safely.
        {"[=", ":1:1", "no name after '['"},
        {"# [=\n [ [ \xef\xb3\xbf", ":2:2", "no name after '['"},
        {"[device]\nprefer \xef\xb3\xbf = \"cpu\"\n", ":2:8", "only ASCII characters"},
        {"[device]\n'\xc3\xa4' \xc3\xa4 = 1", ":2:5", "only ASCII characters"},
        {nested.c_str(), ":1:", "nested too deeply"},
    };
    for (const auto& c : cases) {
      SCOPED_TRACE(c.text);
      write(place.project_file, c.text);
      rescan();
      expect_throw<Error>([] { current_device(); }, {place.project_file.string() + c.where, c.wrong});
      expect_throw<Error>([] { why_current_device(); }, {place.project_file.string() + c.where});
      EXPECT_EQ(test::text_of(place.project_file), c.text);
      DeviceScope scope(cpu0);  // a scope does not need the file
      EXPECT_EQ(current_device(), cpu0);
    }
    for (const char* nothing : {"", "# only a comment\n", "[device]\n"}) {
      write(place.project_file, nothing);
      rescan();
      EXPECT_EQ(current_device(), cuda0);
    }
  });
}

TEST(Preferences, WritingKeepsOtherTextAndTakesEffectImmediately) {
  in_fresh_process([] {
    const Place place;
    machine({"pci:0", "", "pci:\"2\\"});
    EXPECT_EQ(current_device(), cuda0);
    set_preferred_device(cpu0, user);
    EXPECT_EQ(current_device(), cpu0) << "no restart";
    EXPECT_EQ(gpu_device({.index = 1}), cuda1) << "an explicit index takes precedence";
    EXPECT_EQ(test::text_of(place.user_file), "[device]\nprefer = \"cpu:0\"\nname = \"test device 0\"\n");
    const fs::path same_file = place.home / "same";
    fs::create_hard_link(place.user_file, same_file);
    set_preferred_device(cpu0, user);
    EXPECT_TRUE(fs::equivalent(place.user_file, same_file)) << "unchanged content is not rewritten";
    set_preferred_device(std::nullopt, user);
    EXPECT_FALSE(fs::equivalent(place.user_file, same_file));
    EXPECT_EQ(current_device(), cuda0);
    EXPECT_EQ(test::text_of(place.user_file), "[device]\n");

    write(place.project_file, "# Ours. ü\r\n\n[device]   # table\n# which\n prefer = 'cuda:1' # the quiet one\n# end");
    fs::permissions(place.project_file, fs::perms{0640});
    set_preferred_device(cuda2, project);
    EXPECT_EQ(current_device(), cuda2);
    EXPECT_EQ(test::text_of(place.project_file),
              "# Ours. ü\r\n\n[device]   # table\n# which\n prefer = \"cuda:2\" # the quiet one\n"
              "identity = \"pci:\\\"2\\\\\"\nname = \"test device 2\"\n# end\n");
    EXPECT_EQ(fs::status(place.project_file).permissions(), fs::perms{0640});
    EXPECT_EQ(read_preference(project)->identity, "pci:\"2\\");
    set_preferred_device(cuda1, project);  // this device has no identity
    EXPECT_EQ(test::text_of(place.project_file),
              "# Ours. ü\r\n\n[device]   # table\n# which\n prefer = \"cuda:1\" # the quiet one\n"
              "name = \"test device 1\"\n# end\n");
    set_preferred_device(std::nullopt, project);
    EXPECT_EQ(test::text_of(place.project_file), "# Ours. ü\r\n\n[device]   # table\n# which\n# end\n");

    EXPECT_THROW(set_preferred_device(Device{Backend::cuda, 9}, project), DeviceError);
    for (const char* kept : {"device = { prefer = \"cpu\" }\n", "device.prefer = \"cpu\"\n", "x = 1\n", "[device\n"}) {
      write(place.project_file, kept);
      expect_throw<FormatError>([] { set_preferred_device(cuda0, project); }, {place.project_file.string()});
      EXPECT_EQ(test::text_of(place.project_file), kept);
    }
    fs::remove(place.project_file);
    set_preferred_device(std::nullopt, project);
    EXPECT_FALSE(fs::exists(place.project_file)) << "removing nothing creates no file";
    for (const auto& entry : fs::directory_iterator(place.project)) EXPECT_TRUE(entry.is_directory()) << entry;
  });
}

TEST(Preferences, RemovingKeepsOtherText) {
  const auto cleared = [](const std::string& text) { return change_preference(text, {}, project, "f"); };
  EXPECT_EQ(cleared("device = {prefer=\"cpu\", name=\"AMD EPYC\"}"), "");
  EXPECT_EQ(cleared("device = {prefer='cpu', name='', identity=''}\n# one\n# two\n# three\n"),
            "# one\n# two\n# three\n");
  EXPECT_EQ(cleared("device.prefer = 'cpu'\n# one\ndevice.name = 'x'\n"), "# one\n");
  EXPECT_EQ(cleared("\xef\xbb\xbf[device]\nprefer = 'cpu'\n# one"), "\xef\xbb\xbf[device]\n# one\n");
  EXPECT_THROW(cleared("device = {prefer='cpu', name='''x\n#'''}\n"), FormatError);
  // The identity is replaced by a name.
  EXPECT_EQ(change_preference("[device]\nprefer = 'cpu'\nidentity = 'x'\n# one\n",
                              Preference{.scope = project, .device = cuda1, .name = "n"}, project, "f"),
            "[device]\nprefer = \"cuda:1\"\nname = \"n\"\n# one\n");
}

TEST(Preferences, EditingRandomFilesKeepsOtherLines) {
  std::mt19937_64 random(test_seed());
  const auto draw = [&](std::size_t n) { return static_cast<std::size_t>(random() % n); };
  // The files consist of the first five kinds of lines, then of all valid kinds, then of all kinds.
  static const std::vector<std::string> lines = {"# a comment",
                                                 "  # another, with = and 'quotes\"",
                                                 "",
                                                 "# \xc3\xa4\xef\xb3\xbf",
                                                 "\t",
                                                 "prefer = 'cuda:1' # quiet",
                                                 "  name = \"AMD \\\"EPYC\\\"\"",
                                                 "identity = 'pci:0'",
                                                 "name = '''one'''",
                                                 "identity = \"\"",
                                                 "'name' = \"# no comment\"",
                                                 "device = {prefer = \"cpu\", name = 'x'}",
                                                 "device = {prefer='cpu', identity='', name=''} # all",
                                                 "device.prefer = 'interp'",
                                                 "device.\"name\" = \"\xc3\xa4\xef\xb3\xbf\"",
                                                 "name = '''a",
                                                 "b'''",
                                                 "\xef\xb3\xbf",
                                                 "[=",
                                                 "x = 1",
                                                 "\xef\xbb\xbf# mark",
                                                 "prefer = \"cuda:2\"\t",
                                                 "[[device]]",
                                                 "\"\"\"",
                                                 "[device]"};
  int changes = 0;
  for (int i = 0; i < 4000; ++i) {
    std::string text;
    if (i % 2 == 0) {
      const auto comments = [&] {
        for (std::size_t n = draw(3); n-- > 0;) text += lines[draw(5)] + (draw(8) == 0 ? "\r\n" : "\n");
      };
      comments();
      if (draw(3) == 0) {
        text += lines[11 + draw(2)] + "\n";
      } else {
        std::vector<std::string> keys = {lines[5], lines[draw(2) == 0 ? 6 : 10], lines[draw(2) == 0 ? 7 : 9]};
        if (draw(2) == 0) keys.pop_back();
        std::ranges::shuffle(keys, random);
        text += draw(2) == 0 ? "[device]\n" : "[ 'device' ] # ours\n";
        for (const std::string& key : keys) {
          comments();
          text += key + "\n";
        }
      }
      comments();
      if (draw(4) == 0) text.pop_back();
    } else {
      for (std::size_t n = draw(9); n-- > 0;) {
        std::string line = lines[draw(lines.size())];
        if (draw(8) == 0 && !line.empty()) line[draw(line.size())] = static_cast<char>(random());
        text += line + "\n";
      }
    }
    std::optional<Preference> wanted;
    if (draw(2) == 0)
      wanted = Preference{.scope = project, .device = cuda1, .name = draw(2) == 0 ? "n\xc3\xa4 \"q\"" : ""};
    if (wanted && draw(2) == 0) wanted->identity = "pci:9";
    SCOPED_TRACE(text);
    std::string changed;
    try {
      changed = change_preference(text, wanted, project, "f");
    } catch (const FormatError&) {
      continue;
    } catch (const DeviceError&) {
      continue;
    }
    ++changes;
    const auto now = parse_preference(changed, project, "f");
    ASSERT_EQ(now.has_value(), wanted.has_value());
    if (wanted) {
      EXPECT_EQ(now->device, wanted->device);
      EXPECT_EQ(now->identity, wanted->identity);
      EXPECT_EQ(now->name, wanted->name);
    }
    // Lines that contain none of the three keys are unchanged and in the same order.
    std::stringstream before(text);
    std::size_t at = 0;
    for (std::string line; std::getline(before, line);) {
      if (line.find("prefer") != line.npos || line.find("name") != line.npos || line.find("identity") != line.npos)
        continue;
      const std::size_t found = changed.find(line, at);
      ASSERT_NE(found, changed.npos) << "lost: " << line << "\nnow: " << changed;
      at = found + line.size();
    }
  }
  EXPECT_GT(changes, 1000);
}

TEST(Preferences, KeepsSymbolicLinksAndRejectsUnwritableFolder) {
  in_fresh_process([] {
    const Place place;
    machine({""});
    write(place.home / "kept.toml", "[device]\nprefer = \"cpu\"\n");
    fs::create_symlink(place.home / "kept.toml", place.project_file);
    set_preferred_device(cuda0, project);
    EXPECT_TRUE(fs::is_symlink(place.project_file));
    expect_contains(test::text_of(place.home / "kept.toml"), {"cuda:0"});
    ::setenv("XDG_CONFIG_HOME", "/proc/nowhere", 1);
    expect_throw<ArgumentError>([] { set_preferred_device(cuda0, user); }, {"/proc/nowhere/tessera/config.toml"});
  });
}

TEST(Preferences, IgnoresPipesAndFilesOfOtherUsersWithAWarning) {
  in_fresh_process([] {
    const Place place;
    machine({"", "", ""});
    ::alarm(60);
    const auto makes = [](const fs::path& file) { ASSERT_EQ(::mkfifo(file.c_str(), 0600), 0); };
    write(place.home / "tessera.toml", "[device]\nprefer = \"cuda:2\"\n");
    makes(place.project_file);  // never written
    ::testing::internal::CaptureStderr();
    for (int again = 0; again < 2; ++again) {
      rescan();
      EXPECT_EQ(current_device(), cuda2) << "the file in the next folder above is used";
    }
    std::string said = ::testing::internal::GetCapturedStderr();
    expect_contains(said, {"warning", place.project_file.string() + " was ignored: it is not a regular file"});
    EXPECT_EQ(said.find("was ignored"), said.rfind("was ignored")) << said;
    fs::remove(place.home / "tessera.toml");
    expect_throw<ArgumentError>([] { set_preferred_device(cuda0, project); },
                                {place.project_file.string(), "not a regular file"});
    EXPECT_TRUE(fs::is_fifo(place.project_file));
    fs::remove(place.project_file);
    fs::create_directories(place.user_file.parent_path());
    makes(place.user_file);
    rescan();
    EXPECT_EQ(current_device(), cuda0);
    fs::remove(place.user_file);
    fs::create_symlink("/dev/zero", place.project_file);
    rescan();
    EXPECT_EQ(current_device(), cuda0);
    fs::remove(place.project_file);
    write(place.project_file, std::string(2'000'000, '#'));
    expect_throw<ArgumentError>([] { read_preference(project); }, {place.project_file.string(), "larger than"});
    if (::geteuid() != 0) return;  // only root can change the owner of a file
    for (const fs::path& file : {place.project_file, place.user_file}) {
      const std::string text = "[device]\nprefer = \"cuda:1\"\n";
      write(file, text);
      rescan();
      EXPECT_EQ(current_device(), cuda1);
      ASSERT_EQ(::chown(file.c_str(), 65534, 65534), 0);
      ::testing::internal::CaptureStderr();
      rescan();
      EXPECT_EQ(current_device(), cuda0);
      expect_throw<ArgumentError>([&] { set_preferred_device(cuda0, file == place.user_file ? user : project); },
                                  {file.string(), "it belongs to another user (uid 65534)"});
      said = ::testing::internal::GetCapturedStderr();
      EXPECT_EQ(test::text_of(file), text);
      fs::remove(file);
      write(place.root / "others.toml", text);
      fs::create_symlink(place.root / "others.toml", file);
      rescan();
      EXPECT_EQ(current_device(), cuda1);
      ASSERT_EQ(::lchown(file.c_str(), 65534, 65534), 0);
      rescan();
      EXPECT_EQ(current_device(), cuda0) << "a link of another user";
      fs::remove(file);
    }
    expect_contains(said,
                    {"warning", place.user_file.string() + " was ignored: it belongs to another user (uid 65534)"});
  });
}

TEST(Preferences, ReportsWhyTheFolderCannotBeCreated) {
  in_fresh_process([] {
    const Place place;
    machine({""});
    // The parent folder is read-only or not accessible, so the reason is not "No such file".
    ::setenv("XDG_CONFIG_HOME", "/sys/nowhere", 1);
    const std::string text = test::text_of<ArgumentError>([] { set_preferred_device(cuda0, user); });
    expect_contains(text, {"/sys/nowhere/tessera/config.toml"});
    EXPECT_EQ(text.find("No such file"), text.npos) << text;
  });
}

TEST(Preferences, ReadersNeverSeePartialFiles) {
  in_fresh_process([] {
    const Place place;
    machine({"pci:0", ""});
    set_preferred_device(cuda0, project);
    std::atomic<bool> over = false;
    std::thread writer([&] {
      for (int i = 0; i < 200; ++i) set_preferred_device(i % 2 ? cuda0 : cuda1, project);
      over = true;
    });
    int read_times = 0;
    while (!over || read_times < 10) {
      const auto p = read_preference(project);
      EXPECT_TRUE(p && (p->device == cuda0 ? p->identity == "pci:0" : p->identity.empty()));
      ++read_times;
    }
    writer.join();
  });
}

TEST(GpuDevice, FallsBackToCpuWithOneWarning) {
  in_fresh_process([] {
    const Place place;
    add(Backend::cpu, {{DeviceKind::cpu, gib}});
    add(Backend::opencl, {{DeviceKind::cpu, gib}});
    EXPECT_FALSE(has_gpu());
    EXPECT_TRUE(gpus().empty());
    EXPECT_EQ(devices(), (std::vector<Device>{cpu0, {Backend::opencl, 0}}));
    ::testing::internal::CaptureStderr();
    for (int i = 0; i < 3; ++i) EXPECT_EQ(gpu_device(), cpu0);
    const std::string said = ::testing::internal::GetCapturedStderr();
    expect_contains(said, {"warning", "using cpu:0 instead of a GPU",
                           "cuda: ", "rocm: ", "oneapi: ", "metal: ", "opencl: no GPU among its devices"});
    EXPECT_EQ(said.find("instead of a GPU"), said.rfind("instead of a GPU")) << said;
    expect_throw<DeviceError>([] { gpu_device({.require = true}); },
                              {"a GPU is required", "cuda: ", "rocm: ", "oneapi: ", "metal: ", "opencl: no GPU"});
    expect_throw<DeviceError>([] { gpu_device({.index = 0}); },
                              {"GPU 0 does not exist", "has 0", "numbered from 0", "opencl: no GPU"});
  });
}

/// A driver with state `loaded` and no usable device.
class LoadedDriver : public TestDriver {
 public:
  using TestDriver::TestDriver;
  BackendReport enumerate() override {
    BackendReport report = TestDriver::enumerate();
    report.state = DeviceState::loaded;
    for (DeviceInfo& info : report.devices) info.state = DeviceState::loaded;
    return report;
  }
};

TEST(GpuDevice, ExplainsInAFewWordsWhyThereIsNoGpu) {
  in_fresh_process([] {
    const Place place;
    add(Backend::cpu, {{DeviceKind::cpu, gib}});
    register_driver(std::make_unique<LoadedDriver>(Backend::cuda));
    auto rocm = std::make_unique<LoadedDriver>(Backend::rocm);
    rocm->add_device(DeviceKind::discrete_gpu, gib);
    register_driver(std::move(rocm));
    EXPECT_EQ(current_device(), cpu0);
    expect_contains(why_current_device(Detail::brief), {"no GPU (cuda: no device; rocm: no usable device"});
  });
}

TEST(GpuDevice, InvalidIndexErrorContainsNumberOfGpus) {
  in_fresh_process([] {
    const Place place;
    machine({"a", "b", "c"});
    for (int i = 0; i < 3; ++i) EXPECT_EQ(gpu_device({.index = i}), (Device{Backend::cuda, i}));
    for (const int bad : {-1, 3, 1 << 30, std::numeric_limits<int>::min()})
      expect_throw<DeviceError>(
          [&] { gpu_device({.index = bad}); },
          {"GPU " + std::to_string(bad) + " does not exist", "has 3", "numbered from 0", "0 (cuda:0", "2 (cuda:2"});
  });
}

TEST(GpuDevice, SelectionHasNoStateAndOpensNothing) {
  in_fresh_process([] {
    const Place place;
    TestDriver& cuda = machine({"a", "b"});
    add(Backend::opencl, {{DeviceKind::discrete_gpu, gib}});
    EXPECT_EQ(gpu_device({.index = 1}), cuda1);
    EXPECT_EQ(gpu_device(), cuda0) << "the earlier selection has no effect";
    EXPECT_EQ(expected_device().device, cuda0);
    EXPECT_EQ(gpu_device({.index = 2}), (Device{Backend::opencl, 0}));
    EXPECT_EQ(gpu_device({.index = 0, .require = true}), cuda0);
    EXPECT_TRUE(has_gpu());
    for (int i = 0; i < 2; ++i) {
      EXPECT_EQ(cuda.behaviour(i)->opened, 0);
      EXPECT_EQ(cuda.behaviour(i)->allocations, 0);
    }
  });
}

TEST(GpuDevice, GpuListedByTwoDriversIsCountedOnce) {
  in_fresh_process([] {
    const Place place;
    machine({"pci:1", "pci:2"});
    auto opencl = std::make_unique<TestDriver>(Backend::opencl);
    opencl->add_device(DeviceKind::discrete_gpu, 2 * gib).identity = "pci:2";
    opencl->add_device(DeviceKind::discrete_gpu, gib).identity = "pci:3";
    register_driver(std::move(opencl));
    EXPECT_EQ(gpus(), (std::vector<Device>{cuda0, cuda1, {Backend::opencl, 1}}));
  });
}

TEST(GpuDevice, SkipsGpusWithTooLittleFreeMemory) {
  in_fresh_process([] {
    const Place place;
    add(Backend::cpu, {{DeviceKind::cpu, gib}});
    TestDriver& cuda = add(Backend::cuda, {{DeviceKind::discrete_gpu, 4 * gib},
                                           {DeviceKind::discrete_gpu, 3 * gib},
                                           {DeviceKind::discrete_gpu, 2 * gib}});
    cuda.behaviour(0)->live_bytes = 3 * gib + gib / 2;  // used by another program
    EXPECT_EQ(gpu_device(), cuda0);
    EXPECT_EQ(cuda.behaviour(0)->opened, 0);
    EXPECT_EQ(gpu_device({.free_memory = gib}), cuda1);
    EXPECT_EQ(gpu_device({.index = 1, .free_memory = gib}), cuda2);
    EXPECT_EQ(gpu_device({.free_memory = gib / 4}), cuda0);
    expect_throw<DeviceError>([] { gpu_device({.require = true, .free_memory = 8 * gib}); },
                              {"cuda:0 (test device 0) has 4 GiB in total, but 8 GiB are required", "cuda:2"});
    expect_throw<DeviceError>([] { gpu_device({.require = true, .free_memory = 3 * gib + gib / 2}); },
                              {"cuda:0 (test device 0) has", "free, but 3.50 GiB are required"});
    ::testing::internal::CaptureStderr();
    EXPECT_EQ(gpu_device({.free_memory = 8 * gib}), cpu0);
    expect_contains(::testing::internal::GetCapturedStderr(), {"using cpu:0 instead of a GPU", "8 GiB are required"});
    expect_throw<DeviceError>([] { gpu_device({.index = 1, .free_memory = 5 * gib / 2}); },
                              {"GPU 1 does not exist", "has 1"});
  });
}

TEST(GpuDevice, NamedDeviceIsAlwaysUsed) {
  in_fresh_process([] {
    const Place place;
    TestDriver& cuda = machine({"", ""});
    ::setenv("TESSERA_DEVICE", "cuda:1", 1);
    EXPECT_EQ(gpu_device({.require = true}), cuda1);
    {
      DeviceScope scope(cuda0);
      EXPECT_EQ(gpu_device(), cuda0);
    }
    {
      DeviceScope scope(cpu0);  // for arrays; does not apply to gpu_device()
      EXPECT_EQ(gpu_device(), cuda1);
    }
    ::setenv("TESSERA_DEVICE", "cpu", 1);
    rescan();
    const int asked = cuda.enumerations;
    ::testing::internal::CaptureStderr();
    EXPECT_EQ(gpu_device(), cpu0);
    expect_contains(::testing::internal::GetCapturedStderr(), {"instead of a GPU", "TESSERA_DEVICE=cpu"});
    expect_throw<DeviceError>([] { gpu_device({.require = true}); }, {"a GPU is required", "TESSERA_DEVICE=cpu"});
    EXPECT_EQ(cuda.enumerations, asked) << "no GPU driver is probed";
  });
}

}  // namespace
}  // namespace tessera
