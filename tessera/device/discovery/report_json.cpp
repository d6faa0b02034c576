// SPDX-License-Identifier: Apache-2.0
#include "tessera/device/discovery/report_json.h"

#include <nlohmann/json.hpp>

#include "tessera/base/error.h"
#include "tessera/base/printable.h"

namespace tessera {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::array all_states = {DeviceState::unsupported, DeviceState::supported, DeviceState::loaded,
                                   DeviceState::enumerated,  DeviceState::verified,  DeviceState::quarantined,
                                   DeviceState::crashed,     DeviceState::hung,      DeviceState::lost};
constexpr std::array all_kinds = {DeviceKind::discrete_gpu, DeviceKind::integrated_gpu, DeviceKind::cpu,
                                  DeviceKind::other};

/// Lists the fields for reading and for writing, so that every written field is also read.
template <class Visit>
void fields(auto& can, Visit&& visit) {
  // Does not compile if a capability is added to the struct but not listed here.
  [[maybe_unused]] const auto& [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v] = can;
  visit("f16", can.f16);
  visit("bf16", can.bf16);
  visit("f64", can.f64);
  visit("int64", can.int64);
  visit("atomic_i64", can.atomic_i64);
  visit("atomic_f32", can.atomic_f32);
  visit("int8_dot", can.int8_dot);
  visit("matrix_f16", can.matrix_f16);
  visit("matrix_bf16", can.matrix_bf16);
  visit("matrix_tf32", can.matrix_tf32);
  visit("matrix_f32", can.matrix_f32);
  visit("matrix_i8", can.matrix_i8);
  visit("async_copies", can.async_copies);
  visit("subgroup_widths", can.subgroup_widths);
  visit("max_block_threads", can.max_block_threads);
  visit("max_block", can.max_block);
  visit("max_blocks", can.max_blocks);
  visit("max_grid_threads", can.max_grid_threads);
  visit("shared_bytes", can.shared_bytes);
  visit("local_bytes", can.local_bytes);
  visit("max_parameter_bytes", can.max_parameter_bytes);
  visit("vector_bytes", can.vector_bytes);
}

template <class T>
T named(const Json& json, const char* field, const auto& all, auto&& name) {
  const std::string text = json.at(field).get<std::string>();
  for (const T value : all)
    if (name(value) == text) return value;
  fail<FormatError>({.operation = "report", .with = {{field, text}}, .wrong = "unknown name"});
}

/// The driver runs in the same process as the probe and may have written the answer. Texts are therefore sanitised
/// again.
std::string name_of(const Json& json, const char* field) { return printable_name(json.at(field).get<std::string>()); }
std::string text_of(const Json& json, const char* field) { return printable_text(json.at(field).get<std::string>()); }

Json json_of(const DeviceInfo& info) {
  Json can = Json::object();
  fields(info.can, [&](const char* name, const auto& value) { can[name] = value; });
  return {{"device", to_string(info.device)},
          {"name", info.name},
          {"vendor", info.vendor},
          {"driver_version", info.driver_version},
          {"identity", info.identity},
          {"kind", kind_name(info.kind)},
          {"state", state_name(info.state)},
          {"reason", info.reason},
          {"remedy", info.remedy},
          {"total_memory", info.total_memory},
          {"native_index", info.native_index},
          {"unified_memory", info.unified_memory},
          {"compute_units", info.compute_units},
          {"blas", info.blas},
          {"capabilities", can}};
}

DeviceInfo device_of_json(const Json& json) {
  DeviceInfo info;
  info.device = parse_device(json.at("device").get<std::string>());
  info.name = name_of(json, "name");
  info.vendor = name_of(json, "vendor");
  info.driver_version = name_of(json, "driver_version");
  info.identity = name_of(json, "identity");
  info.kind = named<DeviceKind>(json, "kind", all_kinds, kind_name);
  info.state = named<DeviceState>(json, "state", all_states, state_name);
  info.reason = text_of(json, "reason");
  info.remedy = text_of(json, "remedy");
  json.at("total_memory").get_to(info.total_memory);
  json.at("native_index").get_to(info.native_index);
  json.at("unified_memory").get_to(info.unified_memory);
  info.blas = printable_text(json.value("blas", ""));
  json.at("compute_units").get_to(info.compute_units);
  fields(info.can, [&](const char* name, auto& value) { json.at("capabilities").at(name).get_to(value); });
  return info;
}

}  // namespace

std::string report_json(const BackendReport& report) {
  Json devices = Json::array(), parts = Json::array();
  for (const DeviceInfo& info : report.devices) devices.push_back(json_of(info));
  for (const DriverPart& part : report.parts)
    parts.push_back({{"name", part.name},
                     {"file", part.file},
                     {"state", state_name(part.state)},
                     {"reason", part.reason},
                     {"remedy", part.remedy}});
  const Json all = {{"backend", backend_name(report.backend)},
                    {"state", state_name(report.state)},
                    {"file", report.file},
                    {"reason", report.reason},
                    {"remedy", report.remedy},
                    {"remembered", report.remembered},
                    {"devices", devices},
                    {"parts", parts}};
  return all.dump(-1, ' ', false, Json::error_handler_t::replace);
}

Json parse_json(std::string_view text) {
  constexpr int deepest = 16;  // the depth of a report with its envelope is 5
  const auto shallow = [](int depth, Json::parse_event_t, const Json&) {
    if (depth > deepest) fail<FormatError>({.operation = "report", .wrong = "nested too deeply"});
    return true;
  };
  try {
    return Json::parse(text, shallow);
  } catch (const Json::exception& e) {
    fail<FormatError>({.operation = "report", .wrong = e.what()});
  }
}

BackendReport report_from_json(const Json& json) {
  try {
    BackendReport report;
    report.backend = named<Backend>(json, "backend", all_backends, backend_name);
    report.state = named<DeviceState>(json, "state", all_states, state_name);
    report.file = text_of(json, "file");
    report.reason = text_of(json, "reason");
    report.remedy = text_of(json, "remedy");
    json.at("remembered").get_to(report.remembered);
    for (const Json& device : json.at("devices")) report.devices.push_back(device_of_json(device));
    for (const Json& part : json.at("parts"))
      report.parts.push_back({part.at("name").get<std::string>(), part.at("file").get<std::string>(),
                              named<DeviceState>(part, "state", all_states, state_name), text_of(part, "reason"),
                              text_of(part, "remedy")});
    return report;
  } catch (const nlohmann::json::exception& e) {
    fail<FormatError>({.operation = "report", .wrong = e.what()});
  } catch (const DeviceError& e) {
    fail<FormatError>({.operation = "report", .wrong = e.what()});
  }
}

}  // namespace tessera
