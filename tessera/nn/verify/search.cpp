// SPDX-License-Identifier: Apache-2.0
// The search of prove(): a priority queue of parts of the box, with the smallest margin first. Parts are bisected until
// all are decided.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <queue>

#include "tessera/nn/mode.h"
#include "tessera/nn/verify/box_tree.h"
#include "tessera/nn/verify/counterexample.h"
#include "tessera/nn/verify/goals.h"
#include "tessera/nn/verify/query.h"

namespace tessera::verification {

namespace {

using Clock = std::chrono::steady_clock;
/// When a property cannot be proven because of rounding at one input, this many more boxes are searched for an input
/// that refutes it.
constexpr std::uint64_t boxes_to_refute = 128;

class Search {
 public:
  Search(const Subject& subject, const Property& property, const InputBox& box, const ProveOptions& options)
      : subject_(subject), p_(property), box_(box), o_(options), runner_(subject, box.shape), start_(Clock::now()) {
    proof_.property = property, proof_.box = box, proof_.batch = options.batch;
  }

  Proof run() {
    check();
    const Network net = network_of(subject_.layers, box_.shape);
    if (!net.unknown.empty()) {
      try_inputs();
      return done(net.unknown);
    }
    if (!has_goals(p_)) {
      try_inputs();
      return done(fmt::format("{} is tested, not proven: no counterexample was found", to_string(p_)));
    }
    if (!try_inputs()) {
      const std::string vendor = products_of_vendors(net, subject_, o_.batch);
      if (!vendor.empty()) return done(vendor);
      search(net);
    }
    return done("");
  }

 private:
  double seconds() const { return std::chrono::duration<double>(Clock::now() - start_).count(); }
  void check() const {
    box_.check();
    const auto wrong = [&](const std::string& what) {
      fail<ArgumentError>(
          {.operation = "prove", .with = {{"property", to_string(p_)}, {"box", to_string(box_)}}, .wrong = what});
    };
    if (training() != nullptr) wrong("properties apply to inference, but this is a Training scope");
    if (p_.kind == Property::Kind::monotone && p_.input >= element_count(box_.shape))
      wrong("a sample has no input with this index");
    if (o_.batch < 1) wrong("batch must be at least 1");
  }
  Proof done(const std::string& why) {
    if (proof_.verdict == Verdict::unknown && !why.empty()) proof_.reason = why;
    proof_.seconds = seconds();
    if (o_.progress) o_.progress({proof_.boxes, queue_.size(), proof_.share, proof_.seconds});
    return std::move(proof_);
  }

  /// Builds the query and tries inputs. Returns true if an input refutes the property.
  bool try_inputs() {
    q_ = make_query(runner_, p_, box_);
    proof_.kept_class = q_.kept_class;
    const std::vector<float> centre = centre_of(box_);
    if (p_.kind == Property::Kind::robust && q_.kept_class < 0) return refuted(confirmed(runner_, finite(), centre));
    attack_.emplace(runner_, q_.goals, q_.root, q_.ball ? &*q_.ball : nullptr, o_.seed);
    if (!o_.attack) return false;
    if (!has_goals(p_)) {
      const std::vector<float> x = attack_->random_points(512);
      return refuted(search_subject(subject_, p_, runner_.batch(x), o_.seed));
    }
    return any_of(attack_->by_gradients(20));
  }
  bool refuted(std::optional<Counterexample> found) {
    if (!found) return false;
    proof_.verdict = Verdict::refuted, proof_.counterexample = std::move(found);
    return true;
  }
  bool any_of(const std::vector<std::vector<float>>& points) {
    for (const std::vector<float>& x : points)
      if (refuted(p_.kind == Property::Kind::robust ? confirmed_pair(runner_, p_, box_, centre_of(box_), x)
                                                    : confirmed(runner_, p_, x)))
        return true;
    return false;
  }

  /// Returns true if the bounds of a single tried input do not prove the property. Splitting the box cannot prove it
  /// in that case, but another input may refute it.
  bool unprovable(const Network& net) {
    if (q_.goals.empty() || attack_->closest().empty() || !(attack_->closest_margin() < closest_tested_)) return false;
    closest_tested_ = attack_->closest_margin();
    const std::vector<float>& x = attack_->closest();
    Analysis alone(net, nullptr);
    const Decision d = decide(alone, net, {x, x}, q_.goals, true);
    if (d.decided) return false;
    std::string text;
    for (std::size_t i = 0; i < std::min<std::size_t>(4, x.size()); ++i)
      text += fmt::format("{}{}", i == 0 ? "" : ", ", x[i]);
    unprovable_margin_ = d.margin;
    unprovable_ = fmt::format(
        "at the input ({}{}) it holds by only {:.3g}, which is within the rounding error there (the bound is {:.3g})",
        text, x.size() > 4 ? ", ..." : "", attack_->closest_margin(), d.margin);
    return true;
  }

  void search(const Network& net) {
    Analysis analysis(net, q_.analysis_ball(), [this] { return seconds() > o_.seconds; });
    queue_.push({-infinity, 0, 1, 0});
    Hull hull;
    std::vector<float> candidates;
    double undecided = infinity, last_progress = 0, decided_margin = infinity;
    while (!queue_.empty() && proof_.boxes < last_box_) {
      if (seconds() > o_.seconds) return stop(fmt::format("after {:.3g} s", o_.seconds));
      if (proof_.boxes >= o_.boxes) return stop(fmt::format("after {} boxes", proof_.boxes));
      if (parts_.bytes() + queue_.size() * sizeof(Waiting) > o_.bytes || parts_.full())
        return stop("out of memory (.bytes)");
      const Waiting next = queue_.top();
      queue_.pop();
      const Region region = parts_.region(q_.root, next.part);
      const Decision d = decide(analysis, net, region, q_.goals, o_.linear_bounds);
      // Checked after decide(), because the bounds may be incomplete. A certificate check would not reproduce
      // incomplete bounds.
      if (seconds() > o_.seconds) return stop(fmt::format("after {:.3g} s", o_.seconds));
      ++proof_.boxes;
      if (proof_.boxes == 1 && d.why.empty()) proof_.low = d.output.lo, proof_.high = d.output.hi;
      if (d.decided) {
        parts_.decide(next.part, d.by_lines);
        proof_.share += next.share, decided_margin = std::min(decided_margin, d.margin);
        hull.add(d.output);
      } else {
        undecided = d.margin;
        proof_.margin = undecided;
        if (o_.attack) add_candidates(candidates, region, d);
        const std::int64_t dimension = wide_dimension(region, d, next.depth);
        if (dimension < 0 && !unprovable_.empty()) continue;
        if (dimension < 0) return stop("at a single input, which is undecided because of rounding");
        const std::int32_t child = parts_.split(next.part, static_cast<std::int32_t>(dimension));
        for (std::int32_t side = 0; side < 2; ++side)
          queue_.push({d.margin, child + side, next.share / 2, next.depth + 1});
      }
      if (o_.attack && !d.decided && (candidates.size() >= 128 * q_.root.lo.size() || proof_.boxes == 1)) {
        if (!candidates.empty() && any_of(attack_->of_points(std::exchange(candidates, {})))) return;
        if (unprovable_.empty() && unprovable(net)) last_box_ = proof_.boxes + boxes_to_refute;
      }
      if (o_.progress && seconds() > last_progress + 0.5)
        last_progress = seconds(), o_.progress({proof_.boxes, queue_.size(), proof_.share, last_progress});
    }
    if (!unprovable_.empty()) {
      if (!candidates.empty() && any_of(attack_->of_points(candidates))) return;
      proof_.margin = unprovable_margin_, proof_.reason = unprovable_;
      return;
    }
    proof_.verdict = Verdict::proven, proof_.share = 1, proof_.margin = decided_margin;
    proof_.low = hull.lo, proof_.high = hull.hi;
    proof_.tree = parts_.in_order();
  }
  void stop(const std::string& when) {
    if (!unprovable_.empty()) {
      proof_.margin = unprovable_margin_, proof_.reason = unprovable_;
      return;
    }
    const double margin = proof_.margin;
    proof_.reason = fmt::format("stopped {}: proven for {:.3g} % of the inputs by {} boxes, {} waiting; {}", when,
                                100 * proof_.share, proof_.boxes, queue_.size(),
                                margin > -infinity ? fmt::format("the worst bound is {:.3g} too low", -margin)
                                                   : std::string("some boxes have no bounds"));
  }
  /// Adds the centre of the region, and the corner towards which the bound of the worst goal decreases.
  void add_candidates(std::vector<float>& candidates, const Region& region, const Decision& d) const {
    const std::size_t n = region.lo.size(), at = candidates.size();
    candidates.resize(at + 2 * n);
    for (std::size_t i = 0; i < n; ++i) {
      candidates[at + i] = static_cast<float>(region.lo[i] + (static_cast<double>(region.hi[i]) - region.lo[i]) / 2);
      const double slope = d.direction.empty() ? 0 : d.direction[i];
      candidates[at + n + i] = slope > 0 ? region.lo[i] : slope < 0 ? region.hi[i] : candidates[at + i];
    }
    attack_->project(candidates.data() + at), attack_->project(candidates.data() + at + n);
  }
  /// Returns the input element that changes the bound of the worst goal most over the box. At every fourth level,
  /// returns the element with the widest interval instead. Returns -1 if the region is a single point.
  std::int64_t wide_dimension(const Region& region, const Decision& d, std::uint32_t depth) const {
    std::int64_t best = -1;
    double most = 0, steepest = 0;
    for (const double slope : d.direction) steepest = std::max(steepest, std::abs(slope));
    for (std::size_t i = 0; i < region.lo.size(); ++i) {
      const double width = static_cast<double>(region.hi[i]) - region.lo[i];
      const bool by_slope = depth % 4 != 3 && steepest > 0;
      const double score = width * (by_slope ? std::abs(d.direction[i]) + 0.02 * steepest : 1);
      if (score > most) most = score, best = static_cast<std::int64_t>(i);
    }
    return best;
  }

  struct Waiting {
    double margin = 0;  ///< margin of the part that was bisected; smallest first
    std::int32_t part = 0;
    double share = 1;
    std::uint32_t depth = 0;
    bool operator<(const Waiting& other) const { return margin > other.margin; }
  };
  const Subject& subject_;
  const Property& p_;
  const InputBox& box_;
  const ProveOptions& o_;
  Runner runner_;
  Clock::time_point start_;
  Proof proof_;
  Query q_;
  std::optional<Attack> attack_;
  BoxTree parts_;
  std::priority_queue<Waiting> queue_;
  double closest_tested_ = infinity;
  std::string unprovable_;  ///< the reason why the property cannot be proven; empty while it may be
  double unprovable_margin_ = 0;
  std::uint64_t last_box_ = std::numeric_limits<std::uint64_t>::max();  ///< the number of boxes at which it gives up
};

}  // namespace

Proof prove_subject(const Subject& subject, const Property& property, const InputBox& box,
                    const ProveOptions& options) {
  return Search(subject, property, box, options).run();
}

}  // namespace tessera::verification
