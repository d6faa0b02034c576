// SPDX-License-Identifier: Apache-2.0
#include "tessera/device/discovery/probe.h"

#include <fmt/format.h>
#include <signal.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <exception>
#include <nlohmann/json.hpp>

#include "tessera/base/config.h"
#include "tessera/base/error.h"
#include "tessera/base/log.h"
#include "tessera/base/os/child.h"
#include "tessera/base/os/library.h"
#include "tessera/base/os/library_search.h"
#include "tessera/base/os/system.h"
#include "tessera/base/printable.h"
#include "tessera/device/discovery/report_json.h"
#include "tessera/device/discovery/verify_device.h"
#include "tessera/device/launch/kernel_pack.h"
#include "tessera/device/settings.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr std::string_view open_option = "--open=", pack_option = "--pack=";
constexpr const char* own_error = "tessera-probe: error: ";  // printed by tessera-probe's main(), not by the driver
constexpr int protocol = 2;  ///< version of the answer's format; answers of other versions are rejected
constexpr int longer = 2;    ///< factor for the time limit of the second attempt

void say_once(const std::string& text) {
  static std::atomic<bool> said = false;
  if (said.exchange(true)) return;
  const std::optional<std::string>& named = settings().probe;
  if (named && *named != "off" && *named != "list")
    logging::warn(text + "; TESSERA_PROBE names this program");
  else
    logging::info(text);
}

/// Returns the last three lines of a driver's output, joined into one line.
std::string last_words(std::string text) {
  while (!text.empty() && (text.back() == '\n' || text.back() == ' ')) text.pop_back();
  std::size_t start = text.size();
  for (int lines = 0; lines < 3 && start != 0; ++lines) {
    const std::size_t before = text.rfind('\n', start - 1);
    start = before == text.npos ? 0 : before;
  }
  text.erase(0, start);
  if (!text.empty() && text.front() == '\n') text.erase(0, 1);
  constexpr std::size_t most = 600;
  if (text.size() > most) text = "..." + text.substr(text.size() - most);
  std::string line;
  for (const char c : text) line += c == '\n' ? std::string(" / ") : std::string(1, c);
  line = printable_text(line);
  return line.empty() ? "no output" : "last output: " + line;
}

std::string reinstall(Backend backend) {
  switch (backend) {
    case Backend::cuda: return "reinstall or update NVIDIA's driver (Debian: nvidia-driver and libcuda1)";
    case Backend::rocm: return "reinstall or update the HIP runtime (Debian and Ubuntu: libamdhip64-5)";
    case Backend::oneapi: return "reinstall or update Level Zero and Intel's driver (Debian: libze1, intel-opencl-icd)";
    case Backend::opencl: return "reinstall or update the package that its file belongs to (dpkg -S FILE)";
    default: return "reinstall or update the driver";
  }
}

/// Returns the memory limit of a probe in bytes. It is far above what drivers and compilers need, and low enough not to
/// exhaust the machine.
std::uint64_t most_memory() {
  constexpr std::uint64_t gib = std::uint64_t{1} << 30;
  std::uint64_t free = os::memory().available;
  if (const auto group = os::group_memory()) free = std::min(free, group->free);
  return free == 0 ? 4 * gib : std::clamp(free / 2, gib, 16 * gib);
}

/// Result of a probe: the answer, or a state and texts for the user.
struct Asked {
  Json answer;
  DeviceState state = DeviceState::enumerated;
  Validity holds = Validity::now;
  std::string reason, remedy;
};

/// Returns how long a crash is cached. If a lack of resources may be the cause, the next process may succeed.
Validity holds(const os::ChildOutcome& child) {
  using End = os::ChildOutcome::End;
  const auto says = [&](const char* what) { return child.words.find(what) != child.words.npos; };
  if (os::resources_are_limited() || says(own_error)) return Validity::now;
  // The kernel's out-of-memory killer sends SIGKILL.
  const bool killed = child.end == End::signalled && child.code == SIGKILL;
  const bool lacks = says("bad_alloc") || says("Cannot allocate memory") || says("Resource temporarily unavailable");
  return killed || lacks || child.end == End::too_much_memory ? Validity::temporary : Validity::always;
}

/// Describes why a driver did not answer: "crashed while ...: SIGSEGV (signal 11)".
std::string deed(const os::ChildOutcome& child, const os::ChildLimits& limits, const std::string& when) {
  using End = os::ChildOutcome::End;
  switch (child.end) {
    case End::too_much_memory:
      return fmt::format("was stopped because it allocated more than {} of memory while {}",
                         config::format_bytes(limits.memory), when);
    case End::too_much_answer:
      return fmt::format("was stopped because it wrote more than {} as its answer while {}",
                         config::format_bytes(limits.answer), when);
    case End::signalled:
      return fmt::format("crashed while {}: {} (signal {})", when, os::signal_name(child.code), child.code);
    default:
      return child.code < 0 ? fmt::format("ended the process while {}", when)
                            : fmt::format("ended the process while {} (exit code {})", when, child.code);
  }
}

/// Runs the probe. `who` is the driver or device, and `when` is the operation for messages ("listing its devices").
/// Returns std::nullopt if the program could not be started or has another version.
std::optional<Asked> ask(const std::vector<std::string>& command, Backend backend, const std::string& who,
                         const std::string& when) {
  using End = os::ChildOutcome::End;
  const std::chrono::seconds first(settings().probe_timeout);
  os::ChildLimits limits{.time = first, .memory = most_memory()};
  os::ChildOutcome child = os::run_child(command, limits);
  if (child.end == End::timed_out) {
    // Initialising several GPUs may take longer. A retry is affordable because a hang is then cached for a while.
    logging::warn(fmt::format("{} did not answer within {} s while {}; retrying with a limit of {} s", who,
                              first.count(), when, longer * first.count()));
    limits.time = longer * first;
    child = os::run_child(command, limits);
  }
  if (child.end == End::not_started) {
    say_once(fmt::format("tessera-probe could not be started ({}): drivers are loaded into this process directly",
                         child.reason));
    return std::nullopt;
  }
  // A complete answer is valid even if the driver crashed afterwards. An exception is a driver that killed the
  // supervisor: in the program, the driver would have killed an unrelated process.
  if (!child.answer.empty() && child.end != End::too_much_answer && !child.unwatched) {
    try {
      Json json = parse_json(child.answer);
      if (json.at("protocol") == protocol && json.at("tessera") == TESSERA_VERSION) return Asked{.answer = json};
      say_once(fmt::format("{} is from another version of Tessera: drivers are loaded into this process directly",
                           command[0]));
      return std::nullopt;
    } catch (const std::exception& e) {
      logging::debug(fmt::format("tessera-probe's answer cannot be read: {}", e.what()));
    }
  }
  Asked asked;
  const std::string words = last_words(child.words);
  if (child.end == End::timed_out) {
    asked.state = DeviceState::hung;
    asked.holds = Validity::temporary;
    asked.reason = fmt::format(
        "{} did not answer within {} s while {}, nor within {} s in a second attempt, and was stopped "
        "(TESSERA_PROBE_TIMEOUT sets the limit); {}",
        who, first.count(), when, longer * first.count(), words);
    asked.remedy = "It is retried after 10 minutes and by `tessera devices --rescan`. ";
    if (backend == Backend::cuda || backend == Backend::opencl)
      asked.remedy +=
          "NVIDIA's driver needs seconds to initialise each GPU unless it stays loaded: start nvidia-persistenced. ";
    asked.remedy += fmt::format("If it never answers, {}", reinstall(backend));
  } else {
    asked.state = DeviceState::crashed;
    asked.holds = holds(child);
    asked.reason = fmt::format("{} {}; {}", who, deed(child, limits, when), words);
    asked.remedy = fmt::format(
        "It was probed in a helper process and is not loaded into this one; other devices are not affected. To use "
        "it, {}{}; then run `tessera devices --rescan`",
        os::resources_are_limited()          ? "raise this process's limits (ulimit -a shows them), or "
        : asked.holds == Validity::temporary ? "free some memory on this machine (it is retried after 10 minutes), or "
                                             : "",
        reinstall(backend));
  }
  return asked;
}

std::vector<std::string> words_for(const fs::path& program, Backend backend, const VendorDriver& part) {
  std::vector<std::string> words = {program.string(), std::string(backend_name(backend))};
  if (!part.name.empty()) words.push_back(part.name);
  if (const std::string file = pack_file_set(); !file.empty()) words.push_back(std::string(pack_option) + file);
  return words;
}

BackendReport report_of(const Json& answer, Backend backend) {
  BackendReport report = report_from_json(answer.at("report"));
  report.backend = backend;
  return report;
}

/// The driver runs in the same process as the probe and may have corrupted the answer.
void unreadable(auto& found, const std::string& who, Backend backend, const std::exception& e) {
  found.state = DeviceState::crashed;
  found.reason = fmt::format("the probe's answer for {} cannot be read: {}", who, e.what());
  found.remedy = fmt::format("To use it, {}", reinstall(backend));
}

}  // namespace

std::vector<std::string> files_found(const std::vector<std::string>& names) {
  std::vector<std::string> files;
  for (const std::string& name : names)
    if (std::string file = os::loader_file(name); !file.empty()) files.push_back(std::move(file));
  return files;
}

std::optional<fs::path> probe_program() {
  const std::optional<std::string>& named = settings().probe;
  if (named == "off") {
    say_once("TESSERA_PROBE=off: drivers are loaded into this process directly");
    return std::nullopt;
  }
  const fs::path own = os::own_folder();
  std::vector<fs::path> places{own / "tessera" / "tessera-probe", own / "tessera-probe",
                               own / ".." / "lib" / "tessera" / "tessera-probe"};
#ifdef TESSERA_LIBRARY_FOLDER  // of the static library, which may be part of a program in any folder
  places.push_back(fs::path(TESSERA_LIBRARY_FOLDER) / "tessera" / "tessera-probe");
#endif
  if (named && *named != "list") places = {*named};
  for (const fs::path& place : places)
    if (os::file_exists(place.c_str())) return place.lexically_normal();
  say_once(fmt::format("tessera-probe was not found at {}: drivers are loaded into this process directly",
                       places.front().string()));
  return std::nullopt;
}

bool devices_are_tried() { return settings().probe != "list"; }

std::chrono::seconds longest_probe() {
  return std::chrono::seconds((1 + longer) * settings().probe_timeout + 10);  // plus the time to terminate the process
}

std::optional<Answer> probe(const fs::path& program, Backend backend, const VendorDriver& part) {
  Answer answer{.report = {.backend = backend}};
  BackendReport& report = answer.report;
  if (const auto found = files_found(part.libraries); !found.empty()) report.file = found.front();
  const auto asked = ask(words_for(program, backend, part), backend, report.file.empty() ? "the driver" : report.file,
                         "listing its devices");
  if (!asked) return std::nullopt;
  if (asked->state == DeviceState::enumerated) {
    try {
      report = report_of(asked->answer, backend);
      // Don't cache a report without devices: devices may appear when another program or service starts or stops.
      answer.holds = report.devices.empty() ? Validity::now : Validity::always;
    } catch (const std::exception& e) {
      unreadable(report, report.file, backend, e);
      answer.holds = Validity::always;
    }
    return answer;
  }
  report.state = asked->state;
  report.reason = asked->reason;
  report.remedy = asked->remedy;
  answer.holds = asked->holds;
  return answer;
}

std::optional<Trial> run_trial(const fs::path& program, Backend backend, const VendorDriver& part, int index,
                               const std::string& who) {
  std::vector<std::string> words = words_for(program, backend, part);
  words.push_back(fmt::format("{}{}", open_option, index));
  const auto asked = ask(words, backend, who, "opening the device and running a first kernel");
  if (!asked) return std::nullopt;
  Trial trial{.state = asked->state, .holds = asked->holds, .reason = asked->reason, .remedy = asked->remedy};
  if (asked->state != DeviceState::enumerated) return trial;
  try {
    trial.seen = report_of(asked->answer, backend);
    const Json& ended = asked->answer.at("trial");
    const std::string end = ended.at("end").get<std::string>();
    trial.reason = printable_text(ended.at("text").get<std::string>());
    trial.out_of_memory = end == "memory";
    trial.state = end == "works"   ? DeviceState::verified
                  : end == "wrong" ? DeviceState::quarantined
                                   : DeviceState::enumerated;
    trial.holds = trial.state == DeviceState::enumerated ? Validity::now : Validity::always;
  } catch (const std::exception& e) {
    unreadable(trial, who, backend, e);
    trial.holds = Validity::always;
  }
  return trial;
}

namespace {

/// Opens a device like the program would, and runs the verification kernels on it.
Json try_here(Driver& driver, int index) {
  const char* end = "error";
  std::string text;
  try {
    DriverDevice* const device = driver.open(index).release();  // never destroyed, like in the program
    text = verify_compiler(*device);
    end = text.empty() ? "works" : "wrong";
  } catch (const OutOfMemory& e) {
    end = "memory", text = e.what();
  } catch (const std::exception& e) {
    text = e.what();
  }
  return {{"end", end}, {"text", text}};
}

}  // namespace

int probe_main(std::span<const std::string> arguments) {
  std::vector<std::string> words(arguments.begin(), arguments.end());
  const bool answer = !words.empty() && words.back().starts_with(os::child_option);
  if (answer) {
    os::become_supervised_child(words.back().substr(os::child_option.size()));
    words.pop_back();
  }
  std::optional<int> open;
  if (!words.empty() && words.back().starts_with(open_option)) {
    open = std::atoi(words.back().c_str() + open_option.size());
    words.pop_back();
  }
  if (!words.empty() && words.back().starts_with(pack_option)) {
    set_pack(words.back().substr(pack_option.size()));
    words.pop_back();
  }
  if (words.empty() || words.size() > 2)
    fail<ArgumentError>(
        {.operation = "tessera-probe",
         .wrong = "expected a backend's name, then optionally a driver file, --pack=FILE and --open=NUMBER",
         .remedy = "Run `tessera devices` instead, which calls this program"});
  const Backend backend = parse_device(words[0]).backend;
  logging::set_level(logging::Level::off);  // all further output comes from the driver
  Driver* driver = find_driver(backend);
  BackendReport report{.backend = backend, .reason = "there is no such driver"};
  Json trial;
  if (driver != nullptr) {
    try {
      driver->allow({words.size() > 1 ? words[1] : std::string()});
      report = driver->enumerate();
    } catch (const std::exception& e) {  // an error in Tessera's code or out of memory, not a crash of the driver
      report = {
          .state = DeviceState::loaded, .reason = e.what(), .remedy = "The cause may be temporary; it will be retried"};
    }
    report.backend = backend;
    if (open) trial = try_here(*driver, *open);
  }
  const std::string text = Json{
      {"protocol", protocol},
      {"tessera", TESSERA_VERSION},
      {"report", Json::parse(report_json(report))},
      {"trial", trial}}.dump(answer ? -1 : 2, ' ', false, Json::error_handler_t::replace);
  const bool written = os::write_answer(answer ? os::answer_descriptor : 1, text + "\n");
  os::leave(written ? 0 : 1);
}

}  // namespace tessera
