// SPDX-License-Identifier: Apache-2.0
// Cost and errors of sequences on drivers with graphs: number of driver calls per replay and per token, errors while
// capturing, instantiating and launching, and drivers without graphs. Objects must not be destroyed while they are in
// use. Each case runs in a separate process with a fake driver.
#include <cstdio>
#include <functional>

#include <gtest/gtest.h>

#include "tessera/array/array.h"
#include "tessera/base/os/library.h"
#include "tessera/device/launch/kernel.h"
#include "tessera/device/queue/sequence.h"
#include "tessera/ir/value.h"
#include "tessera/llm/decoder.h"
#include "tessera/llm/estimate.h"
#include "tessera/llm/language_model.h"
#include "tests/llm/reference_llama.h"
#include "tests/support/errors.h"
#include "tests/support/fake_backends.h"
#include "tests/support/run_in_child.h"

namespace tessera {
namespace {

using test::expect_contains;
using test::message;
using test::Variables;
using Floats = std::vector<float>;

class SequenceFaults : public ::testing::TestWithParam<Backend> {
 protected:
  static const test::FakeBackend& fake() { return test::fake_backend(GetParam()); }
  static Device device() { return {GetParam(), 0}; }
  static bool oneapi() { return GetParam() == Backend::oneapi; }
  static std::string file_;  ///< the file of the driver in use
  template <class F>
  static F* symbol(const char* name) {
    return os::Library::open(file_).function<F>(name);
  }
  static std::uint64_t count(const char* what) {
    return symbol<std::uint64_t(const char*)>("tessera_fake_count")(what);
  }
  static std::uint64_t live(const char* what) { return symbol<std::uint64_t(const char*)>("tessera_fake_live")(what); }
  static void count_calls() { symbol<void(int)>("tessera_fake_count_calls")(1); }
  static void hold(bool held) { symbol<void(int)>("tessera_fake_hold")(held); }

  /// Runs `work`. Returns failed checks and violations reported by the driver.
  static std::string run(const Variables& changed, const std::function<void()>& work,
                         const std::string& driver = fake().driver) {
    file_ = test::fake_library(driver);
    Variables all = changed;
    all.emplace_back(fake().driver_variable, file_);
    return test::run_in_child(
        test::with_fakes(all),
        [&] {
          work();
          char text[2048] = "";
          symbol<int(char*, std::size_t)>("tessera_fake_breaches")(text, sizeof text);
          std::fflush(nullptr);
          return (::testing::Test::HasFailure() ? "an assertion failed (see above)\n" : "") + std::string(text);
        },
        60);
  }
};
std::string SequenceFaults::file_;
INSTANTIATE_TEST_SUITE_P(Backends, SequenceFaults, ::testing::Values(Backend::cuda, Backend::rocm, Backend::oneapi),
                         [](const auto& info) { return std::string(backend_name(info.param)); });

const Kernel& add() {
  static const Kernel& kernel = *new Kernel([] {
    ir::Builder builder("sequence_add", ir::KernelKind::map);
    ir::Builder::Scope scope(builder);
    const auto y = ir::buffer_param("y", DType::f32, ir::Access::read_write);
    const ir::Value a = ir::scalar_param("a", DType::f32), i = ir::global_id();
    y.store(i, y.load(i) + a);
    return builder.finish();
  }());
  return kernel;
}
void launch(const Array& y, float a, bool slot = false) {
  const auto number = LaunchArgument::scalar(a);
  add().launch({static_cast<std::uint64_t>(y.size()), 1, 1}, {y.view_for_writing(), slot ? number.in_slot(7) : number});
}
Sequence recorded(const Array& y, bool slots = false) {
  return Sequence::record(Queue::of(y.device()), [&] {
    for (int i = 0; i < 10; ++i) launch(y, 1, slots);
  });
}

TEST_P(SequenceFaults, ReplayMakesOneGraphLaunch) {
  EXPECT_EQ(run({},
                [] {
                  const Array y = Array::zeros({100}, DType::f32, device());
                  Sequence step = recorded(y);
                  EXPECT_TRUE(step.one_call());
                  EXPECT_EQ(step.size(), 10u);
                  Queue::of(device()).finish();
                  count_calls();
                  const std::uint64_t before = count("launches");
                  for (int i = 0; i < 5; ++i) step.replay();
                  EXPECT_EQ(count("graph launches"), 5u);
                  EXPECT_EQ(count("launches"), before);
                  // The other calls only query and set the current context.
                  EXPECT_LE(count("calls"), 5u * 6);
                  EXPECT_EQ(y.to_vector<float>(), Floats(100, 60));
                }),
            "");
}

TEST_P(SequenceFaults, ChangedScalarUpdatesOnlyNodesThatUseIt) {
  if (oneapi()) return;  // a closed command list cannot be changed; see the next test
  EXPECT_EQ(run({},
                [] {
                  const Array y = Array::zeros({100}, DType::f32, device());
                  Sequence step = recorded(y, true);
                  EXPECT_TRUE(step.one_call());
                  for (int i = 0; i < 5; ++i) step.replay();
                  step.set(7, LaunchArgument::scalar(2.0f));
                  step.replay(), step.replay();
                  step.set(7, LaunchArgument::scalar(2.0f));  // same as the current value
                  step.replay();
                  EXPECT_EQ(count("node changes"), 10u);
                  EXPECT_EQ(y.to_vector<float>(), Floats(100, 120));
                }),
            "");
}

TEST_P(SequenceFaults, ChangedScalarsApplyToNextReplay) {
  EXPECT_EQ(run({},
                [] {
                  const Array y = Array::zeros({100}, DType::f32, device());
                  Sequence step = recorded(y, true);
                  EXPECT_EQ(step.one_call(), !oneapi());
                  hold(true);  // queue all replays before the first one can run
                  float want = 10;
                  for (int i = 0; i < 6; ++i) {
                    step.set(7, LaunchArgument::scalar(static_cast<float>(i)));
                    step.replay();
                    want += 10 * static_cast<float>(i);
                  }
                  hold(false);
                  EXPECT_EQ(y.to_vector<float>(), Floats(100, want));
                }),
            "");
}

TEST_P(SequenceFaults, RunningReplayKeepsItsResources) {
  EXPECT_EQ(run({},
                [] {
                  Array y = Array::zeros({100}, DType::f32, device());
                  Array sum = Array::zeros({100}, DType::f32, device());
                  {
                    Sequence step = Sequence::record(Queue::of(device()), [&] {
                      launch(y, 1);
                      sum += (y * 2).eval();
                    });
                    hold(true);
                    step.replay();
                    EXPECT_EQ(live("executables"), 1u);
                  }
                  EXPECT_EQ(live("executables"), 1u) << "it has not run yet";
                  Array other = Array::full({100}, -5, DType::f32, device());  // must not reuse memory of the recording
                  hold(false);
                  EXPECT_EQ(sum.to_vector<float>(), Floats(100, 6));
                  EXPECT_EQ(other.to_vector<float>(), Floats(100, -5));
                  y = sum = other = Array();
                  trim(device());
                  EXPECT_EQ(live("executables"), 0u);
                  EXPECT_EQ(live("graphs"), 0u);
                  EXPECT_EQ(live("memory"), 0u);
                }),
            "");
}

TEST_P(SequenceFaults, FailedInstantiationThrowsAndQueueStaysUsable) {
  if (oneapi()) return;  // a closed command list needs no instantiation
  EXPECT_EQ(run({{"TESSERA_FAKE_FAULT", "instantiate"}},
                [] {
                  const Array y = Array::zeros({100}, DType::f32, device());
                  test::expect_throw<OutOfMemory>([&] { recorded(y); },
                                                  {"instantiating the graph of a sequence", "sequence_add"});
                  EXPECT_EQ(y.to_vector<float>(), Floats(100, 10)) << "the recorded work was done";
                  launch(y, 1);
                  EXPECT_EQ(y.to_vector<float>(), Floats(100, 11));
                  EXPECT_EQ(live("graphs"), 0u);
                }),
            "");
}

TEST_P(SequenceFaults, FailedCaptureThrowsAndQueueStaysUsable) {
  if (oneapi()) return;  // tested below with a driver without the extension
  EXPECT_EQ(run({{"TESSERA_FAKE_FAULT", "no-graphs"}},
                [] {
                  const Array y = Array::zeros({100}, DType::f32, device());
                  test::expect_throw<KernelError>([&] { recorded(y); }, {"capturing a sequence", "801"});
                  launch(y, 1);
                  EXPECT_EQ(y.to_vector<float>(), Floats(100, 11));
                }),
            "");
}

TEST_P(SequenceFaults, ReplayThrowsIfItsLaunchFails) {
  EXPECT_EQ(run({{"TESSERA_FAKE_FAULT", "graph-launch=2"}},
                [] {
                  const Array y = Array::zeros({100}, DType::f32, device());
                  Sequence step = recorded(y);
                  step.replay();
                  test::expect_throw<KernelError>([&] { step.replay(); }, {"launching a sequence", "sequence of 10"});
                  step.replay();
                  EXPECT_EQ(y.to_vector<float>(), Floats(100, 30));
                }),
            "");
}

TEST_P(SequenceFaults, LostDeviceThrowsAndOthersKeepWorking) {
  EXPECT_EQ(run({{"TESSERA_FAKE_FAULT", "lost=40"}},
                [] {
                  const Array y = Array::zeros({100}, DType::f32, device());
                  Sequence step = recorded(y);
                  std::string lost;
                  for (int i = 0; i < 10 && lost.empty(); ++i) {
                    const std::string said = message([&] { step.replay(), Queue::of(device()).finish(); });
                    if (said != "no error") lost = said;
                  }
                  expect_contains(lost, {"is lost", "sequence of 10", "launching a sequence"});
                  EXPECT_EQ(device_info(device()).state, DeviceState::lost);
                  test::expect_throw<DeviceError>([&] { step.replay(); }, {"is lost"});
                  const Array here = Array::zeros({10}, DType::f32, Device{});
                  Sequence other = recorded(here);
                  other.replay();
                  EXPECT_EQ(here.to_vector<float>(), Floats(10, 20));
                }),
            "");
}

TEST_P(SequenceFaults, SubmitsOperationsIndividuallyWithoutGraphSupport) {
  EXPECT_EQ(run(
                {{"TESSERA_FAKE_FAULT", oneapi() ? "no-graphs" : ""}},
                [] {
                  const Array y = Array::zeros({100}, DType::f32, device());
                  Sequence step = recorded(y, true);
                  EXPECT_FALSE(step.one_call());
                  const std::uint64_t before = count("launches");
                  step.set(7, LaunchArgument::scalar(3.0f));
                  step.replay();
                  EXPECT_EQ(count("launches"), before + 10);
                  EXPECT_EQ(y.to_vector<float>(), Floats(100, 40));
                },
                oneapi() ? fake().driver : fake().driver + std::string("_no_graphs")),
            "");
}

// Tokens of a language model:

TEST_P(SequenceFaults, GeneratingATokenIsOneGraphLaunch) {
  EXPECT_EQ(run({},
                [] {
                  const auto bytes = test::TinyModel{.type = GgmlType::q8_0}.writer().bytes();
                  const GgufFile file = GgufFile::parse(bytes, "tiny");
                  const Llama model = Llama::load(file, device());
                  KeyValueCache cache = model.make_cache(64), plain_cache = model.make_cache(64);
                  const std::vector<std::int32_t> prompt = {5, 9, 100, 7};
                  model.forward(prompt, cache), model.forward(prompt, plain_cache);
                  Decoder decoder(model, cache), plain(model, plain_cache, false);
                  const auto both = [&](std::int32_t token) {
                    EXPECT_EQ(decoder.step(token).to_vector<float>(), plain.step(token).to_vector<float>());
                  };
                  both(3), both(4), both(6);  // the second and third calls are recorded
                  EXPECT_TRUE(decoder.sequence().one_call());
                  const std::uint64_t launches = count("launches"), graphs = count("graph launches"),
                                      allocations = count("allocations");
                  count_calls();
                  Floats logits(203);
                  constexpr std::uint64_t tokens = 20;
                  for (std::uint64_t t = 0; t < tokens; ++t)
                    decoder.step(static_cast<std::int32_t>(t)).download(logits.data());
                  EXPECT_EQ(count("graph launches"), graphs + tokens);
                  EXPECT_EQ(count("launches"), launches);
                  EXPECT_EQ(count("allocations"), allocations);
                  if (!oneapi()) {  // upload of the token and download of the logits
                    const bool cuda = GetParam() == Backend::cuda;
                    EXPECT_EQ(count(cuda ? "cuMemcpyHtoDAsync_v2" : "hipMemcpyHtoDAsync"), tokens);
                    EXPECT_EQ(count(cuda ? "cuMemcpyDtoHAsync_v2" : "hipMemcpyDtoHAsync"), tokens);
                    EXPECT_EQ(count(cuda ? "cuStreamSynchronize" : "hipStreamSynchronize"), tokens);
                  }
                  const std::uint64_t calls = count("calls") / tokens;
                  for (std::uint64_t t = 0; t < tokens; ++t) plain.step(static_cast<std::int32_t>(t));
                  EXPECT_EQ(plain.step(1).to_vector<float>(), decoder.step(1).to_vector<float>());
                  std::printf("%llu pieces a token, %llu calls\n",
                              static_cast<unsigned long long>(decoder.sequence().size()),
                              static_cast<unsigned long long>(calls));
                }),
            "");
}

// Each device gets the position and, unless the device has chosen the token itself, the token. The layers may be on two
// devices; the copy between them is not counted.
TEST_P(SequenceFaults, GreedyTokenIsChosenWithFewBytesCopied) {
  for (const int devices : {1, 2})
    EXPECT_EQ(run({{"TESSERA_FAKE_DEVICES", std::to_string(devices)}},
                  [devices] {
                    const GgufFile file = GgufFile::open("models/pgdocs-2m-q8_0.gguf");
                    LoadOptions options;
                    for (int i = 0; i < devices; ++i) options.devices.push_back({GetParam(), i});
                    const std::uint64_t whole = estimate_memory(file, options.devices, {.context = 64}).devices[0].peak;
                    if (devices == 2) set_memory_limit(device(), memory_stats(device()).live_bytes + whole * 6 / 10);
                    const LanguageModel model = LanguageModel::load(file, options);
                    set_memory_limit(device(), 0);
                    EXPECT_EQ(model.model().layer_devices().back(), options.devices.back());
                    struct Bytes {
                      std::uint64_t up, down;
                    };
                    std::vector<Bytes> bytes;  // before the prompt, and before each token
                    GenerateOptions greedy{.sampling = {.temperature = 0}, .max_tokens = 12};
                    greedy.cancelled = [&] {
                      for (const Device d : options.devices) Queue::of(d).finish();
                      bytes.push_back({count("bytes up"), count("bytes down")});
                      return false;
                    };
                    EXPECT_EQ(model.generate("The VACUUM command", greedy).tokens.size(), 12u);
                    EXPECT_EQ(bytes.size(), 13u);
                    for (std::size_t t = 2; t < bytes.size(); ++t) {
                      const std::uint64_t up = bytes[t].up - bytes[t - 1].up;
                      EXPECT_GT(up, 0u) << t;
                      EXPECT_LE(up, 64u + 16u) << t;
                      EXPECT_EQ(bytes[t].down - bytes[t - 1].down, 4u) << t;
                      if (t + 1 == bytes.size())
                        std::printf("%llu bytes up a token on %d device(s)\n", static_cast<unsigned long long>(up),
                                    devices);
                    }
                  }),
              "");
}

}  // namespace
}  // namespace tessera
