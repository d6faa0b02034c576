// SPDX-License-Identifier: Apache-2.0
#include "tessera/nn/verify/prove.h"

#include <fmt/format.h>

#include <algorithm>

#include "tessera/nn/verify/structure.h"

namespace tessera {

std::string_view verdict_name(Verdict verdict) {
  return verdict == Verdict::proven ? "proven" : verdict == Verdict::refuted ? "refuted" : "unknown";
}

namespace {

std::string few(const std::vector<float>& v) {
  std::string out;
  for (std::size_t i = 0; i < std::min<std::size_t>(v.size(), 8); ++i)
    out += fmt::format("{}{}", i == 0 ? "" : ", ", v[i]);
  return "(" + out + (v.size() > 8 ? ", ...)" : ")");
}
std::string few(const Array& a) { return few(a.astype(DType::f32).to_vector<float>()); }

}  // namespace

std::string to_string(const Counterexample& c) {
  std::string out = fmt::format("{}\n  input  {}\n  output {}", c.what, few(c.input), few(c.output));
  if (c.other_input) out += fmt::format("\n  and    {}\n  output {}", few(*c.other_input), few(*c.other_output));
  return out;
}

std::string to_string(const ProveProgress& p) {
  return fmt::format("{} {}, {} waiting, proven for {:.3g} % of the inputs, {:.3g} s", p.boxes,
                     p.boxes == 1 ? "box" : "boxes", p.waiting, 100 * p.share, p.seconds);
}

std::string to_string(const Proof& p) {
  std::string out =
      fmt::format("{}, {} {} in {:.3g} s", verdict_name(p.verdict), p.boxes, p.boxes == 1 ? "box" : "boxes", p.seconds);
  if (p.verdict == Verdict::proven && p.margin > 0 && p.margin < 1e300)
    out += fmt::format(", by at least {:.3g}", p.margin);
  if (!p.reason.empty()) out += "\n  " + p.reason;
  if (p.counterexample) out += "\n  " + to_string(*p.counterexample);
  for (std::size_t i = 0; i < std::min<std::size_t>(p.low.size(), 16) && !p.counterexample; ++i)
    out += fmt::format("\n  output {} from {:.6g} to {:.6g}", i, p.low[i], p.high[i]);
  if (p.low.size() > 16 && !p.counterexample) out += fmt::format("\n  and {} more", p.low.size() - 16);
  return out;
}

namespace verification {

Device device_of(const Layers& layers) {
  std::optional<Device> device;
  Layers shared = layers;
  for_each_array_of(shared, [&](const std::string&, const ModelArray& part) {
    if (!device) device = part.device();
  });
  return device ? *device : current_device();
}

}  // namespace verification
}  // namespace tessera
