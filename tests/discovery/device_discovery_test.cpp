// SPDX-License-Identifier: Apache-2.0
// Discovery, selection and states of devices, with test drivers. Drivers and selections are global, so each test runs
// in a separate process.
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <ctime>
#include <thread>

#include "tessera/base/error.h"
#include "tessera/base/os/processor.h"
#include "tessera/device/discovery/discovery.h"
#include "tessera/device/driver.h"
#include "tessera/device/launch/kernel.h"
#include "tessera/ir/value.h"
#include "tests/support/errors.h"
#include "tests/support/fresh_process.h"
#include "tests/support/test_driver.h"

namespace tessera {
namespace {

using test::add;
using test::expect_contains;
using test::in_fresh_process;
using test::TestDriver;
using test::text_of;
constexpr std::uint64_t gib = std::uint64_t{1} << 30;

TEST(DeviceNames, ToStringAndParseDeviceAreInverse) {
  for (Backend backend : all_backends) {
    const Device device{backend, 3};
    EXPECT_EQ(parse_device(to_string(device)), device);
    EXPECT_EQ(parse_device(backend_name(backend)), (Device{backend, 0}));
  }
  for (const char* bad :
       {"", "gpu", "cuda:", "cuda:-1", "cuda:x", "cuda:1x", "cuda:99999999999999", "CUDA:0", "cpu:+1", ":0"})
    expect_contains(text_of<DeviceError>([&] { parse_device(bad); }),
                    {"is not a device", "cpu, cuda, rocm, oneapi, metal, opencl"});
  EXPECT_LT((Device{Backend::cpu, 1}), (Device{Backend::cuda, 0}));
  EXPECT_NE(std::hash<Device>{}({Backend::cuda, 0}), std::hash<Device>{}({Backend::cuda, 1}));
}

TEST(Discovery, ReportsAllBackendsWithReasons) {
  in_fresh_process([] {
    add(Backend::cpu, {{DeviceKind::cpu, gib}});
    const auto& rows = discover();
    ASSERT_EQ(rows.size(), all_backends.size());
    for (std::size_t i = 0; i < rows.size(); ++i) {
      EXPECT_EQ(rows[i].backend, all_backends[i]);
      if (rows[i].devices.empty()) {
        EXPECT_FALSE(rows[i].reason.empty());
        EXPECT_FALSE(rows[i].remedy.empty());
      }
    }
    EXPECT_EQ(rows[0].state, DeviceState::enumerated);
    EXPECT_NE(rows[0].devices.at(0).reason.find("no kernel has been run"), std::string::npos)
        << rows[0].devices[0].reason;
    EXPECT_EQ(discover(Backend::cuda).state, DeviceState::unsupported);
    expect_contains(discover(Backend::cuda).reason, {"this program was built without the cuda backend"});
    expect_contains(discover(Backend::metal).reason, {"Metal"});
  });
}

TEST(Discovery, NamingADeviceProbesOnlyItsBackend) {
  in_fresh_process([] {
    auto& cpu = add(Backend::cpu, {{DeviceKind::cpu, gib}});
    auto& cuda = add(Backend::cuda, {{DeviceKind::discrete_gpu, gib}});
    auto& opencl = add(Backend::opencl, {{DeviceKind::discrete_gpu, gib}});
    {
      DeviceScope scope({Backend::cpu, 0});
      EXPECT_EQ(current_device(), (Device{Backend::cpu, 0}));
      Queue::of(current_device()).finish();
    }
    EXPECT_EQ(cpu.enumerations, 1);
    EXPECT_EQ(cuda.enumerations, 0);
    EXPECT_EQ(opencl.enumerations, 0);
    EXPECT_EQ(cuda.behaviour(0)->opened, 0);
    // Automatic selection stops if no later backend can have a better device.
    EXPECT_EQ(current_device(), (Device{Backend::cuda, 0}));
    EXPECT_EQ(cuda.enumerations, 1);
    EXPECT_EQ(opencl.enumerations, 0);
    EXPECT_EQ(cuda.behaviour(0)->opened, 1) << "the selected device has been opened";
    rescan();
    discover(Backend::cuda);
    EXPECT_EQ(cuda.enumerations, 2);
  });
}

TEST(Selection, AutomaticSelectionPrefersDiscreteGpus) {
  in_fresh_process([] {
    add(Backend::cpu, {{DeviceKind::cpu, 64 * gib}});
    EXPECT_EQ(current_device(), (Device{Backend::cpu, 0}));
    expect_contains(why_current_device(),
                    {"cpu:0", "because no GPU was found", "cuda: ", "opencl: ", "built without the cuda backend"});
    add(Backend::opencl, {{DeviceKind::cpu, 256 * gib}, {DeviceKind::integrated_gpu, 8 * gib}});
    EXPECT_EQ(current_device(), (Device{Backend::opencl, 1})) << "CPUs of OpenCL are not selected automatically";
    add(Backend::opencl, {{DeviceKind::cpu, 256 * gib}});
    EXPECT_EQ(current_device(), (Device{Backend::cpu, 0}));
    expect_contains(why_current_device(), {"opencl: no GPU among its devices"});
    add(Backend::opencl, {{DeviceKind::cpu, 256 * gib}, {DeviceKind::integrated_gpu, 8 * gib}});
    add(Backend::interp, {{DeviceKind::other, 512 * gib}});
    EXPECT_EQ(current_device(), (Device{Backend::opencl, 1}));
    add(Backend::cuda, {{DeviceKind::integrated_gpu, gib}});
    EXPECT_EQ(current_device(), (Device{Backend::cuda, 0})) << "within a kind, CUDA first";
    add(Backend::rocm, {{DeviceKind::discrete_gpu, 2 * gib},
                        {DeviceKind::discrete_gpu, 4 * gib},
                        {DeviceKind::discrete_gpu, 4 * gib}});
    EXPECT_EQ(current_device(), (Device{Backend::rocm, 1})) << "discrete first, then by memory and index";
    expect_contains(why_current_device(), {"rocm:1", "test device 1", "automatically", "discrete GPU"});
  });
}

// A GPU that two APIs list:

TestDriver& add_card(Backend backend, std::initializer_list<const char*> identities,
                     DeviceKind kind = DeviceKind::discrete_gpu) {
  auto driver = std::make_unique<TestDriver>(backend);
  for (const char* identity : identities) driver->add_device(kind, gib).identity = identity;
  TestDriver& kept = *driver;
  register_driver(std::move(driver));
  return kept;
}

TEST(Selection, ProcessesOfAMachineUseEqualGpusInTurn) {
  for (const unsigned rank : {0u, 1u, 2u, 3u})
    in_fresh_process([&] {
      add(Backend::cuda, {{DeviceKind::discrete_gpu, 4 * gib},
                          {DeviceKind::discrete_gpu, gib},
                          {DeviceKind::discrete_gpu, 4 * gib + gib / 64}});
      add(Backend::rocm, {{DeviceKind::discrete_gpu, 4 * gib}});
      os::set_machine_share({rank, 4});
      // cuda:2 has slightly more memory, and cuda:1 is smaller.
      EXPECT_EQ(current_device(), (Device{Backend::cuda, rank % 2 == 0 ? 2 : 0})) << rank;
      EXPECT_NE(why_current_device().find(rank == 0 ? "the first" : "process " + std::to_string(rank)),
                std::string::npos)
          << why_current_device();
    });
}

TEST(Identity, GpuListedByTwoApisIsUsedOnce) {
  in_fresh_process([] {
    add_card(Backend::cuda, {"pci:0000:01:00.0", "pci:0000:02:00.0"});
    add_card(Backend::opencl, {"pci:0000:02:00.0", "pci:0000:03:00.0", ""});
    discover();
    EXPECT_EQ(same_card({Backend::opencl, 0}), (Device{Backend::cuda, 1}));
    for (const Device apart :
         {Device{Backend::cuda, 0}, Device{Backend::cuda, 1}, Device{Backend::opencl, 1}, Device{Backend::opencl, 2}})
      EXPECT_EQ(same_card(apart), std::nullopt) << to_string(apart);
    EXPECT_EQ(current_device(), (Device{Backend::cuda, 0}));
  });
}

TEST(Identity, SelectsAnotherApiIfTheFirstOneFails) {
  in_fresh_process([] {
    add(Backend::cpu, {{DeviceKind::cpu, gib}});
    add_card(Backend::cuda, {"pci:0000:01:00.0"}).behaviour(0)->compute_wrongly = true;
    add_card(Backend::opencl, {"pci:0000:01:00.0"});
    EXPECT_EQ(expected_device().device, (Device{Backend::cuda, 0}));
    EXPECT_EQ(current_device(), (Device{Backend::opencl, 0}));
    EXPECT_EQ(same_card({Backend::opencl, 0}), (Device{Backend::cuda, 0}));
  });
}

TEST(Identity, DoesNotIdentifyPartitionsOfAGpu) {
  in_fresh_process([] {
    add_card(Backend::cuda, {"pci:0000:01:00.0", "pci:0000:01:00.0"});
    add_card(Backend::opencl, {"pci:0000:01:00.0", "pci:0000:01:00.0"});
    add_card(Backend::oneapi, {"pci:0000:01:00.0"});
    discover();
    for (const Device device : {Device{Backend::opencl, 0}, Device{Backend::opencl, 1}, Device{Backend::cuda, 1}})
      EXPECT_EQ(same_card(device), std::nullopt) << to_string(device);
  });
}

TEST(Identity, SameCardDoesNotProbeBackends) {
  in_fresh_process([] {
    TestDriver& cuda = add_card(Backend::cuda, {"pci:0000:01:00.0"});
    add_card(Backend::opencl, {"pci:0000:01:00.0"});
    EXPECT_EQ(same_card({Backend::opencl, 0}), std::nullopt);
    EXPECT_EQ(cuda.enumerations, 0);
  });
}

TEST(Selection, NamingTheCpuProbesNoOtherBackend) {
  in_fresh_process([] {
    add(Backend::cpu, {{DeviceKind::cpu, gib}});
    TestDriver& cuda = add(Backend::cuda, {{DeviceKind::discrete_gpu, gib}});
    ::setenv("TESSERA_DEVICE", "cpu:3", 1);
    expect_contains(text_of<DeviceError>([] { current_device(); }),
                    {"cpu:3 does not exist", "cpu:0", "drivers that were not probed yet may have more"});
    text_of<DeviceError>([] { DeviceScope scope({Backend::interp, 0}); });
    ::setenv("TESSERA_DEVICE", "cpu", 1);
    rescan();
    EXPECT_EQ(current_device(), Device{});
    why_current_device();
    EXPECT_EQ(cuda.enumerations, 0);
  });
}

TEST(Selection, ScopeTakesPrecedenceOverEnvironment) {
  in_fresh_process([] {
    add(Backend::cpu, {{DeviceKind::cpu, gib}, {DeviceKind::cpu, gib}});
    add(Backend::cuda, {{DeviceKind::discrete_gpu, gib}, {DeviceKind::discrete_gpu, gib}});
    EXPECT_EQ(current_device(), (Device{Backend::cuda, 0}));
    ::setenv("TESSERA_DEVICE", "cuda:1", 1);
    EXPECT_EQ(current_device(), (Device{Backend::cuda, 0})) << "the environment is read once";
    rescan();
    EXPECT_EQ(current_device(), (Device{Backend::cuda, 1}));
    expect_contains(why_current_device(), {"cuda:1", "TESSERA_DEVICE=cuda:1"});
    {
      DeviceScope outer({Backend::cpu, 0});
      {
        DeviceScope inner({Backend::cpu, 1});
        EXPECT_EQ(current_device(), (Device{Backend::cpu, 1}));
        std::thread([] { EXPECT_EQ(current_device(), (Device{Backend::cuda, 1})); }).join();
      }
      EXPECT_EQ(current_device(), (Device{Backend::cpu, 0}));
      expect_contains(why_current_device(), {"cpu:0", "DeviceScope"});
      expect_contains(text_of<DeviceError>([] { DeviceScope missing({Backend::cpu, 7}); }), {"cpu:7 does not exist"});
      EXPECT_EQ(current_device(), (Device{Backend::cpu, 0}));
    }
    EXPECT_EQ(current_device(), (Device{Backend::cuda, 1}));
  });
}

TEST(Selection, InvalidEnvironmentVariableListsExistingDevices) {
  in_fresh_process([] {
    auto& cuda = add(Backend::cuda, {{DeviceKind::discrete_gpu, gib}});
    add(Backend::cpu, {{DeviceKind::cpu, gib}});
    for (const char* bad : {"cuda:5", "gpu", "rocm"}) {
      ::setenv("TESSERA_DEVICE", bad, 1);
      rescan();
      expect_contains(text_of<DeviceError>([] { current_device(); }),
                      {"TESSERA_DEVICE=", bad, "cpu:0", "cuda:0 (test device 0)"});
      DeviceScope scope({Backend::cpu, 0});  // a scope does not need the environment variable
      EXPECT_EQ(current_device(), (Device{Backend::cpu, 0}));
    }
    EXPECT_EQ(cuda.behaviour(0)->opened, 0);
    ::setenv("TESSERA_DEVICE", "cpu", 1);
    rescan();
    EXPECT_EQ(current_device(), (Device{Backend::cpu, 0}));
  });
}

TEST(Selection, DevicesWithTheSameNameShowDriverVersions) {
  in_fresh_process([] {
    for (const auto& [backend, version] : {std::pair{Backend::cpu, "LLVM 16"}, {Backend::opencl, "Portable 3.1"}}) {
      auto driver = std::make_unique<TestDriver>(backend);
      DeviceInfo& info = driver->add_device(DeviceKind::cpu, gib);
      info.name = "a processor", info.driver_version = version;
      register_driver(std::move(driver));
    }
    expect_contains(text_of<DeviceError>([] {
                      device_info({Backend::opencl, 5});
                    }),
                    {"cpu:0 (a processor, LLVM 16)", "opencl:0 (a processor, Portable 3.1)"});
  });
}

TEST(Selection, MissingDeviceErrorListsDevicesAndReasons) {
  in_fresh_process([] {
    add(Backend::cpu, {{DeviceKind::cpu, gib}});
    auto opencl = std::make_unique<TestDriver>(Backend::opencl);
    opencl->fail_enumerate = "libOpenCL.so.1: cannot open shared object file";
    register_driver(std::move(opencl));
    expect_contains(text_of<DeviceError>([] {
                      device_info({Backend::opencl, 0});
                    }),
                    {"opencl:0 does not exist", "no devices", "supported", "cannot open shared object file", "cpu:0"});
    expect_contains(text_of<DeviceError>([] {
                      Storage::allocate({Backend::cpu, 3}, 4);
                    }),
                    {"cpu:3 does not exist", "has 1 device", "cpu:0"});
    expect_contains(text_of<DeviceError>([] { Queue::of({Backend::cpu, -1}); }), {"does not exist"});
  });
}

TEST(Selection, NoDeviceErrorContainsReasons) {
  in_fresh_process([] {
    expect_contains(text_of<DeviceError>([] { current_device(); }), {"there is no usable device", "cuda: ", "cpu: "});
  });
}

TEST(States, FirstUseVerifiesTheDevice) {
  in_fresh_process([] {
    add(Backend::cuda, {{DeviceKind::discrete_gpu, gib}});
    const DeviceInfo& before = device_info({Backend::cuda, 0});
    EXPECT_EQ(before.state, DeviceState::enumerated);
    Queue::of({Backend::cuda, 0}).finish();
    EXPECT_EQ(device_info({Backend::cuda, 0}).state, DeviceState::verified);
    EXPECT_EQ(discover(Backend::cuda).state, DeviceState::verified);
    EXPECT_EQ(discover(Backend::cuda).reason, "") << "a verified backend has no reason";
    EXPECT_EQ(before.state, DeviceState::enumerated) << "earlier results don't change";
  });
}

TEST(States, WrongResultQuarantinesTheDevice) {
  in_fresh_process([] {
    auto& cuda = add(Backend::cuda, {{DeviceKind::discrete_gpu, gib}, {DeviceKind::discrete_gpu, gib}});
    add(Backend::cpu, {{DeviceKind::cpu, gib}});
    EXPECT_EQ(expected_device().device, (Device{Backend::cuda, 0}));
    EXPECT_EQ(cuda.behaviour(0)->opened, 0) << "expected_device opens nothing";
    cuda.behaviour(0)->compute_wrongly = true;
    ::testing::internal::CaptureStderr();
    for (int i = 0; i < 2; ++i)
      expect_contains(text_of<DeviceError>([] {
                        Queue::of({Backend::cuda, 0});
                      }),
                      {"quarantined", "element 700", "rescan"});
    expect_contains(::testing::internal::GetCapturedStderr(), {"tessera: warning: cuda:0 (", " is quarantined: "});
    EXPECT_EQ(cuda.behaviour(0)->opened, 1) << "opened once, then quarantined";
    EXPECT_EQ(device_info({Backend::cuda, 0}).state, DeviceState::quarantined);
    EXPECT_EQ(current_device(), (Device{Backend::cuda, 1})) << "skipped by automatic selection";
    Queue::of({Backend::cuda, 1}).finish();  // other devices still work
    cuda.behaviour(0)->compute_wrongly = false;
    rescan();
    Queue::of({Backend::cuda, 0}).finish();
    EXPECT_EQ(device_info({Backend::cuda, 0}).state, DeviceState::verified);
  });
}

TEST(States, LackOfHostMemoryDoesNotQuarantine) {
  in_fresh_process([] {
    auto& cuda = add(Backend::cuda, {{DeviceKind::discrete_gpu, gib}});
    for (const int kind : {1, 2}) {
      cuda.behaviour(0)->shortage = kind;
      expect_contains(text_of<OutOfMemory>([] { Queue::of({Backend::cuda, 0}); }), {"cuda:0", "out of host memory"});
      EXPECT_EQ(device_info({Backend::cuda, 0}).state, DeviceState::enumerated);
    }
    cuda.behaviour(0)->shortage = 0;
    Queue::of({Backend::cuda, 0}).finish();
  });
}

TEST(States, OpeningIsRetriedAfterFailure) {
  in_fresh_process([] {
    auto& cuda = add(Backend::cuda, {{DeviceKind::discrete_gpu, gib}});
    cuda.behaviour(0)->fail_open = true;
    expect_contains(text_of<DeviceError>([] { Queue::of({Backend::cuda, 0}); }), {"does not open"});
    cuda.behaviour(0)->fail_open = false;
    Queue::of({Backend::cuda, 0}).finish();
  });
}

TEST(States, FailedFirstKernelDoesNotQuarantine) {
  in_fresh_process([] {
    auto& cuda = add(Backend::cuda, {{DeviceKind::discrete_gpu, gib}});
    cuda.behaviour(0)->fail_compile = true;
    for (int i = 0; i < 2; ++i)
      expect_contains(text_of<DeviceError>([] {
                        Queue::of({Backend::cuda, 0});
                      }),
                      {"cuda:0", "the first kernel failed", "line 3: unexpected token", "retried"});
    EXPECT_EQ(device_info({Backend::cuda, 0}).state, DeviceState::enumerated);
    cuda.behaviour(0)->fail_compile = false;
    Queue::of({Backend::cuda, 0}).finish();
  });
}

TEST(States, DeviceWithoutCompilerCannotBeOpened) {
  in_fresh_process([] {
    add(Backend::cpu, {{DeviceKind::cpu, gib}});
    auto driver = std::make_unique<TestDriver>(Backend::cuda);
    DeviceInfo& info = driver->add_device(DeviceKind::discrete_gpu, gib);
    info.state = DeviceState::loaded, info.reason = "there is no compiler", info.remedy = "Install one";
    register_driver(std::move(driver));
    for (int i = 0; i < 2; ++i)
      expect_contains(text_of<DeviceError>([] {
                        Queue::of({Backend::cuda, 0});
                      }),
                      {"there is no compiler", "Install one"});
    EXPECT_EQ(device_info({Backend::cuda, 0}).state, DeviceState::loaded);
    EXPECT_EQ(device_info({Backend::cuda, 0}).remedy, "Install one");
    EXPECT_EQ(current_device(), (Device{Backend::cpu, 0}));
  });
}

TEST(States, TemporaryStatesExpire) {
  in_fresh_process([] {
    add(Backend::cuda, {{DeviceKind::discrete_gpu, gib}});
    constexpr Device cuda{Backend::cuda, 0};
    discover(Backend::cuda);
    const std::int64_t now = std::time(nullptr);
    set_device_state(cuda, DeviceState::hung, "it did not answer", "wait", now + 300);
    expect_contains(text_of<DeviceError>([] { Queue::of(cuda); }),
                    {"the device cannot be used (state: hung)", "it did not answer"});
    set_device_state(cuda, DeviceState::hung, "it did not answer", "wait", now - 1);
    Queue::of(cuda).finish();
    EXPECT_EQ(device_info(cuda).state, DeviceState::verified);
  });
}

TEST(States, StateIsKeptOnlyForTheSameDevice) {
  in_fresh_process([] {
    add(Backend::cpu, {{DeviceKind::cpu, gib}});
    const auto machine = [](std::initializer_list<const char*> identities) {
      auto driver = std::make_unique<TestDriver>(Backend::cuda);
      for (const char* identity : identities) driver->add_device(DeviceKind::discrete_gpu, gib).identity = identity;
      driver->behaviour(0)->compute_wrongly = std::string(*identities.begin()) == "pci:0000:01:00.0";
      register_driver(std::move(driver));
    };
    machine({"pci:0000:01:00.0", "pci:0000:02:00.0"});
    EXPECT_THROW(Queue::of({Backend::cuda, 0}), DeviceError);
    mark_report_stale(Backend::cuda);
    EXPECT_EQ(device_info({Backend::cuda, 0}).state, DeviceState::quarantined) << "still the same card";
    machine({"pci:0000:02:00.0"});
    EXPECT_EQ(device_info({Backend::cuda, 0}).state, DeviceState::enumerated) << "a different card";
    EXPECT_EQ(current_device(), (Device{Backend::cuda, 0}));
  });
}

TEST(Selection, ConcurrentSelectionEndsIfADeviceCannotBeOpened) {
  in_fresh_process([] {
    ::alarm(60);
    add(Backend::cpu, {{DeviceKind::cpu, gib}});
    auto& cuda = add(Backend::cuda, {{DeviceKind::discrete_gpu, gib}});
    cuda.behaviour(0)->fail_open = true;
    cuda.slow_us = 2000;
    std::atomic<int> ready = 0;
    const auto choose = [&] {
      for (++ready; ready < 4;) std::this_thread::yield();
      EXPECT_EQ(current_device(), (Device{Backend::cpu, 0}));
    };
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; ++i) threads.emplace_back(choose);
    for (std::thread& thread : threads) thread.join();
    EXPECT_LE(cuda.enumerations, 20) << "each of four threads probes, opens, and probes again";
  });
}

TEST(Selection, AutomaticSelectionTriesGpusInOrder) {
  in_fresh_process([] {
    add(Backend::cpu, {{DeviceKind::cpu, gib}});
    auto& cuda = add(Backend::cuda, {{DeviceKind::discrete_gpu, gib}, {DeviceKind::discrete_gpu, gib}});
    auto& opencl = add(Backend::opencl, {{DeviceKind::discrete_gpu, gib}});
    cuda.behaviour(0)->fail_open = true;
    cuda.behaviour(1)->compute_wrongly = true;
    ::testing::internal::CaptureStderr();
    EXPECT_EQ(current_device(), (Device{Backend::opencl, 0}));
    expect_contains(::testing::internal::GetCapturedStderr(),
                    {"cuda:0 (", "was skipped: ", "does not open", "cuda:1 ("});
    expect_contains(why_current_device(),
                    {"that can be opened; cuda:0: ", "does not open", "; cuda:1: ", "quarantined"});
    // A failure to open a device is temporary. Its reason is reported, and the next use of the device tries again.
    expect_contains(device_info({Backend::cuda, 0}).reason, {"does not open"});
    EXPECT_EQ(device_info({Backend::cuda, 0}).state, DeviceState::enumerated);
    cuda.behaviour(0)->fail_open = false;
    Queue::of({Backend::cuda, 0}).finish();
    EXPECT_EQ(device_info({Backend::cuda, 0}).state, DeviceState::verified);
    cuda.behaviour(0)->fail_open = true;
    opencl.behaviour(0)->fail_open = true;
    EXPECT_EQ(current_device(), (Device{Backend::opencl, 0})) << "an open device stays selected";
  });
  in_fresh_process([] {
    add(Backend::cpu, {{DeviceKind::cpu, gib}});
    auto& cuda = add(Backend::cuda, {{DeviceKind::discrete_gpu, gib}});
    cuda.behaviour(0)->fail_open = true;
    EXPECT_EQ(current_device(), (Device{Backend::cpu, 0}));
    expect_contains(why_current_device(), {"no GPU was found: cuda: cuda:0 (", "cannot be opened", "does not open"});
  });
}

TEST(Threads, ConcurrentDiscoveryProbesOnlyOnce) {
  in_fresh_process([] {
    auto& cuda = add(Backend::cuda, {{DeviceKind::discrete_gpu, gib}});
    std::vector<std::thread> threads;
    for (int t = 0; t < 8; ++t)
      threads.emplace_back([] {
        EXPECT_EQ(discover().size(), all_backends.size());
        EXPECT_EQ(current_device(), (Device{Backend::cuda, 0}));
        Queue::of({Backend::cuda, 0}).finish();
      });
    for (auto& t : threads) t.join();
    EXPECT_EQ(cuda.enumerations, 1);
    EXPECT_EQ(cuda.behaviour(0)->opened, 1);
  });
}

TEST(Threads, DeviceScopesArePerThread) {
  in_fresh_process([] {
    add(Backend::cpu, {{DeviceKind::cpu, gib}, {DeviceKind::cpu, gib}});
    std::vector<std::thread> threads;
    for (int t = 0; t < 2; ++t)
      threads.emplace_back([t] {
        const Device mine{Backend::cpu, t};
        int wrong = 0;
        for (int i = 0; i < 10000; ++i) {
          DeviceScope scope(mine);
          wrong += current_device() != mine;
          if (i % 100 == 0) {
            const auto storage = Storage::allocate(current_device(), 64);
            wrong += storage->device() != mine;
          }
        }
        EXPECT_EQ(wrong, 0);
      });
    for (auto& t : threads) t.join();
  });
}

TEST(Fork, ChildCannotUseDevicesOfItsParent) {
  in_fresh_process([] {
    add(Backend::cpu, {{DeviceKind::cpu, gib}, {DeviceKind::cpu, gib}});
    const auto storage = Storage::allocate({Backend::cpu, 0}, 64);
    in_fresh_process([&] {
      expect_contains(text_of<DeviceError>([] { Storage::allocate({Backend::cpu, 0}, 64); }), {"forked"});
      expect_contains(text_of<DeviceError>([] { Queue::of({Backend::cpu, 0}); }), {"forked"});
      Storage::allocate({Backend::cpu, 1}, 64);  // the child can use it, because the parent has not opened it
    });
    Storage::allocate({Backend::cpu, 0}, 64);  // the parent can still use the device
  });
}

TEST(Exit, StaticStoragesMayBeDestroyedAfterDrain) {
  // In a child that exits normally, queued work must finish, and freeing memory later must have no effect.
  ::fflush(nullptr);
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    // Handlers and destructors run in reverse order: first the handler that drains the queues, then the destructor,
    // then the check, which ends the process.
    static std::atomic<int> ran = 0;
    static bool destroyed = false;
    std::atexit([] { ::_exit(ran == 20 && destroyed ? 0 : 10 + ran); });
    struct Last {
      BufferView view;
      Kernel kernel;
      ~Last() {
        view.storage.reset();
        kernel = {};
        destroyed = true;
      }
    };
    static Last kept;
    auto& cuda = add(Backend::cuda, {{DeviceKind::discrete_gpu, gib}});
    test::set_body("count", [](const test::Launch&) { ++ran; });
    {
      ir::Builder b("count", ir::KernelKind::map);
      ir::Builder::Scope scope(b);
      ir::buffer_param("x", DType::f32, ir::Access::read_write).store(ir::global_id(), 1.0f);
      kept.kernel = Kernel(b.finish());
    }
    kept.view = {Storage::allocate({Backend::cuda, 0}, 64), 0, 16, DType::f32};
    cuda.behaviour(0)->max_delay_us = 2000;
    for (int i = 0; i < 20; ++i) kept.kernel.launch({16, 1, 1}, {kept.view});
    std::exit(0);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << "status " << status;
}

}  // namespace
}  // namespace tessera

/// These tests fork while threads of queues are running.
extern "C" const char* __tsan_default_options() { return "die_after_fork=0"; }
