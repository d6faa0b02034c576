// SPDX-License-Identifier: Apache-2.0
#include "survey.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>

#include "tessera/base/config.h"
#include "tessera/base/error.h"
#include "tessera/base/printable.h"

namespace tessera::app {

std::string_view title(Backend backend) {
  static constexpr std::string_view titles[] = {"CPU", "CUDA", "ROCm", "oneAPI", "Metal", "OpenCL", "Interpreter"};
  return titles[static_cast<std::size_t>(backend)];
}

bool usable(DeviceState state) { return state == DeviceState::enumerated || state == DeviceState::verified; }

bool usable(const DeviceInfo& info, const Survey& s) {
  const auto opened = s.opened.find(info.device);
  return usable(info.state) && (opened == s.opened.end() || opened->second.error.empty());
}

Survey survey(bool list_only, const Row& row) {
  Survey s;
  Progress progress(false);
  for (const Backend backend : all_backends) {
    progress.update(fmt::format("probing the driver of {}", title(backend)));
    const BackendReport first = discover(backend);
    for (const DeviceInfo& info : first.devices) {
      if (list_only) break;
      progress.update(fmt::format("running a first kernel on {} ({})", to_string(info.device), info.name));
      Opened& o = s.opened[info.device];
      try {
        o.free = free_memory(info.device);  // opening runs the first kernel
      } catch (const Error& e) {
        o.error = e.what();
      }
    }
    progress.clear();
    s.backends.push_back(discover(backend));
    if (row) row(s);
  }
  try {
    if (list_only) {
      const Selection expected = expected_device();
      s.chosen = {expected.device, expected.why, {}};
    } else {
      s.chosen.device = current_device();
      s.chosen.why = why_current_device();
    }
  } catch (const Error& e) {
    s.chosen.error = e.what();
  }
  return s;
}

namespace {

/// Returns std::nullopt for an unknown size, which drivers report as 0 or as a number with all bits set.
std::optional<std::uint64_t> known(std::uint64_t bytes) {
  return bytes != 0 && bytes < std::uint64_t{1} << 60 ? std::optional(bytes) : std::nullopt;
}
/// Like `known`, but 0 free bytes is a valid value if the total is known.
std::optional<std::uint64_t> known_free(std::uint64_t total, std::optional<std::uint64_t> free) {
  return !free || (*free == 0 && known(total)) ? free : known(*free);
}
nlohmann::ordered_json json_of(std::optional<std::uint64_t> bytes) {
  return bytes ? nlohmann::ordered_json(*bytes) : nlohmann::ordered_json();
}
std::string memory_text(std::uint64_t total, std::optional<std::uint64_t> free) {
  const auto gibibytes = [](std::uint64_t bytes) { return static_cast<double>(bytes) / (1u << 30); };
  std::string text = known(total) ? fmt::format("{:.2f} GiB", gibibytes(total)) : "memory unknown";
  if (const auto bytes = known_free(total, free)) text += fmt::format(" ({:.2f} GiB free)", gibibytes(*bytes));
  return text;
}

/// Returns why a device is not used. If it was listed but could not be opened, this is the error of opening it.
std::string reason_of(const DeviceInfo& info, const Survey& s) {
  const auto opened = s.opened.find(info.device);
  const bool failed = opened != s.opened.end() && !opened->second.error.empty();
  return failed && (info.reason.empty() || info.state == DeviceState::enumerated) ? opened->second.error : info.reason;
}

/// Truncates text to its first lines, because a compiler's log may have hundreds of lines. The JSON output contains all
/// lines.
std::string first_lines(const std::string& text) {
  constexpr int most = 4;
  std::size_t end = 0;
  for (int lines = 0; lines < most; ++lines) {
    end = text.find('\n', end);
    if (end == text.npos) return text;
    ++end;
  }
  const auto more = std::count(text.begin() + static_cast<std::ptrdiff_t>(end), text.end(), '\n') + 1;
  return text.substr(0, end) + fmt::format("({} more; --json has all)", count_noun(more, "line"));
}

std::string joined(const std::vector<std::string>& parts, std::string_view with) {
  return fmt::format("{}", fmt::join(parts, with));
}

std::string capability_text(const Capabilities& can) {
  std::vector<std::string> does;
  if (can.f64) does.emplace_back("f64");
  if (can.f16) does.emplace_back("f16");
  if (can.bf16) does.emplace_back("bf16");
  if (can.int8_dot) does.emplace_back("int8 dot");
  if (can.matrix_f16) {
    std::string of = "f16";
    if (can.matrix_bf16) of += ", bf16";
    if (can.matrix_tf32) of += can.matrix_f32 ? ", f32" : ", tf32";
    if (can.matrix_i8) of += ", int8";
    does.push_back("matrices of " + of);
  }
  if (can.atomic_f32) does.emplace_back("f32 atomics");
  if (can.atomic_i64) does.emplace_back("64-bit atomics");
  std::vector<std::string> widths;
  for (std::uint32_t w : can.subgroup_widths) widths.push_back(std::to_string(w));
  const bool subgroups =
      can.subgroup_widths.size() > 1 || (can.subgroup_widths.size() == 1 && can.subgroup_widths[0] > 1);
  return fmt::format("{}; blocks of up to {} threads with {} shared; {}",
                     does.empty() ? "f32 and integers only" : joined(does, ", "), can.max_block_threads,
                     config::format_bytes(can.shared_bytes),
                     subgroups ? "subgroups of " + joined(widths, ", ") : "no subgroups");
}

nlohmann::ordered_json json_of(const Capabilities& can) {
  return {{"f16", can.f16},
          {"bf16", can.bf16},
          {"f64", can.f64},
          {"int64", can.int64},
          {"atomic_i64", can.atomic_i64},
          {"atomic_f32", can.atomic_f32},
          {"int8_dot", can.int8_dot},
          {"matrix_f16", can.matrix_f16},
          {"matrix_bf16", can.matrix_bf16},
          {"matrix_tf32", can.matrix_tf32},
          {"matrix_f32", can.matrix_f32},
          {"matrix_i8", can.matrix_i8},
          {"async_copies", can.async_copies},
          {"subgroup_widths", can.subgroup_widths},
          {"max_block_threads", can.max_block_threads},
          {"max_block", can.max_block},
          {"shared_bytes", can.shared_bytes},
          {"max_parameter_bytes", can.max_parameter_bytes},
          {"vector_bytes", can.vector_bytes}};
}

}  // namespace

void Table::backend(const BackendReport& row, const Survey& s) {
  bool any = false;
  for (const DeviceInfo& info : row.devices) any = any || usable(info, s);
  app::print("{} {} ({}): {}{}{}\n", style_.mark(any), style_.strong(title(row.backend)), backend_name(row.backend),
             state_name(row.state), row.file.empty() ? "" : ", " + row.file,
             row.remembered ? style_.faint(" (cached)") : "");
  for (const DeviceInfo& info : row.devices) device(info, s);
  parts(row);
  const auto said = [&](const DeviceInfo& info) { return info.reason == row.reason; };
  // Omit the reason if a device or a part of the driver has already printed it.
  if (row.devices.empty() ? row.parts.empty() : std::ranges::none_of(row.devices, said))
    reasons(row.reason, row.remedy, 4);
  std::fflush(output());
}

void Table::device(const DeviceInfo& info, const Survey& s) {
  const auto opened = s.opened.find(info.device);
  std::string memory = memory_text(info.total_memory, opened != s.opened.end() ? opened->second.free : std::nullopt);
  if (info.unified_memory) memory += ", shared with the host";
  const std::string state = usable(info, s) ? std::string(state_name(info.state)) : style_.bad(state_name(info.state));
  app::print("    [{}] {}: {}, {}\n", to_string(info.device), info.name, memory, state);
  std::vector<std::string> about;
  about.emplace_back(kind_name(info.kind));
  if (!info.vendor.empty()) about.push_back(info.vendor);
  if (info.compute_units) about.push_back(count_noun(info.compute_units, "compute unit"));
  if (!info.driver_version.empty()) about.push_back(info.driver_version);
  if (!info.identity.empty()) about.push_back("identity " + info.identity);
  if (const auto same = same_card(info.device)) about.push_back("the same card as " + to_string(*same));
  app::print("{}\n", style_.faint("        " + wrapped(joined(about, ", "), 8, columns_, 8)));
  const std::string blas = info.blas.empty()              ? ""
                           : info.blas.starts_with("no ") ? "; " + info.blas
                                                          : "; large products by " + info.blas;
  app::print("{}\n", style_.faint("        " + wrapped(capability_text(info.can) + blas, 8, columns_, 8)));
  reasons(reason_of(info, s), info.remedy, 8);
}

void Table::reasons(const std::string& reason, const std::string& remedy, std::size_t indent) {
  const std::string spaces(indent, ' ');
  if (!reason.empty()) paragraph(spaces + "Why:  ", first_lines(reason), indent + 6);
  if (!remedy.empty()) paragraph(spaces + "Do:   ", remedy, indent + 6);
}

void Table::paragraph(const std::string& first, const std::string& text, std::size_t indent) {
  app::print("{}{}\n", first, wrapped(text, indent, columns_, text_width(first)));
}

void Table::parts(const BackendReport& row) {
  for (const DriverPart& part : row.parts) {
    if (part.state == DeviceState::enumerated) continue;  // the devices of this part are printed above
    app::print("    {}: {}{}\n", part.name,
               usable(part.state) ? std::string(state_name(part.state)) : style_.bad(state_name(part.state)),
               part.file.empty() ? "" : ", " + part.file);
    reasons(part.reason, part.remedy, 8);
  }
}

nlohmann::ordered_json json_of(const Survey& s) {
  using Json = nlohmann::ordered_json;
  Json backends = Json::array();
  for (const BackendReport& row : s.backends) {
    Json devices = Json::array(), parts = Json::array();
    for (const DriverPart& part : row.parts)
      parts.push_back({{"name", part.name},
                       {"file", part.file},
                       {"state", state_name(part.state)},
                       {"reason", part.reason},
                       {"remedy", part.remedy}});
    for (const DeviceInfo& info : row.devices) {
      const auto opened = s.opened.find(info.device);
      const bool was = opened != s.opened.end();
      const auto same = same_card(info.device);
      devices.push_back(
          {{"device", to_string(info.device)},
           {"name", info.name},
           {"vendor", info.vendor},
           {"driver_version", info.driver_version},
           {"identity", info.identity},
           {"same_card_as", same ? Json(to_string(*same)) : Json()},
           {"kind", kind_name(info.kind)},
           {"state", state_name(info.state)},
           {"reason", reason_of(info, s)},
           {"remedy", info.remedy},
           {"total_memory", json_of(known(info.total_memory))},
           {"free_memory", json_of(known_free(info.total_memory, was ? opened->second.free : std::nullopt))},
           {"unified_memory", info.unified_memory},
           {"compute_units", info.compute_units},
           {"blas", info.blas},
           {"capabilities", json_of(info.can)}});
    }
    backends.push_back({{"backend", backend_name(row.backend)},
                        {"state", state_name(row.state)},
                        {"file", row.file},
                        {"reason", row.reason},
                        {"remedy", row.remedy},
                        {"remembered", row.remembered},
                        {"devices", devices},
                        {"parts", parts}});
  }
  return {{"version", TESSERA_VERSION},
          {"backends", backends},
          {"current",
           {{"device", s.chosen.device ? Json(to_string(*s.chosen.device)) : Json()},
            {"why", s.chosen.why},
            {"error", s.chosen.error}}}};
}

}  // namespace tessera::app
