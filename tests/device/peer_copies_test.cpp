// SPDX-License-Identifier: Apache-2.0
// Copies between two devices of one backend. They are direct if the driver supports peer access. Otherwise, or if a
// test copy fails, they go through pinned memory. Copies on both paths are ordered with other work. Counters of the
// fake drivers and of the placement log show which path was used.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <numeric>

#include "tessera/array/array.h"
#include "tessera/base/error.h"
#include "tessera/base/os/library.h"
#include "tessera/device/placement/placement_scope.h"
#include "tessera/device/queue/copy_path.h"
#include "tests/support/errors.h"
#include "tests/support/fake_backends.h"
#include "tests/support/run_in_child.h"

namespace tessera {
namespace {

using test::expect_contains;
using test::message;
using test::Variables;

BufferView bytes_of(const std::shared_ptr<Storage>& s, std::uint64_t at, std::uint64_t n) {
  return {s, at, n, DType::u8};
}

class PeerCopies : public ::testing::TestWithParam<Backend> {
 protected:
  static Device device(int index) { return {GetParam(), index}; }
  static os::Library library() { return os::Library::open(test::fake_library(test::fake_backend(GetParam()).driver)); }
  static std::uint64_t count(const char* what) {
    return library().function<std::uint64_t(const char*)>("tessera_fake_count")(what);
  }
  /// Runs `work` in a child process with fake drivers. Appends violations that the drivers report.
  static std::string run(int devices, const Variables& changed, const std::function<std::string()>& work) {
    Variables all = {{"TESSERA_FAKE_DEVICES", std::to_string(devices)}, {"TESSERA_FAKE_DELAY_US", "2000"}};
    all.insert(all.end(), changed.begin(), changed.end());
    return test::run_in_child(
        test::with_fakes(all),
        [&] {
          std::string text = work();
          return text + test::breach_lines(test::fake_library(test::fake_backend(GetParam()).driver));
        },
        60);
  }

  static std::vector<std::uint8_t> data(std::size_t n, int seed) {
    std::vector<std::uint8_t> out(n);
    for (std::size_t i = 0; i < n; ++i)
      out[i] = static_cast<std::uint8_t>(i * 31 + i / 251 + static_cast<std::size_t>(seed));
    return out;
  }
  static std::vector<std::uint8_t> read(const std::shared_ptr<Storage>& s) {
    std::vector<std::uint8_t> out(s->bytes(), 0xAA);
    Queue::of(s->device()).download(out.data(), bytes_of(s, 0, s->bytes()));
    return out;
  }
  /// Copies from each device to all other devices, with several sizes and at odd offsets. Returns "right" followed by
  /// counts: "12 peers, 0 down, none up, driver 24". The driver's count includes one test copy per direction.
  static std::string all_pairs(int devices) {
    Placement scope;
    std::uint64_t peers = 0, down = 0, up = 0;
    for (int a = 0; a < devices; ++a)
      for (int b = 0; b < devices; ++b) {
        if (a == b) continue;
        const std::size_t n = a < b ? 4097 : (9u << 20) + 3;
        const auto bytes = data(n, a * 7 + b);
        const auto from = Storage::allocate(device(a), n + 3), to = Storage::allocate(device(b), n + 5);
        Queue::of(device(b)).fill(bytes_of(to, 0, n + 5), 0x77);
        Queue::of(device(a)).upload(bytes_of(from, 3, n), bytes.data());
        Placement copying;
        // Use a queue of either device.
        Queue::of(device(a < b ? a : b)).copy(bytes_of(to, 5, n), bytes_of(from, 3, n));
        for (const auto& c : copying.log().copies) {
          peers += c.from_peers_count, down += c.to_host_count, up += c.to_device_count;
          if (c.from_peers_count != 0 && (c.from_peers_bytes != n || c.device != device(b))) return "wrongly counted";
        }
        const auto got = read(to);
        if (!std::equal(bytes.begin(), bytes.end(), got.begin() + 5) || got[4] != 0x77) return "wrong bytes";
      }
    return "right: " + std::to_string(peers) + " peers, " + std::to_string(down) + " down, driver " +
           std::to_string(count("peer copies")) + (up == 0 ? ", none up" : ", some up");
  }
};
INSTANTIATE_TEST_SUITE_P(Backends, PeerCopies, ::testing::Values(Backend::cuda, Backend::rocm, Backend::oneapi),
                         [](const auto& info) { return std::string(backend_name(info.param)); });

TEST_P(PeerCopies, CopiesDirectlyWithPeerAccess) {
  EXPECT_EQ(run(2, {}, [] { return all_pairs(2) + ", pinned " + std::to_string(count("host allocations") > 20); }),
            "right: 2 peers, 0 down, driver 4, none up, pinned 0");
  EXPECT_EQ(run(4, {}, [] { return all_pairs(4); }), "right: 12 peers, 0 down, driver 24, none up");
}

TEST_P(PeerCopies, UsesPinnedMemoryWithoutPeerAccess) {
  for (const char* fault : {"no-peers", "peer", "peer:801"})
    EXPECT_EQ(run(4,
                  {{"TESSERA_FAKE_FAULT", GetParam() == Backend::oneapi && std::string(fault) == "peer:801"
                                              ? "peer:2013265923"  // ZE_RESULT_ERROR_UNSUPPORTED_FEATURE
                                              : fault}},
                  [] { return all_pairs(4); }),
              "right: 0 peers, 12 down, driver 0, some up")
        << fault;
}

TEST_P(PeerCopies, UsesPinnedMemoryIfTestCopyFails) {
  // If one direction fails, both directions go through the host.
  for (const char* fault : {"peer-empty", "peer-empty@0", "peer-empty@1"}) {
    ::testing::internal::CaptureStderr();
    const std::string text = run(2, {{"TESSERA_FAKE_FAULT", fault}}, [] {
      return all_pairs(2) + "; " + std::string(to_string(copy_path(device(0), device(1)))) + "; " +
             std::string(to_string(copy_path(device(1), device(0))));
    });
    const std::string warned = ::testing::internal::GetCapturedStderr();
    constexpr const char* failed = "; through the host: a test of direct copies failed";
    const bool first = std::string(fault) != "peer-empty@0";  // the first test copies to device 1
    EXPECT_EQ(text, "right: 0 peers, 2 down, driver " + std::string(first ? "1" : "2") + ", some up" + failed + failed)
        << fault;
    expect_contains(warned, {to_string(device(0)), to_string(device(1)), "iommu=pt", "TESSERA_PEER_COPIES=off"});
    EXPECT_EQ(warned.find("iommu=pt"), warned.rfind("iommu=pt")) << "one warning for the pair: " << warned;
  }
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(run(4, {{"TESSERA_FAKE_FAULT", "peer-empty@3"}}, [] { return all_pairs(4); }),
            "right: 6 peers, 6 down, driver " + std::to_string(6 + 6 + 3) + ", some up");
  ::testing::internal::GetCapturedStderr();
}

TEST_P(PeerCopies, UsesPinnedMemoryIfPeerCopiesAreDisabled) {
  EXPECT_EQ(run(2, {{"TESSERA_PEER_COPIES", "off"}, {"TESSERA_FAKE_FAULT", "peer-empty"}},
                [] { return all_pairs(2) + "; " + std::string(to_string(copy_path(device(0), device(1)))); }),
            "right: 0 peers, 2 down, driver 0, some up; through the host: TESSERA_PEER_COPIES=off");
}

TEST_P(PeerCopies, CopiesDirectlyOnlyInDirectionWithPeerAccess) {
  // Device 0 cannot read from other devices, but they can read from device 0.
  EXPECT_EQ(run(2, {{"TESSERA_FAKE_FAULT", "peer@0"}}, [] { return all_pairs(2); }),
            "right: 1 peers, 1 down, driver 2, some up");
}

TEST_P(PeerCopies, UsesPinnedMemoryBetweenDifferentDrivers) {
  if (GetParam() != Backend::oneapi) return;  // only this backend can have several drivers
  EXPECT_EQ(run(2, {{"TESSERA_FAKE_FAULT", "ze-drivers=2"}}, [] { return all_pairs(2); }),
            "right: 0 peers, 2 down, driver 0, some up");
}

TEST_P(PeerCopies, AcceptsPeerAccessThatIsAlreadyEnabled) {
  if (GetParam() == Backend::oneapi) return;  // peer access need not be enabled there
  EXPECT_EQ(run(2, {},
                [] {
                  void* const peer = native_context(device(1));
                  native_context(device(0));
                  if (GetParam() == Backend::cuda) {
                    library().function<int(void*)>("cuCtxSetCurrent")(native_context(device(0)));
                    library().function<int(void*, unsigned)>("cuCtxEnablePeerAccess")(peer, 0);
                  } else {
                    library().function<int(int, unsigned)>("hipDeviceEnablePeerAccess")(1, 0);
                  }
                  return all_pairs(2);
                }),
            "right: 2 peers, 0 down, driver 4, none up");
}

TEST_P(PeerCopies, CopiesAreOrderedOnBothDevicesWithoutBlocking) {
  EXPECT_EQ(run(4, {},
                []() -> std::string {
                  constexpr std::size_t n = 100000;
                  std::vector<std::shared_ptr<Storage>> at;
                  for (int d = 0; d < 4; ++d) at.push_back(Storage::allocate(device(d), n));
                  for (int round = 1; round <= 10; ++round) {
                    Queue::of(device(0)).fill(bytes_of(at[0], 0, n), static_cast<std::uint64_t>(round));
                    // Copies around the ring. Half of the data is overwritten afterwards.
                    for (std::size_t d = 0; d < 4; ++d) {
                      const std::size_t next = (d + 1) % 4;
                      Queue::of(device(static_cast<int>(next))).copy(bytes_of(at[next], 0, n), bytes_of(at[d], 0, n));
                      Queue::of(device(static_cast<int>(d))).fill(bytes_of(at[d], n / 2, n / 2), 0xEE);
                      if (d == 3) break;
                    }
                    const auto got = read(at[0]);
                    if (got != std::vector<std::uint8_t>([&] {
                          std::vector<std::uint8_t> want(n, static_cast<std::uint8_t>(round));
                          return want;
                        }()))
                      return "round " + std::to_string(round) + " is wrong: " + std::to_string(got[0]) + ", " +
                             std::to_string(got[n - 1]);
                  }
                  return "right";
                }),
            "right");
}

TEST_P(PeerCopies, MemoryReleasedDuringCopyIsNotReusedEarly) {
  EXPECT_EQ(run(2, {},
                []() -> std::string {
                  constexpr std::size_t n = 300000;
                  const auto to = Storage::allocate(device(1), n);
                  for (int round = 0; round < 10; ++round) {
                    {
                      const auto from = Storage::allocate(device(0), n);
                      Queue::of(device(0)).fill(bytes_of(from, 0, n), static_cast<std::uint64_t>(round));
                      Queue::of(device(1)).copy(bytes_of(to, 0, n), bytes_of(from, 0, n));
                    }
                    const auto next = Storage::allocate(device(0), n);  // may reuse the same memory
                    Queue::of(device(0)).fill(bytes_of(next, 0, n), 0xFF);
                    if (round == 5) trim(device(0));
                    if (read(to) != std::vector<std::uint8_t>(n, static_cast<std::uint8_t>(round))) return "wrong";
                  }
                  return "right";
                }),
            "right");
}

TEST_P(PeerCopies, SourceStaysUsableIfTargetIsLost) {
  const std::string text = run(2, {{"TESSERA_FAKE_FAULT", "lost=40+@1"}}, [] {
    const auto from = Storage::allocate(device(0), 5000);
    std::string all = message([&] {
      for (int i = 0; i < 100; ++i) {
        const auto to = Storage::allocate(device(1), 5000);
        Queue::of(device(1)).copy(bytes_of(to, 0, 5000), bytes_of(from, 0, 5000));
        Queue::of(device(1)).finish();
      }
    });
    all += "\nstate " + std::string(state_name(device_info(device(1)).state));
    const auto bytes = data(5000, 3);
    Queue::of(device(0)).upload(bytes_of(from, 0, 5000), bytes.data());  // must wait for the reads of the lost device
    all += read(from) == bytes ? "\nright" : "\nwrong";
    all += "\n" + message([&] {
             const auto gone = Storage::allocate(device(1), 100);
             Queue::of(device(0)).copy(bytes_of(from, 0, 100), bytes_of(gone, 0, 100));
           });
    return all;
  });
  expect_contains(text, {"[" + to_string(device(1)) + "] the device is lost", "\nstate lost", "\nright"});
  EXPECT_EQ(text.find("BREACH"), text.npos) << text;
}

TEST_P(PeerCopies, TargetStaysUsableIfSourceIsLost) {
  const std::string text = run(2, {{"TESSERA_FAKE_FAULT", "late=30@0"}}, [] {
    const auto to = Storage::allocate(device(1), 5000);
    std::string all = message([&] {
      const auto from = Storage::allocate(device(0), 5000);
      for (int i = 0; i < 100; ++i) {
        Queue::of(device(0)).fill(bytes_of(from, 0, 5000), 1);
        Queue::of(device(0)).finish();
        Queue::of(device(1)).copy(bytes_of(to, 0, 5000), bytes_of(from, 0, 5000));
      }
    });
    all += "\nstate " + std::string(state_name(device_info(device(1)).state));
    const auto bytes = data(5000, 4);
    Queue::of(device(1)).upload(bytes_of(to, 0, 5000), bytes.data());
    return all + (read(to) == bytes ? "\nright" : "\nwrong");
  });
  expect_contains(text, {"[" + to_string(device(0)) + "] the device is lost", "\nstate verified", "\nright"});
  EXPECT_EQ(text.find("BREACH"), text.npos) << text;
}

TEST_P(PeerCopies, ArraysAreCopiedDirectly) {
  EXPECT_EQ(run(2, {},
                []() -> std::string {
                  std::vector<float> values(100000);
                  std::iota(values.begin(), values.end(), 0.0f);
                  const Array x = Array::from(values, {}, device(0)) + 1.0f;
                  Placement scope;
                  const Array y = x.to(device(1)) * 2.0f;
                  const auto got = y.to_vector<float>();
                  for (std::size_t i = 0; i < got.size(); ++i)
                    if (got[i] != 2 * (values[i] + 1)) return "wrong at " + std::to_string(i);
                  std::string how;
                  for (const auto& c : scope.log().copies)
                    how += to_string(c.device).substr(to_string(c.device).find(':')) + " " +
                           std::to_string(c.from_peers_bytes) + " " + std::to_string(c.to_host_bytes) + ";";
                  return how;
                }),
            ":1 400000 400000;");
}

}  // namespace
}  // namespace tessera
