// SPDX-License-Identifier: Apache-2.0
#include "tessera/nn/optimiser.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "tessera/array/functions.h"
#include "tessera/nn/pack.h"

namespace tessera {

/// A parameter that is updated in this step.
struct Optimiser::Item {
  const std::string* path;
  ModelArray* weight;
  Array gradient;
  const Array* copy;  ///< null if there is no copy
};

namespace {

DType kept_as(DType weight) { return weight == DType::f64 ? DType::f64 : DType::f32; }

template <class E = ArgumentError>
void need(bool holds, const char* optimiser, const char* name, double value, const char* wrong) {
  if (!holds) fail<E>({.operation = optimiser, .with = {{name, std::to_string(value)}}, .wrong = wrong});
}

}  // namespace

Optimiser::Optimiser(const detail::ConstParts& parts, Rate lr, double weight_decay, std::vector<ParameterGroup> groups,
                     int slots)
    : step_(Array::from({std::int64_t{0}}, {}, Device{})),
      idle_(Array::empty({0, 3}, DType::i64, Device{})),
      groups_(std::move(groups)),
      slots_(slots),
      idle_steps_{0} {
  detail::check_same_views("optimiser", parts);
  for (ParameterGroup& g : groups_) {
    const bool matches = std::any_of(parts.begin(), parts.end(), [&](const auto& p) {
      return !p.second->state() && path_matches(p.first, g.pattern);
    });
    if (!matches)
      fail<ArgumentError>({.operation = "optimiser",
                           .with = {{"pattern", g.pattern}},
                           .wrong = "no parameter of this model belongs to this group",
                           .remedy = "summary(model) lists the paths"});
    if (!g.lr) g.lr = lr;
    if (!g.weight_decay) g.weight_decay = weight_decay;
  }
  groups_.push_back({"*", std::move(lr), weight_decay});
  for (const auto& [path, weight] : parts)
    if (differentiable(*weight)) declared_.push_back({path, weight->shape(), weight->dtype(), weight->device()});
}

void Optimiser::prepare_to_load(const std::vector<std::string>& names) {
  for (const Declared& d : declared_) {
    const std::string key = "[\"" + d.path + "\"]";
    if (std::ranges::none_of(names, [&](const std::string& name) { return name.ends_with(key); })) continue;
    idle_of_.try_emplace(d.path, Idle{.steps = static_cast<std::int64_t>(steps())});
    for (int s = 0; s < slots_; ++s) {
      Array& state = (s == 0 ? first_ : second_)[d.path];
      if (state.size() == 0) state = Array::zeros(d.shape, kept_as(d.dtype), d.device);
    }
  }
  if (slots_ > 0) write_idle();
}

Optimiser::~Optimiser() = default;
Optimiser::Optimiser(const Optimiser&) = default;
Optimiser::Optimiser(Optimiser&&) noexcept = default;
Optimiser& Optimiser::operator=(const Optimiser&) = default;
Optimiser& Optimiser::operator=(Optimiser&&) noexcept = default;

std::uint64_t Optimiser::steps() const { return static_cast<std::uint64_t>(step_.item<std::int64_t>()); }

std::size_t Optimiser::group_of(const std::string& path) const {
  std::size_t g = 0;
  while (g + 1 < groups_.size() && !path_matches(path, groups_[g].pattern)) ++g;
  return g;
}

std::vector<double> Optimiser::numbers() const {
  std::vector<double> all;
  const std::uint64_t step = std::max<std::uint64_t>(1, now_);
  for (const std::int64_t idle : idle_steps_) {
    const std::uint64_t own = std::max<std::uint64_t>(1, step - std::min(step, static_cast<std::uint64_t>(idle)));
    for (const ParameterGroup& g : groups_) {
      const auto some = scalars({own, g.lr->at(step - 1), *g.weight_decay});
      all.insert(all.end(), some.begin(), some.end());
    }
  }
  return all;
}

/// Parses idle_, which may have been loaded from a file.
void Optimiser::read_idle() {
  if (idle_of_.empty()) return;
  const auto all = idle_.to_vector<std::int64_t>();
  std::size_t i = 0;
  for (auto& [path, idle] : idle_of_) idle = {all[i], all[i + 1], all[i + 2]}, i += 3;
}

void Optimiser::write_idle() {
  std::vector<std::int64_t> all;
  for (const auto& [path, idle] : idle_of_) all.insert(all.end(), {idle.steps, idle.since, idle.skipped});
  idle_ = Array::from(all, Shape{static_cast<std::int64_t>(idle_of_.size()), 3}, Device{});
}

/// Records whether the parameter has a gradient in this step. Returns true if that changed since the last step.
bool Optimiser::note_gradient(const std::string& path, bool has_gradient, const ApplyOptions& options) {
  const auto known = idle_of_.find(path);
  if (slots_ == 0 || (known == idle_of_.end() ? !has_gradient : (known->second.since == 0) == has_gradient))
    return false;
  const std::int64_t now = static_cast<std::int64_t>(std::max<std::uint64_t>(1, now_));
  const std::int64_t skipped = options.skipped ? static_cast<std::int64_t>(options.skipped->item<std::uint64_t>()) : 0;
  if (known == idle_of_.end()) {
    idle_of_[path] = {.steps = now - 1, .skipped = skipped};
  } else if (has_gradient) {
    Idle& idle = known->second;
    idle = {.steps = idle.steps + now - idle.since, .skipped = idle.skipped + skipped};
  } else {
    known->second.since = now, known->second.skipped -= skipped;
  }
  return true;
}

/// Collects the distinct values of Idle::steps of parameters that had a gradient in the last step.
void Optimiser::find_idle_steps() {
  std::set<std::int64_t> all = {0};
  for (const auto& [path, idle] : idle_of_)
    if (idle.since == 0) all.insert(idle.steps);
  if (std::ranges::equal(all, idle_steps_)) return;
  idle_steps_.assign(all.begin(), all.end());
  numbers_.clear();
}

void Optimiser::advance() {
  rewind(steps() + 1);
  read_idle();
  find_idle_steps();
  if (numbers_.empty()) return;
  const std::vector<double> wide = numbers();
  const std::vector<float> narrow(wide.begin(), wide.end());
  for (auto& [place, array] : numbers_)
    current_queue(place.first)
        .upload(array.view_for_writing(), place.second == DType::f64 ? static_cast<const void*>(wide.data())
                                                                     : static_cast<const void*>(narrow.data()));
}

void Optimiser::rewind(std::uint64_t steps) {
  step_ = Array::from({static_cast<std::int64_t>(steps)}, {}, Device{});
  now_ = steps;
}

double Optimiser::rate() const { return groups_.back().lr->at(steps()); }

std::vector<std::string> Optimiser::patterns() const {
  std::vector<std::string> out;
  for (std::size_t g = 0; g + 1 < groups_.size(); ++g) out.push_back(groups_[g].pattern);
  return out;
}

void Optimiser::unshare() {
  rewind(steps());
  for (auto* slots : {&first_, &second_})
    for (auto& [path, array] : *slots) array = array.copy();
  idle_ = idle_.copy();
  numbers_.clear();
}

const Array& Optimiser::numbers_on(const Place& place) {
  const auto found = numbers_.find(place);
  if (found != numbers_.end()) return found->second;
  const std::vector<double> wide = numbers();
  return numbers_[place] = place.second == DType::f64
                               ? Array::from(wide, {}, place.first)
                               : Array::from(std::vector<float>(wide.begin(), wide.end()), {}, place.first);
}

Array& Optimiser::slot(std::map<std::string, Array>& slots, const Item& item) {
  Array& a = slots[*item.path];
  if (a.size() == 0) a = Array::zeros(item.weight->shape(), kept_as(item.weight->dtype()), item.weight->device());
  if (a.shape() != item.weight->shape())
    fail<ShapeError>(
        {.operation = "optimiser.step",
         .with = {{"path", *item.path}, {"parameter", to_string(item.weight->shape())}, {"kept", to_string(a.shape())}},
         .wrong = "the optimiser's state is for a parameter with a different shape",
         .remedy = "Create a new optimiser for a new model"});
  if (a.device() != item.weight->device()) a = a.to(item.weight->device());  // loaded before the model was moved
  return a;
}

void Optimiser::update_one(Array weight, Array gradient, Array* first, Array* second, const Array* copy,
                           const Scalars& scalars, const ApplyOptions& options) {
  const Array none;
  const DType wide = kept_as(weight.dtype());
  const Device device = weight.device();
  gradient = gradient.astype(wide);
  if (options.scale) gradient = gradient * options.scale->to(device).astype(wide);
  Updated to = update(weight.astype(wide), gradient, first ? *first : none, second ? *second : none, scalars);
  const auto written = [&](Array value, const Array& before) {
    return options.stopped ? where(options.stopped->to(device) == 0, std::move(value), before) : value;
  };
  std::vector<Assignment> all;
  Array next = written(std::move(to.weight), weight.astype(wide));
  if (copy) all.push_back({*copy, next});
  all.push_back({weight, std::move(next)});
  if (first) all.push_back({*first, written(std::move(to.first), *first)});
  if (second) all.push_back({*second, written(std::move(to.second), *second)});
  gradient = Array();  // freed first, so that a gradient that is only an operand of the update is fused and not written
  assign_all(all);
}

Array Optimiser::packed_slots(std::map<std::string, Array>& slots, const std::vector<Item>& items) {
  std::vector<Array*> arrays;
  for (const Item& i : items) arrays.push_back(&slot(slots, i));
  const std::vector<const Array*> read(arrays.begin(), arrays.end());
  if (!detail::packed_view(read)) detail::pack_arrays(arrays);
  return *detail::packed_view(read);
}

void Optimiser::update_packed(std::vector<Item>& items, const Scalars& scalars, const ApplyOptions& options) {
  std::vector<const Array*> weights, gradients;
  for (const Item& i : items) weights.push_back(i.weight), gradients.push_back(&i.gradient);
  const std::optional<Array> weight = items.size() > 1 ? detail::packed_view(weights) : std::nullopt;
  // Use 1-D views of the buffers: the gradients are computed into one array, and the state of packed parameters has the
  // same contiguous layout.
  std::optional<Array> gradient = weight ? detail::packed_view(gradients) : std::nullopt;
  if (!weight || (!gradient && detail::is_packing_slower(gradients))) {
    if (weight)
      for (int s = 0; s < slots_; ++s) packed_slots(s == 0 ? first_ : second_, items);
    for (const Item& i : items)
      update_one(*i.weight, i.gradient, slots_ > 0 ? &slot(first_, i) : nullptr,
                 slots_ > 1 ? &slot(second_, i) : nullptr, i.copy, scalars, options);
    return;
  }
  if (!gradient) {
    gradient = Array::empty(weight->shape(), kept_as(weight->dtype()), weight->device());
    std::int64_t at = 0;
    for (Item& i : items) {
      const std::int64_t end = at + i.gradient.size();
      gradient->slice(0, at, end).reshape(i.gradient.shape()).assign(std::move(i.gradient));
      at = end;
    }
  }
  std::optional<Array> rows[2];
  for (int s = 0; s < slots_; ++s) rows[s] = packed_slots(s == 0 ? first_ : second_, items);
  std::optional<Array> copy;
  if (std::ranges::all_of(items, [](const Item& i) { return i.copy != nullptr; })) {
    std::vector<const Array*> copies;
    for (const Item& i : items) copies.push_back(i.copy);
    copy = detail::packed_view(copies);
  }
  update_one(*weight, *gradient, rows[0] ? &*rows[0] : nullptr, rows[1] ? &*rows[1] : nullptr, copy ? &*copy : nullptr,
             scalars, options);
  if (!copy)
    for (const Item& i : items)
      if (i.copy) Array(*i.copy).assign(*i.weight);
}

void Optimiser::prepare(const detail::Parts& model) {
  Groups groups;
  detail::ArrayMap<bool> known;  // a shared parameter has only one gradient
  for (const auto& [path, weight] : model)
    if (differentiable(*weight) && !known.find(*weight)) {
      known.add(*weight, true);
      Idle idle;
      if (slots_ > 0)
        idle = idle_of_.try_emplace(path, Idle{.steps = static_cast<std::int64_t>(steps())}).first->second;
      idle.since = 0;
      groups[{group_of(path), idle, weight->dtype(), weight->device()}].push_back({&path, weight, {}, nullptr});
    }
  if (slots_ > 0) write_idle();
  for (const auto& [key, items] : groups) {
    std::vector<const Array*> weights;
    for (const Item& i : items) weights.push_back(i.weight);
    for (int s = 0; s < slots_; ++s) {
      auto& slots = s == 0 ? first_ : second_;
      if (items.size() > 1 && detail::packed_view(weights))
        packed_slots(slots, items);
      else
        for (const Item& i : items) slot(slots, i);
    }
  }
}

void Optimiser::apply_to(const detail::Parts& model, const detail::ConstParts& gradient, const ApplyOptions& options) {
  if (model.size() != gradient.size())
    fail<ArgumentError>({.operation = "optimiser.step",
                         .with = {{"arrays of the model", std::to_string(model.size())},
                                  {"of the gradient", std::to_string(gradient.size())}},
                         .wrong = "the gradient belongs to another model"});
  const auto has_gradient = [&](std::size_t i) {
    return model[i].second->trained() && gradient[i].second->size() != 0;
  };
  for (std::size_t i = 0; i < model.size(); ++i) {  // check before the step is counted
    const auto& [path, weight] = model[i];
    const Array& g = *gradient[i].second;
    if (has_gradient(i) && g.shape() != weight->shape())
      fail<ShapeError>(
          {.operation = "optimiser.step",
           .with = {{"path", path}, {"parameter", to_string(weight->shape())}, {"gradient", to_string(g.shape())}},
           .wrong = "a gradient's shape differs from its parameter's"});
  }
  Groups groups;
  bool changed = false;
  for (std::size_t i = 0; i < model.size(); ++i) {
    const auto& [path, weight] = model[i];
    changed = note_gradient(path, has_gradient(i), options) || changed;
    if (!has_gradient(i)) continue;
    const Array* copy = options.copies.empty() || options.copies[i].size() == 0 ? nullptr : &options.copies[i];
    const Idle idle = slots_ > 0 ? idle_of_.at(path) : Idle();
    groups[{group_of(path), idle, weight->dtype(), weight->device()}].push_back(
        {&path, weight, *gradient[i].second, copy});
  }
  if (changed) {
    write_idle();
    find_idle_steps();
  }
  for (auto& [key, items] : groups) {
    const auto& [group, idle, dtype, device] = key;
    const Array& numbers = numbers_on({device, kept_as(dtype)});
    const auto sets = idle_steps_.size() * groups_.size();
    const auto set = static_cast<std::size_t>(std::ranges::find(idle_steps_, idle.steps) - idle_steps_.begin());
    const std::int64_t each = numbers.shape(0) / static_cast<std::int64_t>(sets);
    Scalars scalars;
    for (std::int64_t s = 0; s < each; ++s) {
      const std::int64_t at = static_cast<std::int64_t>(set * groups_.size() + group) * each + s;
      scalars.push_back(numbers.slice(0, at, at + 1));
    }
    if (options.skipped) {
      Array skipped = options.skipped->to(device).astype(numbers.dtype());
      if (idle.skipped != 0) skipped = skipped - static_cast<double>(idle.skipped);
      scalars = without(scalars, skipped);
    }
    update_packed(items, scalars, options);
  }
}

Sgd::Sgd(const detail::ConstParts& parts, SgdOptions o)
    : Optimiser(parts, o.lr, o.weight_decay, o.groups, o.momentum != 0 ? 1 : 0),
      momentum_(o.momentum),
      dampening_(o.dampening),
      decays_(o.weight_decay != 0 || std::any_of(o.groups.begin(), o.groups.end(),
                                                 [](const auto& g) { return g.weight_decay.value_or(0) != 0; })),
      nesterov_(o.nesterov) {
  need(o.momentum >= 0, "Sgd", "momentum", o.momentum, "momentum must be at least 0");
  if (o.nesterov && (o.momentum <= 0 || o.dampening != 0))
    fail<ArgumentError>({.operation = "Sgd",
                         .with = {{"momentum", std::to_string(o.momentum)}, {"dampening", std::to_string(o.dampening)}},
                         .wrong = "nesterov needs momentum above 0 and dampening 0"});
}
std::vector<double> Sgd::scalars(const Settings& s) const {
  return {s.lr, s.weight_decay, s.step == 1 ? 1.0 : 1 - dampening_, static_cast<double>(s.step)};
}
Optimiser::Scalars Sgd::without(const Scalars& s, const Array& skipped) const {
  return {s[0], s[1], where(s[3] - skipped == 1, 1.0, s[2]).eval()};
}
Optimiser::Updated Sgd::update(const Array& weight, const Array& gradient, const Array& first, const Array&,
                               const Scalars& s) const {
  Array g = decays_ ? gradient + s[1] * weight : gradient;
  if (momentum_ == 0) return {weight - s[0] * g};
  Array b = momentum_ * first + s[2] * g;
  return {weight - s[0] * (nesterov_ ? g + momentum_ * b : b), b};
}

Adam::Adam(const detail::ConstParts& parts, AdamOptions o, bool decoupled)
    : Optimiser(parts, o.lr, o.weight_decay, o.groups, 2),
      beta1_(o.beta1),
      beta2_(o.beta2),
      epsilon_(o.epsilon),
      decays_(o.weight_decay != 0 || std::any_of(o.groups.begin(), o.groups.end(),
                                                 [](const auto& g) { return g.weight_decay.value_or(0) != 0; })),
      decoupled_(decoupled) {
  const char* name = decoupled ? "AdamW" : "Adam";
  need(o.beta1 >= 0 && o.beta1 < 1, name, "beta1", o.beta1, "beta1 must be at least 0 and below 1");
  need(o.beta2 >= 0 && o.beta2 < 1, name, "beta2", o.beta2, "beta2 must be at least 0 and below 1");
  need(o.epsilon >= 0, name, "epsilon", o.epsilon, "epsilon must be at least 0");
}
std::vector<double> Adam::scalars(const Settings& s) const {
  const double t = static_cast<double>(s.step);
  return {s.lr / (1 - std::pow(beta1_, t)), 1 / std::sqrt(1 - std::pow(beta2_, t)),
          decoupled_ ? s.lr * s.weight_decay : s.weight_decay, s.lr, t};
}
Optimiser::Scalars Adam::without(const Scalars& s, const Array& skipped) const {
  const Array made = s[4] - skipped;
  const auto gone = [&](double beta) {  // 1 - beta^steps, without cancellation if beta is close to 1
    return beta == 0 ? Array::ones(made.shape(), made.dtype(), made.device()) : -expm1(std::log(beta) * made);
  };
  Scalars out = {where(skipped == 0, s[0], s[3] / gone(beta1_)), where(skipped == 0, s[1], rsqrt(gone(beta2_))), s[2]};
  eval(out);
  return out;
}
Optimiser::Updated Adam::update(const Array& weight, const Array& gradient, const Array& first, const Array& second,
                                const Scalars& s) const {
  Array w = weight, g = gradient;
  if (decays_) (decoupled_ ? w : g) = decoupled_ ? weight - s[2] * weight : gradient + s[2] * weight;
  Array m = beta1_ * first + (1 - beta1_) * g, v = beta2_ * second + (1 - beta2_) * (g * g);
  return {w - s[0] * m / (sqrt(v) * s[1] + epsilon_), m, v};
}

}  // namespace tessera
