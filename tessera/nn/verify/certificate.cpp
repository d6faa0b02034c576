// SPDX-License-Identifier: Apache-2.0
#include "tessera/nn/verify/certificate.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <nlohmann/json.hpp>
#include <span>

#include "tessera/base/os/atomic_file.h"
#include "tessera/base/os/input_file.h"
#include "tessera/base/sha256.h"
#include "tessera/nn/verify/box_tree.h"
#include "tessera/nn/verify/counterexample.h"
#include "tessera/nn/verify/query.h"

namespace tessera {

using verification::ArrayDigest;
using Json = nlohmann::ordered_json;

namespace {

constexpr std::int64_t this_format = 1;
constexpr const char* kind = "tessera certificate";

/// What is hashed, by name.
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
      changed.push_back(fmt::format("array {} is not in the model", path));
    else if (found->second.dtype != mark.dtype || found->second.shape != mark.shape)
      changed.push_back(fmt::format("array {} is {} {}, and was {} {}", path, found->second.dtype,
                                    to_string(found->second.shape), mark.dtype, to_string(mark.shape)));
    else if (found->second.sha256 != mark.sha256)
      changed.push_back(fmt::format("array {} has other elements", path));
  }
  for (const auto& [path, mark] : now)
    if (!then.contains(path)) changed.push_back(fmt::format("array {} is new", path));
}
void compare_layers(const Json& now, const Json& then, std::vector<std::string>& changed) {
  for (std::size_t i = 0; i < std::max(now.size(), then.size()); ++i) {
    if (i >= now.size() || i >= then.size()) {
      changed.push_back(fmt::format("the model has {} layers, and had {}", now.size(), then.size()));
      return;
    }
    if (now[i] != then[i])
      changed.push_back(fmt::format("layer {} is {}, and was {}", i, now[i].dump(), then[i].dump()));
  }
}

/// The parts of the box, as the tree says, each decided again.
class Again {
 public:
  Again(const verification::Network& net, const verification::Query& question, const std::vector<std::int32_t>& tree)
      : question_(question), net_(net), tree_(tree), analysis_(net, question.analysis_ball()) {}
  /// Empty: all parts are decided.
  std::string run() {
    std::vector<verification::Region> waiting = {question_.root};  // in pre-order: the next one last
    for (const std::int32_t what : tree_) {
      if (waiting.empty()) return "the splits hold more parts than there are";
      verification::Region region = std::move(waiting.back());
      waiting.pop_back();
      if (what >= 0) {
        const auto at = static_cast<std::size_t>(what);
        if (at >= region.lo.size() || !(region.lo[at] < region.hi[at])) return "the splits halve what cannot be halved";
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
    return waiting.empty() ? "" : "the splits leave parts of the box out";
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

/// The bounds are found again, or what is found instead.
void prove_again(const verification::Subject& subject, const Certificate& c, CertificateCheck& check) {
  const verification::Network net = network_of(subject.layers, c.box.shape);
  if (!net.unknown.empty()) return check.changed.push_back(net.unknown);
  if (const std::string vendor = products_of_vendors(net, subject, c.batch); !vendor.empty())
    return check.changed.push_back(vendor);
  const verification::Runner runner(subject, c.box.shape);
  const verification::Query question = make_query(runner, c.property, c.box);
  if (question.kept_class != c.kept_class)
    return check.changed.push_back(
        fmt::format("the class of the box's centre is {}, and was {}", question.kept_class, c.kept_class));
  Again again(net, question, c.tree);
  const std::string wrong = again.run();
  check.boxes = again.boxes;
  if (!wrong.empty()) return check.changed.push_back(wrong);
  if (!(again.margin >= c.margin))
    check.changed.push_back(fmt::format("the margin is {}, and {} is claimed", again.margin, c.margin));
  if (c.low.size() != again.hull.lo.size() || c.high.size() != again.hull.hi.size())
    return check.changed.push_back("the bounds are those of another number of outputs");
  for (std::size_t i = 0; i < c.low.size(); ++i)
    if (!(again.hull.lo[i] >= c.low[i] && again.hull.hi[i] <= c.high[i]))
      check.changed.push_back(fmt::format("output {} is bounded by {} and {}, and {} and {} are claimed", i,
                                          again.hull.lo[i], again.hull.hi[i], c.low[i], c.high[i]));
}

}  // namespace

std::string to_string(const CertificateCheck& check) {
  if (check.holds)
    return fmt::format("holds: {} {} proven again in {:.3g} s", check.boxes, check.boxes == 1 ? "box" : "boxes",
                       check.seconds);
  std::string out = "void:";
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
  if (proof.verdict != Verdict::proven) wrong("there is a certificate only of what is proven");
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
  // Another machine's exp may differ in its last place.
  const auto slack = [](double v) { return 1e-9 * (1 + std::abs(v)); };
  for (double& v : c.low) v -= slack(v);
  for (double& v : c.high) v += slack(v);
  c.margin = std::max(0.0, c.margin - slack(c.margin));
  if (const CertificateCheck check = check_subject(subject, c); !check.holds)
    wrong("the proof is not of the model as it is now: " + fmt::format("{}", fmt::join(check.changed, "; ")));
  return c;
}

CertificateCheck check_subject(const Subject& subject, const Certificate& c) {
  const auto start = std::chrono::steady_clock::now();
  CertificateCheck check;
  for (const std::string& part : c.edited)
    check.changed.push_back(fmt::format("the certificate's \"{}\" was edited: its hash is another", part));
  if (c.batch < 1)
    check.changed.push_back(fmt::format("the batch is {}, and a batch has at least one sample", c.batch));
  compare_layers(Json::parse(text_of(subject.layers)), Json::parse(c.layers), check.changed);
  compare_arrays(digests_of(subject.layers), c.arrays, check.changed);
  if (check.changed.empty()) try {
      prove_again(subject, c, check);
    } catch (const Error& e) {  // the box is of another shape, say
      check.changed.push_back(e.what());
    }
  check.holds = check.changed.empty();
  check.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return check;
}

}  // namespace verification

void save_certificate(const Certificate& c, const std::string& path) {
  const Json parts = parts_of_file(c);
  Json file = {{"kind", kind}, {"format", this_format}};
  for (const auto& [name, part] : parts.items()) file[name] = part;
  for (const auto& [name, part] : parts.items()) file["hashes"][name] = sha256(part.dump());
  // One line for each part: a diff shows which is another.
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
    if (file.value("kind", "") != kind) bad("it is no certificate of this library");
    if (file.at("format").get<std::int64_t>() != this_format)
      bad(fmt::format("its format is {}, and this version knows {}", file.at("format").dump(), this_format));
    c.library = file.at("library").get<std::string>();
    c.device = file.at("device").get<std::string>();
    if (!file.at("layers").is_array()) bad("its layers are no list");
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
      // As it stands there, and as it was read: numbers that say more than a float are edited, too.
      const std::string hash = hashes.value(name, "");
      if (hash != sha256(file.at(name).dump()) || hash != sha256(part.dump())) c.edited.push_back(name);
    }
    for (const auto& [name, part] : file.items())
      if (!parts.contains(name) && name != "kind" && name != "format" && name != "hashes") c.edited.push_back(name);
  } catch (const nlohmann::json::exception& e) {
    bad(std::string("it is not what save_certificate writes: ") + e.what());
  } catch (const ArgumentError& e) {
    bad(e.what());
  } catch (const ShapeError& e) {
    bad(e.what());
  }
  return c;
}

}  // namespace tessera
