// SPDX-License-Identifier: Apache-2.0
// Misbehaving drivers (tests/drivers/hostile/hostile_cl.cpp, hostile_cuda.cpp), one at a time, together with working
// drivers. Tests `devices`, `doctor`, their JSON output, and a program with automatic device selection. These commands
// must end in time, list all other backends, report the driver correctly, print only valid text, leave no processes
// running, and be fast when they are run again.
//
// By default, each mode runs one of the commands and then `devices --json`. With TESSERA_TEST_LONG=1 (script/test
// --long), each mode runs all commands. With TESSERA_TEST_MODES=crash_build,latin1, only these modes run.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <regex>
#include <thread>

#include "tests/app/app_program.h"

using namespace tessera::test;
using nlohmann::json;

namespace {

enum class Computes : std::uint8_t { no, yes, either };

struct Mode {
  std::string name;
  Computes computes;
  std::vector<std::string> states;  ///< allowed states of its device, or of its backend if there is no device
  std::vector<std::string> says;    ///< expected parts of the reasons
  std::string error = {};           ///< allowed error of the program on the selected device
};
using Names = std::vector<std::string>;

const Names good = {"verified"}, dead = {"crashed"}, hung = {"hung"}, any = {};  // lists of allowed states

/// For a driver that ends a process that only lists devices.
Mode listing_dies(const std::string& name, const std::string& how) {
  return {name, Computes::no, dead, {how, "listing its devices"}};
}
Mode listing_hangs(const std::string& name) {
  return {name, Computes::no, hung, {"did not answer within 1 s", "TESSERA_PROBE_TIMEOUT"}};
}
Mode works(const std::string& name) { return {name, Computes::yes, good, {}}; }

std::vector<Mode> opencl_modes() {
  std::vector<Mode> all;
  for (const char* name : {"_exit_ctor", "exit_ctor", "exit_getdevices"})
    all.push_back(listing_dies(name, "ended the process while listing its devices (exit code 0)"));
  all.push_back(listing_dies("abort_ctor", "SIGABRT (signal 6)"));
  all.push_back(listing_dies("kill_ctor", "SIGKILL (signal 9)"));
  for (const char* name : {"crash_ctor", "recursion_ctor", "crash_getplatforms", "crash_platforminfo",
                           "crash_getdevices", "crash_deviceinfo", "garbage_platform"})
    all.push_back(listing_dies(name, "crashed while listing its devices: SIGSEGV (signal 11)"));
  for (const char* name :
       {"hang_ctor", "spin_ctor", "stop_ctor", "flood_endless_ctor", "hang_getplatforms", "hang_getdevices"})
    all.push_back(listing_hangs(name));
  all.push_back({"close_fds_ctor", Computes::no, dead, {"ended the process"}});
  for (const char* name : {"kill_group_ctor", "kill_parent_ctor"})
    all.push_back({name, Computes::no, dead, {"SIGKILL (signal 9)"}});
  for (const char* name :
       {"fake_name_ctor", "flood_stdout_ctor", "flood_stderr_ctor", "fork_ctor", "daemon_ctor", "print_ctor",
        "print_getplatforms", "flood_forks_ctor", "flood_threads_ctor", "garbage_strings", "long_strings",
        "unterminated_strings", "latin1", "escapes", "many_devices", "many_platforms", "lies_memory", "zero_units"})
    all.push_back(works(name));
  for (const char* name :
       {"crash_context", "crash_build", "crash_launch", "crash_read", "crash_finish", "crash_releasemem"})
    all.push_back({name, Computes::no, dead, {"SIGSEGV (signal 11)", "first kernel"}});
  all.push_back({"abort_functions", Computes::no, dead, {"SIGABRT (signal 6)", "first kernel"}});
  all.push_back(works("abort_optimising"));
  all.push_back({"exit_build", Computes::no, dead, {"ended the process", "(exit code 0)", "first kernel"}});
  for (const char* name : {"hang_context", "hang_build", "hang_launch", "hang_read", "hang_finish", "hang_waitevents"})
    all.push_back({name, Computes::no, hung, {"within", "first kernel"}});
  // Whether this is detected depends on whether a process waits for the driver's destructors.
  for (const char* name : {"crash_dtor", "hang_dtor"}) all.push_back({name, Computes::either, any, {}});
  all.push_back({"all_fail", Computes::no, {"supported", "loaded"}, {"-9999"}});
  all.push_back({"fail_build", Computes::no, any, {"hostile compiler: I do not like it"}});
  all.push_back({"oom_buffer", Computes::no, any, {"clCreateBuffer", "CL_MEM_OBJECT_ALLOCATION_FAILURE (-4)"}});
  for (const char* name : {"null_platform", "null_context", "null_buffer", "infinite_platforms", "huge_strings"})
    all.push_back({name, Computes::no, any, {}});
  for (const char* name : {"skip_launch", "wrong_read"})
    all.push_back({name, Computes::no, {"quarantined"}, {"computed a wrong result"}});
  for (const char* name : {"lies_devices", "zero_local_memory", "zero_workgroup"})
    all.push_back({name, Computes::either, any, {}});
  all.push_back({"zero_memory", Computes::either, any, {}, "does not fit into the memory of opencl:0"});
  return all;
}

std::vector<Mode> cuda_modes() {
  std::vector<Mode> all;
  for (const char* name : {"crash_ctor", "crash_init"})
    all.push_back(listing_dies(name, "crashed while listing its devices: SIGSEGV (signal 11)"));
  all.push_back(listing_dies("exit_ctor", "(exit code 0)"));
  for (const char* name : {"hang_init", "fork_hang_init", "stop_init"}) all.push_back(listing_hangs(name));
  for (const char* name : {"kill_group_init", "kill_parent_init"})
    all.push_back({name, Computes::no, dead, {"SIGKILL (signal 9)"}});
  for (const char* name :
       {"print_ctor", "daemon_init", "fork_init", "many_devices", "no_name", "unterminated_name", "latin1", "escapes"})
    all.push_back(works(name));
  all.push_back({"ctx_2", Computes::no, any, {"CUDA_ERROR_OUT_OF_MEMORY (2)"}});
  all.push_back({"ctx_46", Computes::no, any, {"CUDA_ERROR_DEVICE_UNAVAILABLE (46)"}});
  all.push_back({"ctx_999", Computes::no, any, {"CUDA_ERROR_UNKNOWN (999)"}});
  all.push_back({"crash_ctx", Computes::no, dead, {"SIGSEGV (signal 11)", "first kernel"}});
  all.push_back({"hang_ctx", Computes::no, hung, {"within", "first kernel"}});
  for (const char* name : {"crash_dtor", "hang_dtor"}) all.push_back({name, Computes::either, any, {}});
  for (const char* name : {"no_device", "negative_count"})
    all.push_back({name, Computes::no, {"loaded"}, {"the driver works but lists no device"}});
  for (const char* name : {"zero_attributes", "negative_attributes"}) all.push_back({name, Computes::either, any, {}});
  return all;
}

// Processes that are still running:

struct Process {
  int number = 0, parent = 0, session = 0;
  char state = '?';
  std::string name;
};
/// Reads a file of a process in /proc. Returns an empty string if the process has ended.
std::string file_of(int process, const char* name) {
  try {
    return text_of("/proc/" + std::to_string(process) + "/" + name);
  } catch (const std::ios_base::failure&) {
    return {};
  }
}
std::vector<Process> processes() {
  std::vector<Process> all;
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    Process p;
    p.number = std::atoi(entry.path().filename().c_str());
    if (p.number <= 0) continue;
    const std::string stat = file_of(p.number, "stat");
    const std::size_t open = stat.find('('), close = stat.rfind(')');
    if (open == stat.npos || close == stat.npos) continue;
    p.name = stat.substr(open + 1, close - open - 1);
    int group = 0;
    if (std::sscanf(stat.c_str() + close + 1, " %c %d %d %d", &p.state, &p.parent, &group, &p.session) == 4)
      all.push_back(std::move(p));
  }
  return all;
}
/// Returns processes of this session, or with `mark` in their environment, including zombies that this process must
/// reap. Waits briefly, then kills them, so that they don't disturb other tests.
std::string left_behind(int session, const std::string& mark) {
  std::string list;
  for (int attempt = 0; attempt < 25; ++attempt) {
    list.clear();
    const std::vector<Process> all = processes();
    const auto in_session = [&](int number) {
      return std::ranges::any_of(all, [&](const Process& p) { return p.number == number && p.session == session; });
    };
    for (const Process& p : all) {
      if (p.session != session && file_of(p.number, "environ").find(mark) == std::string::npos) continue;
      if (p.state == 'Z' && !in_session(p.parent)) continue;  // the system will reap it
      if (p.name == "hostile-own" || attempt == 24) ::kill(p.number, SIGKILL);
      if (p.name != "hostile-own")
        list += (list.empty() ? "" : ", ") + std::to_string(p.number) + " (" + p.name + ", " + p.state + ")";
    }
    if (list.empty()) return list;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  return list;
}

// Checks of the output:

std::string in_one_line(const std::string& text) { return std::regex_replace(text, std::regex("\\s+"), " "); }

/// Returns an error message if the output is not valid text for a terminal, else an empty string.
std::string no_text(const std::string& text) {
  try {
    static_cast<void>(json(text).dump());  // throws for invalid UTF-8
  } catch (const json::exception& e) {
    return e.what();
  }
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto c = static_cast<unsigned char>(text[i]);
    const bool high = c == 0xc2 && i + 1 < text.size() && static_cast<unsigned char>(text[i + 1]) < 0xa0;
    if ((c < 0x20 && c != '\n') || c == 0x7f || high) return "a control character at " + std::to_string(i);
  }
  return {};
}

struct Stage {
  const char *variable, *backend, *device, *title;
  const char *neighbour, *neighbour_name;  ///< the working GPU in the same machine
};
constexpr Stage opencl_stage = {"TESSERA_HOSTILE_CL", "opencl", "opencl:0", "OpenCL (opencl)", "cuda:0", "Fake H100"};
constexpr Stage cuda_stage = {"TESSERA_HOSTILE_CUDA", "cuda", "cuda:0", "CUDA (cuda)", "rocm:0", "Fake MI250X"};

enum class Command : std::uint8_t { devices, automatic, doctor, json, measure };
const char* name_of(Command c) {
  static constexpr const char* names[] = {"devices", "automatic", "doctor", "devices --json", "doctor with figures"};
  return names[static_cast<std::size_t>(c)];
}
Names arguments(Command c) {
  switch (c) {
    case Command::devices: return {"devices"};
    case Command::automatic:
      return {"generate", "models/pgdocs-2m-q8_0.gguf", "-p", "The index", "-n", "2", "--temperature", "0"};
    case Command::doctor: return {"doctor", "--no-figures"};
    case Command::json: return {"devices", "--json"};
    default: return {"doctor", "--limit", "1"};
  }
}

// Thirty devices take 7 s on two idle cores.
constexpr double run_with_timeout = 60, measured_in_time = 300, quick = 3;

/// A mode, with a separate cache.
class Case {
 public:
  Case(const Stage& stage, const Mode& mode) : stage_(stage), mode_(mode) {
    static std::atomic<int> number = 0;
    mark_ = std::to_string(::getpid()) + "-" + std::to_string(++number);
    write_file(folder_ / "hostile.icd", TESSERA_FAKES "/libfake_hostile_cl.so\n");
  }
  std::string complaints() const { return complaints_; }

  /// Runs the command with an empty cache, and then `devices --json` with the cache that it has written.
  void go(Command command) {
    std::filesystem::remove_all(folder_ / "cache");
    const bool with_neighbour = command != Command::automatic;
    const bool remembers = command != Command::json;
    once(command, with_neighbour);
    if (!remembers) return;
    // The first run may be slow because of other load.
    double best = quick;
    for (int attempt = 0; attempt < 3 && best >= quick; ++attempt)
      best = std::min(best, once(Command::json, with_neighbour).seconds);
    if (best >= quick) complain(Command::json, "again: not within 3 s");
  }

 private:
  void complain(Command command, const std::string& what) {
    constexpr std::size_t most = 2000;
    complaints_ += mode_.name + ": " + name_of(command) + ": " + what.substr(0, most) + "\n";
  }
  std::map<std::string, std::string> environment(bool with_neighbour) const {
    const std::string fakes = TESSERA_FAKES "/libfake_";
    const bool cl = std::string_view(stage_.backend) == "opencl";
    std::map<std::string, std::string> all = {{"TESSERA_PROBE", TESSERA_SHOWN_PROBE},
                                              {"TESSERA_PROBE_TIMEOUT", "1"},
                                              {"TESSERA_CACHE_DIR", folder_ / "cache"},
                                              {"TESSERA_HOSTILE_MARK", mark_},
                                              {"TESSERA_BLAS", "off"},
                                              {"TESSERA_NVRTC_LIBRARY", fakes + "nvrtc.so"},
                                              {"TESSERA_HIPRTC_LIBRARY", fakes + "hiprtc.so"},
                                              {"TESSERA_ROCM_LIBRARY", "/nonexistent/libamdhip64.so.5"},
                                              {"TESSERA_ONEAPI_LIBRARY", "/nonexistent/libze_loader.so.1"},
                                              {stage_.variable, mode_.name}};
    if (cl) {
      all["OCL_ICD_VENDORS"] = folder_ / "hostile.icd";
      all["TESSERA_CUDA_LIBRARY"] = with_neighbour ? fakes + "cuda.so" : "/nonexistent/libcuda.so.1";
    } else {
      all["TESSERA_OPENCL_LIBRARY"] = "/nonexistent/libOpenCL.so.1";
      all["TESSERA_CUDA_LIBRARY"] = fakes + "hostile_cuda.so";
      if (with_neighbour) all["TESSERA_ROCM_LIBRARY"] = fakes + "hip.so";
      if (mode_.name == "many_devices") all["TESSERA_FAKE_DEVICES"] = "30";
    }
    return all;
  }

  Outcome once(Command command, bool with_neighbour) {
    const auto start = std::chrono::steady_clock::now();
    std::optional<std::chrono::steady_clock::duration> first_row;
    const auto look = [&](const std::string& out, const std::string&) {
      if (!first_row && out.find("[cpu:0]") != out.npos) first_row = std::chrono::steady_clock::now() - start;
      return false;
    };
    Outcome o = run(arguments(command), {.environment = environment(with_neighbour),
                                         .limit = command == Command::measure ? measured_in_time : run_with_timeout,
                                         .interrupt = look,
                                         .own_session = true});
    const std::string left = left_behind(o.process, "TESSERA_HOSTILE_MARK=" + mark_ + '\0');
    if (!left.empty()) complain(command, "left behind: " + left);
    if (o.late) {
      complain(command, "did not end. Output so far: " + o.out + o.err);
      return o;
    }
    // Measurements are limited to a second, so there may be none on a busy machine.
    const bool refused =
        command == Command::automatic && o.code == 1 && !mode_.error.empty() && o.err.find(mode_.error) != o.err.npos;
    if (o.code != 0 && !refused && (command != Command::measure || o.code != 1))
      complain(command, "exit code " + std::to_string(o.code) + ": " + o.out + o.err);
    if (o.code > 1) return o;
    for (const std::string& stream : {o.out, o.err})
      if (const std::string why = no_text(stream); !why.empty()) complain(command, "no text, " + why + ": " + stream);
    switch (command) {
      case Command::automatic:
        if (!refused) check_chosen(o);
        break;
      case Command::json: check_json(o, with_neighbour); break;
      default: check_table(command, o);
    }
    // While one thread waits for a driver, other threads can read the available reports.
    if (command == Command::devices && mode_.states == hung)
      if (const std::chrono::duration<double> at = first_row.value_or(std::chrono::hours(1));
          o.seconds - at.count() < 0.5)
        complain(command, "no row was printed before the hanging driver was probed");
    return o;
  }

  void check_chosen(const Outcome& o) {
    const std::string text = in_one_line(o.err);
    const bool this_one = text.find(std::string("device ") + stage_.device + " (") != text.npos;
    const bool cpu = text.find("device cpu:0 (") != text.npos;
    const bool right = mode_.computes == Computes::yes  ? this_one
                       : mode_.computes == Computes::no ? cpu
                                                        : this_one || cpu;
    if (!right) complain(Command::automatic, "a different device than expected: " + o.err);
  }

  void check_table(Command command, const Outcome& o) {
    const std::string text = in_one_line(o.out);
    const auto needs = [&](const std::string& part) {
      if (text.find(part) == text.npos) complain(command, "\"" + part + "\" is not in: " + o.out + o.err);
    };
    for (const char* part : {"CPU (cpu): verified", "[cpu:0] ", "[interp:0] "}) needs(part);
    needs(std::string("[") + stage_.neighbour + "] " + stage_.neighbour_name);
    needs(stage_.title);
    for (const std::string& part : mode_.says) needs(part);
    const std::string gpu = std::string("A GPU is used: ") + stage_.device;
    if (mode_.computes == Computes::no && text.find(gpu) != text.npos) complain(command, "\"" + gpu + "\": " + o.out);
    if (mode_.computes == Computes::no && text.find(std::string("New arrays go to ") + stage_.device) != text.npos)
      complain(command, "selects an unusable device: " + o.out);
  }

  void check_json(const Outcome& o, bool with_neighbour) {
    json all;
    try {
      all = json::parse(o.out);
    } catch (const json::exception& e) {
      return complain(Command::json, std::string("no JSON, ") + e.what() + ": " + o.out.substr(0, 500));
    }
    std::string state, reasons;
    std::map<std::string, std::string> states, names;
    for (const json& row : all["backends"]) {
      const bool this_one = row["backend"] == stage_.backend;
      if (this_one) state = row["state"].get<std::string>();
      if (this_one) reasons += row["reason"].get<std::string>() + "\n";
      for (const json& part : row["parts"])
        if (this_one) reasons += part["reason"].get<std::string>() + "\n";
      for (const json& device : row["devices"]) {
        states[device["device"]] = device["state"];
        names[device["device"]] = device["name"];
        if (this_one) reasons += device["reason"].get<std::string>() + "\n";
      }
    }
    if (states.contains(stage_.device)) state = states[stage_.device];
    const auto wants = [&](const std::string& device, const std::string& name) {
      if (states[device] != "verified" || names[device].find(name) == std::string::npos)
        complain(Command::json, device + " is \"" + names[device] + "\", " + states[device]);
    };
    wants("cpu:0", "");
    wants("interp:0", "interpreter");
    if (with_neighbour) wants(stage_.neighbour, stage_.neighbour_name);
    if (!mode_.states.empty() && std::ranges::find(mode_.states, state) == mode_.states.end())
      complain(Command::json, "its state is " + state + ": " + reasons);
    if (mode_.computes == Computes::no && (state == "verified" || state.empty() || reasons.size() < 10))
      complain(Command::json, "its state is \"" + state + "\", because of \"" + reasons + "\"");
    for (const std::string& part : mode_.says)
      if (reasons.find(part) == reasons.npos) complain(Command::json, "\"" + part + "\" is not in: " + reasons);
    if (mode_.computes == Computes::no && all["current"]["device"] == stage_.device)
      complain(Command::json, "selects an unusable device");
  }

  const Stage& stage_;
  const Mode& mode_;
  const TemporaryFolder folder_;
  std::string mark_, complaints_;
};

bool asked_for(const std::string& mode) {
  const char* only = std::getenv("TESSERA_TEST_MODES");
  return only == nullptr || *only == 0 || ("," + std::string(only) + ",").find("," + mode + ",") != std::string::npos;
}

/// Runs all modes. Several run in parallel, because most of them wait.
void play(const Stage& stage, const std::vector<Mode>& all) {
  const char* variable = std::getenv("TESSERA_TEST_LONG");
  const bool at_length = variable != nullptr && std::string_view(variable) == "1";
  constexpr std::array commands = {Command::devices, Command::automatic, Command::doctor, Command::json,
                                   Command::measure};
  std::atomic<std::size_t> next = 0;
  std::mutex lock;
  std::map<std::string, std::string> complaints;  // guarded by `lock`
  const auto work = [&] {
    for (std::size_t i; (i = next++) < all.size();) {
      if (!asked_for(all[i].name)) continue;
      Case one(stage, all[i]);
      try {
        for (const Command c : commands)
          if (at_length || c == commands[i % 3]) one.go(c);
      } catch (const std::exception& e) {
        std::lock_guard hold(lock);
        complaints[all[i].name] += all[i].name + ": " + e.what() + "\n";
      }
      std::lock_guard hold(lock);
      if (!one.complaints().empty()) complaints[all[i].name] += one.complaints();
    }
  };
  std::vector<std::thread> workers;
  for (int i = 0; i < 3; ++i) workers.emplace_back(work);
  for (std::thread& w : workers) w.join();
  for (const auto& [mode, text] : complaints) ADD_FAILURE() << text;
}

/// Misbehaviour in a launch long after the trial cannot be prevented, but it is reported.
class LaterLaunch : public ::testing::Test {
 public:
  /// Runs `generate` on a device with a driver that misbehaves after the first launches. Kills the program when `says`
  /// appears on standard error.
  Outcome generate(const std::string& mode, const std::string& says = {}) {
    write_file(folder_ / "hostile.icd", TESSERA_FAKES "/libfake_hostile_cl.so\n");
    const std::string none = "/nonexistent/library.so";
    return run({"generate", "models/pgdocs-2m-q8_0.gguf", "-p", "The index", "-n", "2", "--temperature", "0", "-q",
                "--device", "opencl:0"},
               {.environment = {{"TESSERA_PROBE", TESSERA_SHOWN_PROBE},
                                {"TESSERA_PROBE_TIMEOUT", "1"},
                                {"TESSERA_WATCHDOG", "1"},
                                {"TESSERA_CACHE_DIR", folder_ / "cache"},
                                {"TESSERA_BLAS", "off"},
                                {"TESSERA_CUDA_LIBRARY", none},
                                {"TESSERA_ROCM_LIBRARY", none},
                                {"TESSERA_ONEAPI_LIBRARY", none},
                                {"OCL_ICD_VENDORS", folder_ / "hostile.icd"},
                                {"TESSERA_HOSTILE_CL", mode},
                                {"TESSERA_HOSTILE_AFTER", "40"}},
                .limit = 60,
                .interrupt =
                    [&](const std::string&, const std::string& err) {
                      return !says.empty() && err.find(says) != err.npos && err.back() == '\n';
                    },
                .signal = SIGKILL,
                .own_session = true});
  }

 private:
  const TemporaryFolder folder_;
};

TEST_F(LaterLaunch, ExitByDriverIsReported) {
  const Outcome here = generate("exit_launch");
  EXPECT_EQ(here.code, 1) << here.out << here.err;
  EXPECT_TRUE(holds(here.err, {"tessera: error: the driver of opencl:0 (Hostile GPU) ended the program"}));
  // The driver may also call exit on its own thread.
  const Outcome elsewhere = generate("thread_exit_launch");
  EXPECT_EQ(elsewhere.code, 1) << elsewhere.out << elsewhere.err;
  EXPECT_TRUE(holds(elsewhere.err, {"tessera: error: ", "ended the program"}));
}

TEST_F(LaterLaunch, HangingCallIsReported) {
  const std::string text = "the driver of opencl:0 (Hostile GPU) has not returned for 1";
  const Outcome o = generate("hang_launch", text);
  EXPECT_EQ(o.code, 128 + SIGKILL);
  EXPECT_TRUE(holds(o.err, {text}));
}

TEST_F(LaterLaunch, EventThatNeverCompletesIsReported) {
  const std::string text = "waiting for opencl:0 (Hostile GPU) for 1";
  const Outcome o = generate("hang_waitevents", text);
  EXPECT_EQ(o.code, 128 + SIGKILL);
  EXPECT_TRUE(holds(o.err, {text, "latest work in its queue: "}));
}

TEST(HostileDriver, OpenClDriverAffectsOnlyItsReport) { play(opencl_stage, opencl_modes()); }
TEST(HostileDriver, CudaDriverAffectsOnlyItsReport) { play(cuda_stage, cuda_modes()); }

}  // namespace
