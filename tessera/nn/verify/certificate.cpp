// SPDX-License-Identifier: Apache-2.0
#include "tessera/nn/verify/certificate.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <span>

#include "tessera/base/os/atomic_file.h"
#include "tessera/base/os/input_file.h"
#include "tessera/base/sha256.h"
#include "tessera/nn/verify/box_tree.h"
#include "tessera/nn/verify/counterexample.h"
#include "tessera/nn/verify/query.h"
#include "tessera/nn/verify/structure.h"

namespace tessera {

using verification::ArrayDigest;
using Json = nlohmann::ordered_json;

namespace {

constexpr std::int64_t certificate_format = 1;
constexpr const char* kind = "tessera certificate";

/// Returns the parts of the file that are hashed, by name.
Json parts_of_file(const Certificate& c) {
  Json arrays = Json::object();
  for (const auto& [path, mark] : c.arrays)
    arrays[path] = {{"dtype", mark.dtype}, {"shape", mark.shape}, {"sha256", mark.sha256}};
  return {{"library", c.library},
          {"device", c.device},
          {"layers", Json::parse(c.layers)},
          {"arrays", arrays},
          {"property", to_string(c.property)},
          {"batch", c.batch},
          {"input", {{"shape", c.box.shape}, {"low", c.box.low}, {"high", c.box.high}}},
          {"bounds", {{"low", c.low}, {"high", c.high}, {"margin", c.margin}, {"class", c.kept_class}}},
          {"splits", c.tree}};
}

void compare_arrays(const std::map<std::string, ArrayDigest>& now, const std::map<std::string, ArrayDigest>& then,
                    std::vector<std::string>& changed) {
  for (const auto& [path, mark] : then) {
    const auto found = now.find(path);
    if (found == now.end())
      changed.push_back(fmt::format("array {} is missing from the model", path));
    else if (found->second.dtype != mark.dtype || found->second.shape != mark.shape)
      changed.push_back(fmt::format("array {} is {} {}, expected {} {}", path, found->second.dtype,
                                    to_string(found->second.shape), mark.dtype, to_string(mark.shape)));
    else if (found->second.sha256 != mark.sha256)
      changed.push_back(fmt::format("array {} has different elements", path));
  }
  for (const auto& [path, mark] : now)
    if (!then.contains(path)) changed.push_back(fmt::format("array {} is not in the certificate", path));
}
void compare_layers(const Json& now, const Json& then, std::vector<std::string>& changed) {
  for (std::size_t i = 0; i < std::max(now.size(), then.size()); ++i) {
    if (i >= now.size() || i >= then.size()) {
      changed.push_back(fmt::format("the model has {} layers, expected {}", now.size(), then.size()));
      return;
    }
    if (now[i] != then[i])
      changed.push_back(fmt::format("layer {} is {}, expected {}", i, now[i].dump(), then[i].dump()));
  }
}

/// Checks each part of the box, using the splits recorded in the certificate.
class Again {
 public:
  Again(const verification::Network& net, const verification::Query& question, const std::vector<std::int32_t>& tree)
      : question_(question), net_(net), tree_(tree), analysis_(net, question.analysis_ball()) {}
  /// Returns an empty string if all parts are decided.
  std::string run() {
    std::vector<verification::Region> waiting = {question_.root};  // in pre-order; the last element is the next one
    for (const std::int32_t what : tree_) {
      if (waiting.empty()) return "the recorded splits contain extra entries";
      verification::Region region = std::move(waiting.back());
      waiting.pop_back();
      if (what >= 0) {
        const auto at = static_cast<std::size_t>(what);
        if (at >= region.lo.size() || !(region.lo[at] < region.hi[at]))
          return "a recorded split bisects a single point";
        verification::Region lower = region;
        verification::BoxTree::halve(region, what, true), verification::BoxTree::halve(lower, what, false);
        waiting.push_back(std::move(region)), waiting.push_back(std::move(lower));
        continue;
      }
      const verification::Decision d =
          decide(analysis_, net_, region, question_.goals, what == verification::BoxTree::by_linear_bounds);
      ++boxes;
      if (!d.decided) return fmt::format("part {} of the box is not decided by the bounds", boxes);
      hull.add(d.output), margin = std::min(margin, d.margin);
    }
    return waiting.empty() ? "" : "the recorded splits do not cover the box";
  }
  std::uint64_t boxes = 0;
  verification::Hull hull;
  double margin = std::numeric_limits<double>::infinity();

 private:
  const verification::Query& question_;
  const verification::Network& net_;
  const std::vector<std::int32_t>& tree_;
  verification::Analysis analysis_;
};

/// Recomputes the bounds and records in `check` how they differ from the certificate.
void prove_again(const verification::Subject& subject, const Certificate& c, CertificateCheck& check) {
  const verification::Network net = network_of(subject.layers, c.box.shape);
  if (!net.unknown.empty()) return check.changed.push_back(net.unknown);
  if (const std::string vendor = products_of_vendors(net, subject, c.batch); !vendor.empty())
    return check.changed.push_back(vendor);
  const verification::Runner runner(subject, c.box.shape);
  const verification::Query question = make_query(runner, c.property, c.box);
  if (question.kept_class != c.kept_class)
    return check.changed.push_back(
        fmt::format("the class of the box's centre is {}, expected {}", question.kept_class, c.kept_class));
  Again again(net, question, c.tree);
  const std::string wrong = again.run();
  check.boxes = again.boxes;
  if (!wrong.empty()) return check.changed.push_back(wrong);
  if (!(again.margin >= c.margin))
    check.changed.push_back(fmt::format("the margin is {}, but the certificate claims {}", again.margin, c.margin));
  if (c.low.size() != again.hull.lo.size() || c.high.size() != again.hull.hi.size())
    return check.changed.push_back("the bounds are for a different number of outputs");
  for (std::size_t i = 0; i < c.low.size(); ++i)
    if (!(again.hull.lo[i] >= c.low[i] && again.hull.hi[i] <= c.high[i]))
      check.changed.push_back(fmt::format("output {} is bounded by {} and {}, but the certificate claims {} and {}", i,
                                          again.hull.lo[i], again.hull.hi[i], c.low[i], c.high[i]));
}

}  // namespace

std::string to_string(const CertificateCheck& check) {
  if (check.holds)
    return fmt::format("valid: {} {} proven again in {:.3g} s", check.boxes, check.boxes == 1 ? "box" : "boxes",
                       check.seconds);
  std::string out = "invalid:";
  for (const std::string& what : check.changed) out += "\n  " + what;
  return out;
}

namespace verification {

Certificate certificate_of_subject(const Subject& subject, const Proof& proof) {
  const auto wrong = [&](const std::string& what) {
    fail<ArgumentError>(
        {.operation = "certificate_of",
         .with = {{"property", to_string(proof.property)}, {"verdict", std::string(verdict_name(proof.verdict))}},
         .wrong = what});
  };
  if (proof.verdict != Verdict::proven) wrong("only proven properties have certificates");
  Certificate c{.library = TESSERA_VERSION,
                .device = to_string(subject.device),
                .layers = text_of(subject.layers),
                .arrays = digests_of(subject.layers),
                .property = proof.property,
                .box = proof.box,
                .batch = proof.batch,
                .kept_class = proof.kept_class,
                .low = proof.low,
                .high = proof.high,
                .margin = proof.margin,
                .tree = proof.tree,
                .edited = {}};
  // Widens the bounds slightly, because exp may differ in the last bit on another machine.
  const auto slack = [](double v) { return 1e-9 * (1 + std::abs(v)); };
  for (double& v : c.low) v -= slack(v);
  for (double& v : c.high) v += slack(v);
  c.margin = std::max(0.0, c.margin - slack(c.margin));
  if (const CertificateCheck check = check_subject(subject, c); !check.holds)
    wrong("the proof does not hold for the current model: " + fmt::format("{}", fmt::join(check.changed, "; ")));
  return c;
}

CertificateCheck check_subject(const Subject& subject, const Certificate& c) {
  const auto start = std::chrono::steady_clock::now();
  CertificateCheck check;
  for (const std::string& part : c.edited)
    check.changed.push_back(fmt::format("the certificate's \"{}\" was edited: its hash differs", part));
  if (c.batch < 1) check.changed.push_back(fmt::format("the batch is {}, and must be at least 1", c.batch));
  compare_layers(Json::parse(text_of(subject.layers)), Json::parse(c.layers), check.changed);
  compare_arrays(digests_of(subject.layers), c.arrays, check.changed);
  if (check.changed.empty()) try {
      prove_again(subject, c, check);
    } catch (const Error& e) {  // for example, if the box has another shape
      check.changed.push_back(e.what());
    }
  check.holds = check.changed.empty();
  check.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return check;
}

}  // namespace verification

void save_certificate(const Certificate& c, const std::string& path) {
  const Json parts = parts_of_file(c);
  Json file = {{"kind", kind}, {"format", certificate_format}};
  for (const auto& [name, part] : parts.items()) file[name] = part;
  for (const auto& [name, part] : parts.items()) file["hashes"][name] = sha256(part.dump());
  // Writes each part on one line, so that a diff shows which part changed.
  std::string text = "{\n";
  for (const auto& [name, part] : file.items())
    text += Json(name).dump() + ": " + part.dump() + (name == "hashes" ? "\n" : ",\n");
  os::write_text(path, text + "}\n");
}

Certificate load_certificate(const std::string& path) {
  const auto bad = [&](const std::string& wrong) {
    fail<FormatError>({.operation = "load_certificate", .with = {{"file", path}}, .wrong = wrong});
  };
  Certificate c;
  const InputFile input_file(path);
  std::string text(input_file.size(), '\0');
  input_file.read(0, std::as_writable_bytes(std::span(text)));
  try {
    const Json file = Json::parse(text);
    if (file.value("kind", "") != kind) bad("this is not a certificate of this library");
    if (file.at("format").get<std::int64_t>() != certificate_format)
      bad(fmt::format("its format is {}; this version supports {}", file.at("format").dump(), certificate_format));
    c.library = file.at("library").get<std::string>();
    c.device = file.at("device").get<std::string>();
    if (!file.at("layers").is_array()) bad("its layers are not a list");
    c.layers = file.at("layers").dump();
    for (const auto& [name, a] : file.at("arrays").items())
      c.arrays[name] = {a.at("dtype").get<std::string>(), a.at("shape").get<Shape>(),
                        a.at("sha256").get<std::string>()};
    c.property = property_of(file.at("property").get<std::string>());
    c.batch = file.at("batch").get<std::int64_t>();
    const Json &input = file.at("input"), &bounds = file.at("bounds");
    c.box = {input.at("shape").get<Shape>(), input.at("low").get<std::vector<float>>(),
             input.at("high").get<std::vector<float>>()};
    c.box.check();
    c.low = bounds.at("low").get<std::vector<double>>();
    c.high = bounds.at("high").get<std::vector<double>>();
    c.margin = bounds.at("margin").get<double>();
    c.kept_class = bounds.at("class").get<std::int64_t>();
    c.tree = file.at("splits").get<std::vector<std::int32_t>>();
    const Json parts = parts_of_file(c), &hashes = file.at("hashes");
    for (const auto& [name, part] : parts.items()) {
      // Hashes both the text and the parsed value. The hash of the text also detects edits of digits beyond float
      // precision.
      const std::string hash = hashes.value(name, "");
      if (hash != sha256(file.at(name).dump()) || hash != sha256(part.dump())) c.edited.push_back(name);
    }
    for (const auto& [name, part] : file.items())
      if (!parts.contains(name) && name != "kind" && name != "format" && name != "hashes") c.edited.push_back(name);
  } catch (const nlohmann::json::exception& e) {
    bad(std::string("it was not written by save_certificate: ") + e.what());
  } catch (const ArgumentError& e) {
    bad(e.what());
  } catch (const ShapeError& e) {
    bad(e.what());
  }
  return c;
}

}  // namespace tessera
