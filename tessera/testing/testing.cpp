// SPDX-License-Identifier: Apache-2.0
#include "tessera/testing/testing.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <limits>
#include <numbers>

#include "tessera/base/os/system.h"
#include "tessera/base/philox.h"
#include "tessera/base/test_seed.h"

namespace tessera::testing {

namespace {

std::vector<Device> find_devices() {
  // One interpreter per subgroup size. Must be set before the first discovery of devices.
  if (!os::environment("TESSERA_SUBGROUP")) {
    ::setenv("TESSERA_SUBGROUP", "32,1,8,64", 0);
    rescan();
  }
  std::vector<Device> devices;
  for (const BackendReport& row : discover())
    for (const DeviceInfo& info : row.devices)
      if (info.state == DeviceState::enumerated || info.state == DeviceState::verified) devices.push_back(info.device);
  const std::string wanted = os::environment("TESSERA_TEST_DEVICES").value_or("");
  if (wanted.empty()) return devices;
  std::vector<Device> chosen;
  for (std::size_t at = 0; at <= wanted.size();) {
    const std::size_t end = std::min(wanted.find(',', at), wanted.size());
    const std::string name = wanted.substr(at, end - at);
    at = end + 1;
    const Device device = parse_device(name);
    device_info(device);            // throws if the device does not exist
    for (const Device d : devices)  // a name without an index selects all devices of that backend
      if (d == device || (d.backend == device.backend && name.find(':') == name.npos)) chosen.push_back(d);
  }
  return chosen;
}

thread_local const Device* running = nullptr;

std::string label(Device device) {
  const DeviceInfo& info = device_info(device);
  std::string text = to_string(device) + " (" + info.name;
  if (is_reference(device.backend)) text += ", subgroups of " + std::to_string(info.can.subgroup_widths.at(0));
  return text + ")";
}

bool seed_asked = false;

[[noreturn]] void failed(const char* what, const std::string& wrong) {
  fail<Failure>({.operation = what,
                 .with = {{"device", running ? label(*running) : "unknown"},
                          {"seed", seed_asked ? std::to_string(seed()) : "none"}},
                 .wrong = wrong});
}

std::string text_of(const detail::Number& n) {
  if (n.poison) return "poison (never written)";
  if (n.integer) return (n.negative ? "-" : "") + std::to_string(n.magnitude);
  char text[64];
  std::snprintf(text, sizeof text, "%.9g", n.real);
  return text;
}

/// Returns the error of `got` as a multiple of the tolerance. Errors up to 1 pass.
double error_of(const detail::Number& got, const detail::Number& expected, const Tolerance& tolerance) {
  constexpr double infinite = std::numeric_limits<double>::infinity();
  if (got.poison) return infinite;
  if (got.integer && expected.integer && got.negative == expected.negative && got.magnitude == expected.magnitude)
    return 0;
  if (std::isnan(got.real) || std::isnan(expected.real))
    return std::isnan(got.real) && std::isnan(expected.real) ? 0 : infinite;
  if (std::isinf(got.real) || std::isinf(expected.real)) return got.real == expected.real ? 0 : infinite;
  double difference = std::fabs(got.real - expected.real);
  // The integers differ by less than a double can represent.
  if (got.integer && expected.integer && difference == 0) difference = 1;
  if (difference == 0) return 0;
  const double allowed = tolerance.absolute + tolerance.relative * std::fabs(expected.real);
  return allowed > 0 ? difference / allowed : infinite;
}

}  // namespace

const std::vector<Device>& all_devices() {
  static const auto* devices = new std::vector<Device>(find_devices());
  return *devices;
}

void for_each_device(std::span<const Device> devices, const Callback<void(Device)>& body) {
  std::string failures;
  std::size_t count = 0;
  for (const Device device : devices) {
    struct Restore {
      const Device* before = running;
      ~Restore() { running = before; }
    } restore;
    running = &device;
    try {
      const DeviceScope scope(device);
      body(device);
    } catch (const std::exception& e) {
      ++count;
      failures += "\n  " + label(device) + ": " + e.what();
    }
  }
  if (count != 0)
    fail<Failure>({.operation = "test",
                   .wrong = "it failed on " + std::to_string(count) + " of " + std::to_string(devices.size()) +
                            " devices:" + failures});
}
void for_each_device(const Callback<void(Device)>& body) { for_each_device(all_devices(), body); }

std::uint64_t seed() {
  seed_asked = true;
  return test_seed();
}

std::uint64_t Random::bits() {
  const PhiloxCounter words = philox4x32(seed_, next_++);
  return std::uint64_t{words[0]} << 32 | words[1];
}
double Random::uniform(double low, double high) {
  const double value = low + (high - low) * static_cast<double>(bits() >> 11) * 0x1p-53;
  return value < high ? value : low;  // the product may have been rounded up to `high`
}
std::int64_t Random::integer(std::int64_t low, std::int64_t high) {
  const std::uint64_t count = static_cast<std::uint64_t>(high) - static_cast<std::uint64_t>(low) + 1;
  return static_cast<std::int64_t>(static_cast<std::uint64_t>(low) + (count == 0 ? bits() : bits() % count));
}
double Random::normal() {  // method of Box and Muller (1958)
  const double radius = std::sqrt(-2 * std::log(1 - uniform()));
  return radius * std::cos(2 * std::numbers::pi * uniform());
}

namespace detail {

void compare(const char* what, std::size_t got_size, std::size_t expected_size, const Tolerance& tolerance,
             const Callback<Number(std::size_t)>& got, const Callback<Number(std::size_t)>& expected) {
  if (got_size != expected_size)
    failed(what, "it has " + std::to_string(got_size) + " elements, expected " + std::to_string(expected_size));
  std::size_t wrong = 0, first = 0, worst = 0, unwritten = 0, first_unwritten = 0;
  double largest = 0;
  for (std::size_t i = 0; i < got_size; ++i) {
    const Number g = got(i);
    const double error = error_of(g, expected(i), tolerance);
    if (error <= 1) continue;
    if (wrong++ == 0) first = i;
    if (g.poison && unwritten++ == 0) first_unwritten = i;
    if (error > largest) largest = error, worst = i;
  }
  if (wrong == 0) return;
  auto element = [&](std::size_t i) {
    const Number g = got(i), e = expected(i);
    char difference[96] = "";
    if (!g.poison)
      std::snprintf(difference, sizeof difference, " (difference %.3g, allowed %.3g)", std::fabs(g.real - e.real),
                    tolerance.absolute + tolerance.relative * std::fabs(e.real));
    return "[" + std::to_string(i) + "] got " + text_of(g) + ", expected " + text_of(e) + difference;
  };
  std::string text =
      std::to_string(wrong) + " of " + std::to_string(got_size) + " elements are wrong; first " + element(first);
  if (worst != first) text += "; worst " + element(worst);
  if (unwritten != 0)
    text += "; " + std::to_string(unwritten) + " were never written, first [" + std::to_string(first_unwritten) + "]";
  failed(what, text);
}

void poison(const BufferView& view) {
  const std::vector<unsigned char> bytes(view.bytes(), poison_byte);
  Queue::of(view.storage->device()).upload(view, bytes.data());
}

void check_guards(const char* what, DType dtype, std::span<const std::byte> all, std::size_t elements) {
  const std::size_t size = dtype_size(dtype), begin = guard * size, end = begin + elements * size;
  for (std::size_t i = 0; i < all.size(); ++i) {
    if ((i >= begin && i < end) || all[i] == std::byte{poison_byte}) continue;
    const auto element = static_cast<std::int64_t>(i / size) - static_cast<std::int64_t>(guard);
    failed(what, "the kernel wrote element [" + std::to_string(element) + "] of a buffer of " +
                     std::to_string(elements) + " elements");
  }
}

}  // namespace detail

}  // namespace tessera::testing
