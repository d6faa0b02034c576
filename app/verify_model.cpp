// SPDX-License-Identifier: Apache-2.0
// `tessera verify-model`: proves properties of a saved model and checks certificates of proofs.
#include <fmt/format.h>

#include <cmath>
#include <functional>
#include <nlohmann/json.hpp>

#include "arguments.h"
#include "command.h"
#include "terminal.h"
#include "tessera/base/os/input_file.h"
#include "tessera/base/printable.h"
#include "tessera/nn/verify/structure.h"
#include "tessera/tessera.h"

namespace tessera::app {
namespace {

using Json = nlohmann::ordered_json;

struct VerifyModelArguments {
  std::string model, questions, certificate, device, layers;
  double seconds = 60;
  std::int64_t boxes = 1'000'000, batch = 1;
  bool json = false;
};

/// The contents of the file that `--property` names.
struct Questions {
  InputBox box;
  std::vector<Property> properties;
  std::string layers;
};

[[noreturn]] void refuse(const std::string& file, const std::string& wrong) {
  fail<FormatError>({.operation = "read a properties file",
                     .with = {{"file", file}},
                     .wrong = wrong,
                     .remedy = "`tessera verify-model --help` shows an example"});
}

/// Reads one number for all elements, or a nested or flat list of numbers in C order.
std::vector<float> numbers_of(const Json& json, const Shape& shape) {
  const auto count = static_cast<std::size_t>(element_count(shape));
  std::vector<float> out;
  const std::function<void(const Json&)> add = [&](const Json& j) {
    if (j.is_array())
      for (const Json& part : j) add(part);
    else
      out.push_back(j.get<float>());
  };
  add(json);
  if (!json.is_array()) out.assign(count, out[0]);
  return out;
}
InputBox box_of(const std::string& file, const Json& input) {
  InputBox box{.shape = input.at("shape").get<Shape>()};
  for (const std::int64_t extent : box.shape)
    if (extent < 1 || element_count(box.shape) > (1 << 24)) refuse(file, "\"shape\" is not the shape of a sample");
  if (input.contains("at")) {
    const std::vector<float> at = numbers_of(input.at("at"), box.shape);
    if (at.size() != static_cast<std::size_t>(element_count(box.shape)))
      refuse(file, fmt::format("\"at\" has {} numbers for a sample of {}", at.size(), to_string(box.shape)));
    return InputBox::around(Array::from(at, box.shape, Device{}), input.value("radius", 0.0));
  }
  box.low = numbers_of(input.at("low"), box.shape), box.high = numbers_of(input.at("high"), box.shape);
  box.check();
  return box;
}
Questions questions_of(const std::string& file) {
  Questions out;
  const InputFile input(file);
  std::string text(input.size(), '\0');
  input.read(0, std::as_writable_bytes(std::span(text)));
  try {
    const Json json = Json::parse(text);
    out.layers = json.value("layers", "");
    out.box = box_of(file, json.at("input"));
    if (json.contains("property")) out.properties.push_back(property_of(json.at("property").get<std::string>()));
    if (json.contains("properties"))
      for (const Json& p : json.at("properties")) out.properties.push_back(property_of(p.get<std::string>()));
  } catch (const nlohmann::json::exception& e) {
    refuse(file, std::string("invalid contents: ") + e.what());
  }
  if (out.properties.empty()) refuse(file, "it contains no property");
  return out;
}

Json json_of(const Array& a) { return a.astype(DType::f32).to_vector<float>(); }
/// Converts infinity and NaN to null, because JSON cannot represent them.
Json json_of(double v) { return std::isfinite(v) ? Json(v) : Json(nullptr); }
Json json_of(const Proof& p) {
  Json out = {{"property", to_string(p.property)},
              {"verdict", std::string(verdict_name(p.verdict))},
              {"seconds", p.seconds},
              {"boxes", p.boxes},
              {"share", p.share}};
  if (p.verdict == Verdict::proven) out["margin"] = json_of(p.margin);
  if (!p.reason.empty()) out["reason"] = p.reason;
  if (!p.low.empty() && p.verdict != Verdict::refuted) {
    for (const double v : p.low) out["bounds"]["low"].push_back(json_of(v));
    for (const double v : p.high) out["bounds"]["high"].push_back(json_of(v));
  }
  if (p.counterexample) {
    const Counterexample& c = *p.counterexample;
    out["counterexample"] = {{"what", c.what}, {"input", json_of(c.input)}, {"output", json_of(c.output)}};
    if (c.other_input) out["counterexample"]["other_input"] = json_of(*c.other_input);
    if (c.other_output) out["counterexample"]["other_output"] = json_of(*c.other_output);
  }
  return out;
}

void print_proof(const Proof& p) {
  const Style style(output());
  const std::string verdict(verdict_name(p.verdict)), name = to_string(p.property);
  std::string text = to_string(p);
  text = text.substr(verdict.size());
  print("{}  {}{}\n", padded(name, 28),
        p.verdict == Verdict::proven    ? style.good(verdict)
        : p.verdict == Verdict::refuted ? style.bad(verdict)
                                        : style.strong(verdict),
        text);
}

int prove_all(const VerifyModelArguments& o, const verification::Subject& subject, const Questions& asked) {
  if (!o.certificate.empty() && asked.properties.size() != 1)
    fail<ArgumentError>({.operation = "tessera verify-model --certificate",
                         .with = {{"properties", std::to_string(asked.properties.size())}},
                         .wrong = "a certificate is for one property",
                         .remedy = "Use a separate file for each property"});
  Progress progress(o.json);
  Json all = Json::array();
  bool proven = true;
  for (const Property& property : asked.properties) {
    const Proof proof = verification::prove_subject(
        subject, property, asked.box,
        {.seconds = o.seconds,
         .boxes = static_cast<std::uint64_t>(o.boxes),
         .batch = o.batch,
         .progress = [&](const ProveProgress& p) {
           progress.update(fmt::format("{}: {:.3g} % proven by {} boxes, {} waiting", to_string(property),
                                       100 * p.share, p.boxes, p.waiting));
         }});
    progress.clear();
    proven = proven && proof.verdict == Verdict::proven;
    if (o.json)
      all.push_back(json_of(proof));
    else
      print_proof(proof);
    if (o.certificate.empty()) continue;
    if (proof.verdict == Verdict::proven) save_certificate(certificate_of_subject(subject, proof), o.certificate);
    if (!o.json)
      print("{}\n", proof.verdict == Verdict::proven ? "written: " + printable_line(o.certificate)
                                                     : "not proven, so no certificate is written");
  }
  if (o.json)
    print("{}\n", Json{{"model", o.model}, {"device", to_string(subject.device)}, {"proofs", all}}.dump(
                      2, ' ', false, Json::error_handler_t::replace));
  return proven ? success : failed;
}

int check_one(const VerifyModelArguments& o, const verification::Subject& subject) {
  const Certificate certificate = load_certificate(o.certificate);
  const CertificateCheck check = verification::check_subject(subject, certificate);
  if (o.json) {
    const Json out = {{"certificate", o.certificate}, {"property", to_string(certificate.property)},
                      {"holds", check.holds},         {"changed", check.changed},
                      {"boxes", check.boxes},         {"seconds", check.seconds}};
    print("{}\n", out.dump(2, ' ', false, Json::error_handler_t::replace));
  } else {
    print("{}  {}\n", padded(to_string(certificate.property), 28), to_string(check));
  }
  return check.holds ? success : failed;
}

int run_verify_model(const VerifyModelArguments& o) {
  Questions asked;
  if (!o.questions.empty()) asked = questions_of(o.questions);
  const Device device = o.device.empty() ? current_device() : parse_device(o.device);
  const DeviceScope scope(device);
  std::string layers = !o.layers.empty() ? o.layers : asked.layers;
  if (layers.empty() && o.questions.empty()) {
    // If the model's file does not describe its layers, use the description in the certificate.
    if (!SafetensorsFile::open(o.model).metadata().contains("tessera.layers"))
      layers = load_certificate(o.certificate).layers;
  }
  verification::Subject subject{verification::load_layers(o.model, layers, device), {}, device};
  subject.run = [&](const Array& x) { return verification::run_layers(subject.layers, x); };
  return o.questions.empty() ? check_one(o, subject) : prove_all(o, subject, asked);
}

constexpr const char* footer = R"text(A properties file:
  {"layers": "dense,relu,dense",
   "input": {"shape": [2], "low": -1, "high": [1, 0.5]},
   "properties": ["bounded(-10, 10)", "inequality(1, -1 <= 0)"]}
"layers" is needed if the model's file does not describe them. A sample and its neighbourhood:
  "input": {"shape": [2], "at": [0.5, 0], "radius": 0.1}
Properties: finite(), bounded(LOW, HIGH), inequality(C0, C1, ... <= BOUND), probabilities(), robust(RADIUS, NORM)
with the norm infinity, two or one; monotone(INPUT) and lipschitz(CONSTANT, RADIUS) are tested, not proven.

Examples:
  tessera verify-model digits.safetensors --property robust.json
  tessera verify-model digits.safetensors --property robust.json --certificate proof.json
  tessera verify-model digits.safetensors --certificate proof.json      (checks the certificate)

Exit codes: 0 everything is proven, or the certificate is valid; 1 refuted, unknown or invalid; 2 wrong usage.)text";

}  // namespace

Command verify_model_command(CLI::App& program) {
  auto o = std::make_shared<VerifyModelArguments>();
  CLI::App* c =
      program.add_subcommand("verify-model", "Prove properties of a saved model, and check certificates of proofs");
  c->footer(footer);
  c->add_option("MODEL", o->model, "A safetensors file written by save_model, a trainer, or another library")
      ->required();
  auto* questions = c->add_option("--property", o->questions, "JSON file with inputs and properties");
  auto* certificate =
      c->add_option("--certificate", o->certificate, "With --property: the file to write; otherwise the file to check");
  for (auto* option : {questions, certificate}) option->check(require_nonempty);
  c->add_option("--layers", o->layers, "The layers of the model, such as dense,relu,dense");
  c->add_option("--device", o->device, "The model's device")->check(require_nonempty);
  c->add_option("--seconds", o->seconds, "Time limit in seconds, for each property")
      ->transform(number(0, 1e9))
      ->capture_default_str();
  c->add_option("--boxes", o->boxes, "Maximum number of boxes that the input is split into")
      ->transform(integer_in_range(1, 1'000'000'000))
      ->capture_default_str();
  c->add_option("--batch", o->batch, "Batch size: proofs are valid for calls with up to this number of samples")
      ->transform(integer_in_range(1, 1 << 20))
      ->capture_default_str();
  c->add_flag("--json", o->json, "Print JSON");
  c->final_callback([c, questions, certificate] {
    if (c->parsed() && questions->count() == 0 && certificate->count() == 0)
      throw CLI::RequiredError("--property or --certificate");
  });
  return {c, [o] { return run_verify_model(*o); }};
}

}  // namespace tessera::app
