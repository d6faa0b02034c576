// SPDX-License-Identifier: Apache-2.0
// Tests that a certificate is valid only for its own model, and that the check reports what has changed.
#include "tessera/nn/verify/certificate.h"

#include <cmath>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <random>
#include <sstream>

#include "tessera/array/move.h"
#include "tessera/base/sha256.h"
#include "tests/llm/varied_model.h"
#include "tests/support/errors.h"
#include "tests/support/every_device.h"
#include "tests/support/folder.h"

namespace tessera {
namespace {

using Json = nlohmann::ordered_json;
using test::expect_throw;
using test::holds;
using test::OnEveryDevice;
using test::varied;
TESSERA_ON_EVERY_DEVICE();

void write(const std::string& path, const std::string& text) { std::ofstream(path) << text; }

auto network(std::mt19937_64& random) {
  return varied(setup(sequential(dense<2, 12>, relu, dense<12, 12>, relu, dense<12, 3>), {.seed = 1}), random);
}
/// Returns a property that the verifier can only prove by splitting the box.
template <class Model>
Property tight(const Model& model, const InputBox& box, std::mt19937_64& random) {
  const Array y = model(test::inputs_of(box, 500, random));
  const double low = min(y).item<float>(), high = max(y).item<float>(), width = high - low;
  return bounded(low - 0.1 * width, high + 0.1 * width);
}
std::string all_of(const CertificateCheck& check) { return to_string(check); }

TEST_P(OnEveryDevice, CertificateIsValidOnlyForItsModel) {
  const test::Folder folder;
  const std::string file = folder / "proof.json";
  const InputBox box = InputBox::of({2}, -1, 1);
  const auto model = network(random);
  const Property property = tight(model, box, random);
  const Proof proof = prove(model, property, box);
  ASSERT_EQ(proof.verdict, Verdict::proven) << to_string(proof);
  EXPECT_GT(proof.boxes, 1u) << "the proof did not split the box";
  save_certificate(certificate_of(model, proof), file);
  const Certificate c = load_certificate(file);
  EXPECT_TRUE(c.edited.empty());
  EXPECT_EQ(to_string(c.property), to_string(property));
  EXPECT_EQ(c.tree, proof.tree);
  const CertificateCheck check = check_certificate(model, c);
  EXPECT_TRUE(check.holds) << all_of(check);
  EXPECT_LE(check.boxes, proof.boxes);
  EXPECT_EQ(check.boxes, static_cast<std::uint64_t>((proof.tree.size() + 1) / 2));

  // Changes the last bit of one weight.
  auto other = clone(model);
  auto weights = other.template get<2>().weight.template to_vector<float>();
  weights[17] = std::nextafter(weights[17], 10.0f);
  other.template get<2>().weight = Array::from(weights, Shape{12, 12});
  CertificateCheck changed = check_certificate(other, c);
  EXPECT_FALSE(changed.holds);
  EXPECT_EQ(changed.changed, std::vector<std::string>{"array 2.weight has different elements"});
  // Another kind of layer, and fewer layers.
  const auto smooth = Sequential{model.template get<0>(), Elementwise{static_cast<Array (*)(Array)>(tanh)},
                                 model.template get<2>(), model.template get<3>(), model.template get<4>()};
  EXPECT_TRUE(holds(all_of(check_certificate(smooth, c)), "layer 1 is"));
  EXPECT_TRUE(holds(all_of(check_certificate(smooth, c)), "Tanh"));
  const auto shorter = Sequential{model.template get<0>(), model.template get<1>(), model.template get<2>()};
  EXPECT_TRUE(holds(all_of(check_certificate(shorter, c)), "the model has 3 layers, expected 5"));
  // The model was changed after the proof, so the property no longer holds.
  other.template get<4>().bias = other.template get<4>().bias + 100;
  expect_throw<ArgumentError>([&] { certificate_of(other, proof); }, {"does not hold for the current model"});
}

TEST_P(OnEveryDevice, CertifiesRobustnessAndProbabilityProperties) {
  const test::Folder folder;
  const std::string file = folder / "proof.json";
  const auto model = varied(setup(sequential(dense<3, 8>, relu, dense<8, 4>, Softmax{}), {.seed = 1}), random);
  const auto there_and_back = [&](const Property& property, const InputBox& box) {
    const Proof proof = prove(model, property, box);
    ASSERT_EQ(proof.verdict, Verdict::proven) << to_string(proof);
    save_certificate(certificate_of(model, proof), file);
    const CertificateCheck check = check_certificate(model, load_certificate(file));
    EXPECT_TRUE(check.holds) << all_of(check);
  };
  there_and_back(probabilities(), InputBox::of({3}, -2, 2));
  there_and_back(finite(), InputBox::of({3}, -2, 2));
  there_and_back(robust(1e-4), InputBox::at(Array::from<float>({0.3f, 0.1f, -1})));
  there_and_back(robust(1e-4, Norm::two), InputBox::at(Array::from<float>({0.3f, 0.1f, -1})));
  there_and_back(inequality({1, 1, 1, 1}, 1.01), InputBox::of({3}, -0.01f, 0.01f));
  const Proof refuted = prove(model, bounded(0, 0.1), InputBox::of({3}, -1, 1));
  expect_throw<ArgumentError>([&] { certificate_of(model, refuted); }, {"refuted", "only proven properties"});
}

// Bounds are computed on the host. They use the rounding of the least accurate device, so that they do not depend on
// the device of the model.
TEST_P(OnEveryDevice, AcceptsCertificatesFromOtherDevices) {
  const Device cpu{Backend::cpu, 0};
  const auto there = network(random);
  const auto here = to(there, cpu);
  const InputBox box = InputBox::of({2}, -1, 1);
  for (const Property& property : {tight(there, box, random), robust(0.01), finite()}) {
    SCOPED_TRACE(to_string(property));
    const InputBox asked = property.kind == Property::Kind::robust ? InputBox::of({2}, 0.3f, 0.3f) : box;
    const Proof a = prove(there, property, asked, {.attack = false}),
                b = prove(here, property, asked, {.attack = false});
    EXPECT_EQ(a.verdict, b.verdict) << to_string(a) << to_string(b);
    EXPECT_EQ(a.boxes, b.boxes);
    EXPECT_EQ(a.low, b.low);
    EXPECT_EQ(a.high, b.high);
    EXPECT_EQ(a.margin, b.margin);
    EXPECT_TRUE(a.tree == b.tree);
    if (property.kind != Property::Kind::robust) {
      EXPECT_EQ(a.verdict, Verdict::proven);
    }
    if (a.verdict != Verdict::proven) continue;
    const Certificate c = certificate_of(there, a);
    EXPECT_EQ(c.device, to_string(GetParam()));
    const CertificateCheck check = check_certificate(here, c);
    EXPECT_TRUE(check.holds) << all_of(check);
  }
}

TEST(Certificates, CheckReportsEditedPartsOfTheFile) {
  const DeviceScope scope(Device{});
  const test::Folder folder;
  const std::string file = folder / "proof.json";
  std::mt19937_64 random(testing::seed());
  const InputBox box = InputBox::of({2}, -1, 1);
  const auto model = network(random);
  const Proof proof = prove(model, tight(model, box, random), box);
  ASSERT_EQ(proof.verdict, Verdict::proven) << to_string(proof);
  save_certificate(certificate_of(model, proof), file);
  const std::string good = test::text_of(file);
  const auto checked = [&](const std::function<void(Json&)>& edit, bool with_hashes = false) {
    Json json = Json::parse(good);
    edit(json);
    if (with_hashes)
      for (auto& [name, hash] : json["hashes"].items()) hash = sha256(json[name].dump());
    write(file, json.dump());
    return check_certificate(model, load_certificate(file));
  };
  EXPECT_TRUE(checked([](Json&) {}).holds) << "line breaks and spaces are ignored";
  struct Edit {
    const char* part;
    std::function<void(Json&)> edit;
  };
  const std::string wide = "bounded(-1000, 1000)", narrow = "bounded(-0.001, 0.001)";
  for (const auto& [part, edit] :
       {Edit{"property", [&](Json& j) { j["property"] = narrow; }},
        Edit{"property", [&](Json& j) { j["property"] = wide; }},
        Edit{"bounds", [](Json& j) { j["bounds"]["low"][1] = j["bounds"]["low"][1].get<double>() + 1e-6; }},
        Edit{"bounds", [](Json& j) { j["bounds"]["margin"] = 10; }},
        Edit{"input", [](Json& j) { j["input"]["high"][0] = 1.5; }},
        Edit{"splits", [](Json& j) { j["splits"] = {-2}; }}, Edit{"batch", [](Json& j) { j["batch"] = 64; }},
        Edit{"library", [](Json& j) { j["library"] = "0.0.1"; }},
        Edit{"device", [](Json& j) { j["device"] = "cuda:0"; }},
        Edit{"layers", [](Json& j) { j["layers"][1]["kind"] = "Tanh"; }},
        Edit{"arrays", [](Json& j) { j["arrays"]["0.bias"]["sha256"] = std::string(64, '0'); }},
        Edit{"arrays", [](Json& j) { j["arrays"].erase("0.bias"); }},
        Edit{"note", [](Json& j) { j["note"] = "and more is proven"; }},
        Edit{"property", [](Json& j) { j["hashes"].erase("property"); }}}) {
    SCOPED_TRACE(part);
    const CertificateCheck check = checked(edit);
    EXPECT_FALSE(check.holds);
    EXPECT_TRUE(holds(all_of(check), "the certificate's \"" + std::string(part) + "\" was edited"));
  }
  // Even if the hashes match, every claim is proven again.
  struct Forged {
    const char* said;
    std::function<void(Json&)> edit;
  };
  for (const auto& [said, edit] :
       {Forged{"is not decided by the bounds", [&](Json& j) { j["property"] = narrow; }},
        Forged{"is bounded by", [](Json& j) { j["bounds"]["low"][1] = j["bounds"]["high"][1]; }},
        Forged{"but the certificate claims", [](Json& j) { j["bounds"]["margin"] = 1e6; }},
        Forged{"a different number of outputs", [](Json& j) { j["bounds"]["low"] = {1.5}; }},
        Forged{"not decided by the bounds",
               [](Json& j) {
                 j["input"]["high"] = {30.0, 30.0};
               }},
        Forged{"not decided by the bounds", [](Json& j) { j["splits"] = {-1}; }},
        Forged{"do not cover the box", [](Json& j) { j["splits"].erase(j["splits"].size() - 1); }},
        Forged{"the recorded splits contain extra entries", [](Json& j) { j["splits"].push_back(-2); }},
        Forged{"bisects a single point",
               [](Json& j) {
                 j["splits"] = {7, -2, -2};
               }},
        Forged{"the batch is 0", [](Json& j) { j["batch"] = 0; }},
        Forged{"the batch is -5", [](Json& j) { j["batch"] = -5; }},
        Forged{"the class of the box's centre", [](Json& j) { j["bounds"]["class"] = 1; }},
        Forged{"layer 1 is", [](Json& j) { j["layers"][1]["kind"] = "Tanh"; }},
        Forged{"array 0.bias is not in the certificate", [](Json& j) { j["arrays"].erase("0.bias"); }},
        Forged{"layer", [](Json& j) {
                 j["input"] = {{"shape", {3}}, {"low", {0.0, 0.0, 0.0}}, {"high", {1.0, 1.0, 1.0}}};
               }}}) {
    SCOPED_TRACE(said);
    const CertificateCheck check = checked(edit, true);
    EXPECT_FALSE(check.holds);
    EXPECT_TRUE(holds(all_of(check), said));
  }
  // The certificate is from another version, and from a device that does not exist here.
  const CertificateCheck older = checked([](Json& j) { j["library"] = "0.0.1", j["device"] = "cuda:0"; }, true);
  EXPECT_TRUE(older.holds) << all_of(older);
  // Files that are not certificates.
  for (const std::string& text : {std::string("{}"), std::string("[1, 2]"), std::string("{\"kind\": \"x\"}"),
                                  good.substr(0, good.size() / 2), std::string("\0\0", 2)}) {
    write(file, text);
    EXPECT_THROW(load_certificate(file), FormatError) << text.substr(0, 20);
  }
  Json later = Json::parse(good);
  later["format"] = 2;
  write(file, later.dump());
  expect_throw<FormatError>([&] { load_certificate(file); }, {"proof.json", "format is 2"});
  expect_throw<ArgumentError>([&] { load_certificate(folder / "none.json"); }, {"none.json"});
}

}  // namespace
}  // namespace tessera
