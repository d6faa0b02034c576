// SPDX-License-Identifier: Apache-2.0
#include "tessera/device/probe.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <exception>
#include <nlohmann/json.hpp>

#include "tessera/base/error.h"
#include "tessera/base/log.h"
#include "tessera/base/os/child.h"
#include "tessera/base/os/library.h"
#include "tessera/base/os/library_search.h"
#include "tessera/base/os/system.h"
#include "tessera/device/report_json.h"
#include "tessera/device/settings.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr std::string_view answer_option = "--answer=";
constexpr int protocol = 1;  ///< of the answer: a probe of another version is not believed

void say_once(const std::string& text) {
  static std::atomic<bool> said = false;
  if (said.exchange(true)) return;
  const std::optional<std::string>& named = settings().probe;
  if (named && *named != "off")
    logging::warn(text + "; TESSERA_PROBE names this program");
  else
    logging::info(text);
}

/// The end of what a driver printed, on one line.
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
  for (const char c : text) {
    if (c == '\n')
      line += " / ";
    else if (static_cast<unsigned char>(c) >= 0x20)
      line += c;
  }
  return line.empty() ? "it printed nothing" : "the last that it printed: " + line;
}

/// "libamdhip64", for a sentence.
std::string named(const BackendReport& report) { return report.file.empty() ? "the driver" : report.file; }

std::string reinstall(Backend backend) {
  switch (backend) {
    case Backend::cuda: return "reinstall or update NVIDIA's driver (Debian: nvidia-driver and libcuda1)";
    case Backend::rocm: return "reinstall or update the HIP runtime (Debian and Ubuntu: libamdhip64-5)";
    case Backend::oneapi: return "reinstall or update Level Zero and Intel's driver (Debian: libze1, intel-opencl-icd)";
    case Backend::opencl: return "reinstall or update the package that its file belongs to (dpkg -S FILE)";
    default: return "reinstall or update the driver";
  }
}

void died(BackendReport& report, DeviceState state, std::string how, const std::string& words) {
  report.state = state;
  report.reason = fmt::format("{} {}; {}", named(report), how, last_words(words));
  report.remedy = fmt::format(
      "It was asked in a process of its own, and is not loaded into this one; other devices are not touched. To use "
      "it, "
      "{}; `tessera devices --rescan` then asks it again",
      reinstall(report.backend));
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
    say_once("TESSERA_PROBE=off: drivers are asked inside this process");
    return std::nullopt;
  }
  const fs::path own = os::own_folder();
  std::vector<fs::path> places;
  if (named)
    places = {*named};
  else
    places = {own / "tessera" / "tessera-probe", own / "tessera-probe",
              own / ".." / "lib" / "tessera" / "tessera-probe"};
  for (const fs::path& place : places)
    if (os::file_exists(place.c_str())) return place.lexically_normal();
  say_once(fmt::format("the program tessera-probe is not at {}: drivers are asked inside this process",
                       places.front().string()));
  return std::nullopt;
}

std::optional<BackendReport> probe(const fs::path& program, Backend backend, const ForeignPart& part) {
  using End = os::ChildOutcome::End;
  BackendReport report{.backend = backend};
  const std::vector<std::string> found = files_found(part.libraries);
  if (!found.empty()) report.file = found.front();
  std::vector<std::string> command = {program.string(), std::string(backend_name(backend))};
  if (!part.name.empty()) command.push_back(part.name);
  command.push_back(fmt::format("{}{}", answer_option, os::process_number()));
  const std::chrono::seconds limit(settings().probe_timeout);
  const os::ChildOutcome child = os::run_child(command, limit);
  if (child.end == End::not_started) {
    say_once(
        fmt::format("tessera-probe could not be started ({}): drivers are asked inside this process", child.reason));
    return std::nullopt;
  }
  if (child.end == End::timed_out) {
    died(report, DeviceState::hung,
         fmt::format("did not answer within {} s, and was stopped (TESSERA_PROBE_TIMEOUT sets the seconds)",
                     limit.count()),
         child.words);
    return report;
  }
  // An answer that is whole counts, whatever the driver did to the process afterwards.
  if (!child.answer.empty()) {
    try {
      const Json json = parse_json(child.answer);
      if (json.at("protocol") == protocol && json.at("tessera") == TESSERA_VERSION) {
        BackendReport answer = report_from_json(json.at("report"));
        answer.backend = backend;
        return answer;
      }
      say_once(
          fmt::format("{} is of another version of Tessera: drivers are asked inside this process", program.string()));
      return std::nullopt;
    } catch (const std::exception& e) {
      logging::debug(fmt::format("tessera-probe's answer cannot be read: {}", e.what()));
    }
  }
  if (child.end == End::signalled)
    died(report, DeviceState::crashed,
         fmt::format("crashed when it was asked for its devices: {} (signal {})", os::signal_name(child.code),
                     child.code),
         child.words);
  else
    died(report, DeviceState::crashed,
         child.code < 0 ? "ended the process when it was asked for its devices"
                        : fmt::format("ended the process when it was asked for its devices (exit code {})", child.code),
         child.words);
  return report;
}

int probe_main(std::span<const std::string> arguments) {
  std::vector<std::string> words(arguments.begin(), arguments.end());
  int parent = 0;
  if (!words.empty() && words.back().starts_with(answer_option)) {
    parent = std::atoi(words.back().c_str() + answer_option.size());
    words.pop_back();
  }
  const bool answer = parent != 0;
  if (words.empty() || words.size() > 2)
    fail<ArgumentError>({.asked = "tessera-probe",
                         .wrong = "it takes the name of a backend, and of a part of its driver",
                         .todo = "Run `tessera devices` instead: it is what uses this program"});
  const Backend backend = parse_device(words[0]).backend;
  if (answer) os::live_as_child(parent);
  logging::set_level(logging::Level::off);  // what is printed from here on is the driver's
  Driver* driver = find_driver(backend);
  BackendReport report{.backend = backend, .reason = "there is no such driver"};
  if (driver != nullptr) {
    driver->allow({words.size() > 1 ? words[1] : std::string()});
    report = driver->enumerate();
    report.backend = backend;
  }
  const std::string text =
      Json{{"protocol", protocol}, {"tessera", TESSERA_VERSION}, {"report", Json::parse(report_json(report))}}.dump(
          answer ? -1 : 2);
  const bool written = os::write_answer(answer ? os::answer_descriptor : 1, text + "\n");
  os::leave(written ? 0 : 1);
}

}  // namespace tessera
