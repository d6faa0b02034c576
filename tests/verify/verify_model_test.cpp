// SPDX-License-Identifier: Apache-2.0
// Runs `tessera verify-model`.
#include <cmath>

#include <gtest/gtest.h>
#include <tessera/tessera.h>

#include <nlohmann/json.hpp>

#include "tessera/nn/verify/structure.h"
#include "tests/app/app_program.h"
#include "tests/support/errors.h"

namespace tessera {
namespace {

using test::holds;
using test::Outcome;

/// Returns a model with y0 = |x0| + |x1| and y1 = -y0.
auto network() {
  auto model = setup(sequential(dense<2, 4>, relu, dense<4, 2>), {.seed = 1});
  model.get<0>().weight = Array::from<float>({1, 0, -1, 0, 0, 1, 0, -1}, Shape{4, 2});
  model.get<0>().bias = Array::zeros({4});
  model.get<2>().weight = Array::from<float>({1, 1, 1, 1, -1, -1, -1, -1}, Shape{2, 4});
  model.get<2>().bias = Array::zeros({2});
  return model;
}

class VerifyModel : public ::testing::Test {
 protected:
  void SetUp() override {
    const DeviceScope scope(Device{});
    save_model(network(), model, {{"tessera.layers", describe(network())}});
  }
  Outcome verify(std::vector<std::string> more) {
    more.insert(more.begin(), {"verify-model", model, "--device", "cpu"});
    return test::run(more);
  }
  std::string asked(const std::string& text) {
    test::write_file(folder / "asked.json", text);
    return folder / "asked.json";
  }
  test::TemporaryFolder folder;
  const std::string model = folder / "model.safetensors", proof = folder / "proof.json";
};

TEST_F(VerifyModel, ReportsProvenRefutedAndUnknownProperties) {
  const std::string file = asked(R"j({"input": {"shape": [2], "low": -1, "high": [1, 0.5]},
    "properties": ["bounded(-2.001, 2.001)", "bounded(-1, 1)", "inequality(1, 1 <= 0.001)", "bounded(-2, 2)"]})j");
  const Outcome all = verify({"--property", file});
  EXPECT_EQ(all.code, 1) << all.err;
  EXPECT_TRUE(holds(all.out, "bounded(-2.001, 2.001)        proven, "));
  EXPECT_TRUE(holds(all.out, "bounded(-1, 1)                refuted, "));
  EXPECT_TRUE(holds(all.out, "  input  ("));
  EXPECT_TRUE(holds(all.out, "inequality(1, 1 <= 0.001)     proven, "));
  EXPECT_TRUE(holds(all.out, "within the rounding error"));
  const Outcome json = verify({"--property", file, "--json"});
  EXPECT_EQ(json.code, 1);
  const auto parsed = nlohmann::json::parse(json.out);
  EXPECT_EQ(parsed.at("device"), "cpu:0");
  const auto& proofs = parsed.at("proofs");
  ASSERT_EQ(proofs.size(), 4u);
  EXPECT_EQ(proofs[0].at("verdict"), "proven");
  EXPECT_GE(proofs[0].at("bounds").at("low").at(1).get<double>(), -2.001);
  EXPECT_EQ(proofs[1].at("verdict"), "refuted");
  const auto x = proofs[1].at("counterexample").at("input").get<std::vector<double>>();
  EXPECT_GT(std::abs(x.at(0)) + std::abs(x.at(1)), 1);
  EXPECT_EQ(proofs[3].at("verdict"), "unknown");
  const Outcome good = verify({"--property", asked(R"j({"layers": "dense,relu,dense", "property": "robust(0.09)",
    "input": {"shape": [2], "at": [0.1, 0], "radius": 0}})j")});
  EXPECT_EQ(good.code, 0) << good.out << good.err;
}

TEST_F(VerifyModel, WritesAndChecksCertificates) {
  const std::string file =
      asked(R"j({"input": {"shape": [2], "low": -1, "high": 1}, "property": "bounded(-2.1, 2.1)"})j");
  const Outcome written = verify({"--property", file, "--certificate", proof});
  EXPECT_EQ(written.code, 0) << written.err;
  EXPECT_TRUE(holds(written.out, "written: " + proof));
  const Outcome checked = verify({"--certificate", proof});
  EXPECT_EQ(checked.code, 0) << checked.out << checked.err;
  EXPECT_TRUE(holds(checked.out, "valid: "));
  const Outcome json = verify({"--certificate", proof, "--json"});
  EXPECT_EQ(nlohmann::json::parse(json.out).at("holds"), true);
  // The file now contains another model.
  {
    const DeviceScope scope(Device{});
    auto other = network();
    other.get<0>().bias = Array::from<float>({0, 0, 0, 0.01f});
    save_model(other, model, {{"tessera.layers", describe(other)}});
  }
  const Outcome stale = verify({"--certificate", proof});
  EXPECT_EQ(stale.code, 1);
  EXPECT_TRUE(holds(stale.out, "invalid:\n  array 0.bias has different elements\n"));
  // Without a proof, no certificate is written, and the existing certificate is not changed.
  const std::string before = test::text_of(proof);
  const Outcome none =
      verify({"--certificate", proof, "--property",
              asked(R"j({"input": {"shape": [2], "low": -1, "high": 1}, "property": "bounded(0, 1)"})j")});
  EXPECT_EQ(none.code, 1);
  EXPECT_TRUE(holds(none.out, "no certificate is written"));
  EXPECT_EQ(test::text_of(proof), before);
}

TEST_F(VerifyModel, ReadsModelsFromTheTrainCommand) {
  const DeviceScope scope(Device{});
  const auto checked = [&](std::vector<std::string> task, const Shape& input, const std::string& shape, auto network) {
    task.insert(task.begin(), "train");
    task.insert(task.end(), {"--steps", "12", "--batch", "16", "--device", "cpu", "--quiet", "--out", model});
    const Outcome trained = test::run(task);
    ASSERT_EQ(trained.code, 0) << trained.err;
    const std::string file = asked(R"j({"input": {"shape": )j" + shape +
                                   R"j(, "low": 0, "high": 1}, "properties": ["finite()", "bounded(0, 1e-6)"]})j");
    const Outcome asked_both = verify({"--property", file});
    EXPECT_EQ(asked_both.code, 1) << asked_both.err;
    EXPECT_TRUE(holds(asked_both.out, "finite()                      proven, "));
    EXPECT_TRUE(holds(asked_both.out, "bounded(0, 1e-06)             refuted, "));
    const std::string finite = asked(R"j({"input": {"shape": )j" + shape + R"j(, "low": 0, "high": 1},
                                         "property": "finite()"})j");
    EXPECT_EQ(verify({"--property", finite, "--certificate", proof}).code, 0);
    EXPECT_EQ(verify({"--certificate", proof}).code, 0);
    // The model can also be loaded by a program, into the network that was trained.
    auto loaded = setup(std::move(network), {.seed = 5, .input = input});
    load_model(loaded, model);
    Shape batch = input;
    batch.insert(batch.begin(), 3);
    const Array x = random_uniform(batch, 1);
    const auto layers = verification::load_layers(model, "", Device{});
    const Array y = verification::run_layers(layers, x), wanted = loaded(x);
    EXPECT_TRUE(y.to_vector<float>() == wanted.to_vector<float>());
    EXPECT_EQ(verification::text_of(layers), describe(loaded));
  };
  checked({"spirals"}, {2}, "[2]",
          Sequential{Dense{.inputs = 2, .outputs = 64}, Relu{}, Dense{.outputs = 64}, Relu{}, Dense{.outputs = 2}});
  checked({"digits", "--model", "mlp"}, {1, 28, 28}, "[1, 28, 28]",
          Sequential{Flatten{}, Dense{.outputs = 256}, Relu{}, Dense{.outputs = 10}});
  checked({"digits", "--model", "conv"}, {1, 28, 28}, "[1, 28, 28]",
          Sequential{Conv2d{.out = 8, .kernel = 5, .stride = 2, .padding = 2}, Relu{},
                     Conv2d{.out = 16, .kernel = 3, .stride = 2, .padding = 1}, Relu{}, Flatten{}, Dense{.outputs = 64},
                     Relu{}, Dense{.outputs = 10}});
}

TEST_F(VerifyModel, RejectsInvalidArguments) {
  const auto says = [&](const Outcome& outcome, int code, const std::string& text) {
    EXPECT_EQ(outcome.code, code) << outcome.out;
    EXPECT_TRUE(holds(outcome.err, text));
  };
  says(verify({}), 2, "--property or --certificate");
  says(verify({"--property", folder / "none.json"}), 1, "none.json");
  says(verify({"--property", asked("{")}), 1, "asked.json");
  says(verify({"--property", asked(R"j({"property": "finite()"})j")}), 1, "input");
  says(verify({"--property", asked(R"j({"input": {"shape": [2], "low": 0, "high": 1}})j")}), 1, "contains no property");
  says(verify({"--property", asked(R"j({"input": {"shape": [2], "low": 0, "high": 1}, "property": "round()"})j")}), 1,
       "round()");
  says(verify({"--property", asked(R"j({"input": {"shape": [2], "low": 1, "high": 0}, "property": "finite()"})j")}), 1,
       "must not exceed");
  const std::string good = asked(R"j({"input": {"shape": [2], "low": 0, "high": 1}, "property": "finite()"})j");
  says(verify({"--property", good, "--layers", "dense,dance"}), 1, "dance");
  says(verify({"--property", good, "--layers", "dense,dense"}), 1, "1.weight");
  says(verify({"--property", good, "--layers", "dense"}), 1, "2.weight");
  says(verify({"--property", good, "--seconds", "-1"}), 2, "--seconds");
  {
    const DeviceScope scope(Device{});
    save_model(network(), model);
  }
  says(verify({"--property", good}), 1, "does not describe its layers");
  EXPECT_EQ(verify({"--property", good, "--layers", "dense,relu,dense"}).code, 0);
  test::write_file(model, "no model");
  says(verify({"--property", good}), 1, "model.safetensors");
  EXPECT_TRUE(holds(verify({"--help"}).out, "A properties file"));
}

}  // namespace
}  // namespace tessera
