// SPDX-License-Identifier: Apache-2.0
#include "tessera/nn/precision.h"

#include <algorithm>
#include <cmath>
#include <map>

namespace tessera::detail {

namespace {

constexpr double greatest_scale = 0x1p64, least_scale = 0x1p-64;  // their inverses are normal f32 numbers

bool has_copy(const ModelArray& a) { return !a.state() && a.dtype() == DType::f32; }

std::uint64_t written(const Array& a) { return a.view().storage->writes(); }

void check_options(const char* asked, const PrecisionOptions& o) {
  if (o.dtype != DType::f32 && o.dtype != DType::f16 && o.dtype != DType::bf16)
    fail<DtypeError>({.operation = asked,
                      .with = {{"precision.dtype", std::string(dtype_name(o.dtype))}},
                      .wrong = "copies of parameters must be bf16 or f16; f32 means no copies"});
  const LossScaleOptions& s = o.loss_scale;
  const auto need = [&](bool holds, const char* name, double value, const char* wrong) {
    if (!holds)
      fail<ArgumentError>(
          {.operation = asked, .with = {{std::string("loss_scale.") + name, std::to_string(value)}}, .wrong = wrong});
  };
  need(s.init_scale >= least_scale && s.init_scale <= greatest_scale, "init_scale", s.init_scale,
       "the initial loss scale must be between 2^-64 and 2^64");
  need(s.growth_factor > 1 && std::isfinite(s.growth_factor), "growth_factor", s.growth_factor,
       "growth_factor must be above 1");
  need(s.backoff_factor > 0 && s.backoff_factor < 1, "backoff_factor", s.backoff_factor,
       "backoff_factor must be between 0 and 1");
  need(s.growth_interval >= 1, "growth_interval", 0, "growth_interval must be at least 1");
  need(s.smallest >= least_scale && s.smallest <= s.init_scale, "smallest", s.smallest,
       "the smallest loss scale must be between 2^-64 and the initial one");
}

}  // namespace

void freeze_as(const Parts& parts, const ConstParts& other) {
  for (std::size_t i = 0; i < parts.size(); ++i) parts[i].second->set_frozen(other[i].second->frozen());
}

Precision::Precision(const char* asked, const PrecisionOptions& options, const Parts& model) : options_(options) {
  check_options(asked, options_);
  scales_ = options_.loss_scale.enabled.value_or(options_.dtype == DType::f16);
  Device device;
  bool trained = false;
  for (const auto& [path, part] : model) {
    if (!differentiable(*part)) continue;
    if (!trained) device = part->device();
    trained = true;
    if ((narrows() || scales_) && part->dtype() != DType::f32)
      fail<DtypeError>({.operation = asked,
                        .with = {{"path", path},
                                 {"dtype", std::string(dtype_name(part->dtype()))},
                                 {"precision.dtype", std::string(dtype_name(options_.dtype))}},
                        .wrong = "mixed precision needs f32 parameters",
                        .remedy = "Use setup(model, {.dtype = DType::f32}), or remove the precision option"});
  }
  if (scales_) {
    const DeviceScope scope(device);
    scale_ = Array::full({}, options_.loss_scale.init_scale, DType::f32);
    good_ = Array::zeros({}, DType::u64), skipped_ = Array::zeros({}, DType::u64);
  }
  for (const std::string& pattern : options_.keep)
    if (std::ranges::none_of(model,
                             [&](const auto& p) { return !p.second->state() && path_matches(p.first, pattern); }))
      fail<ArgumentError>({.operation = asked,
                           .with = {{"keep", pattern}},
                           .wrong = "no parameter of this model has a matching path",
                           .remedy = "summary(model) lists the paths"});
  // A shared parameter has a single gradient. If one of its occurrences stays f32, all of them do.
  const auto keeps = [&](const std::string& path, const ModelArray& part) {
    return !has_copy(part) || part.keeps_precision() ||
           std::ranges::any_of(options_.keep, [&](const auto& pattern) { return path_matches(path, pattern); });
  };
  ArrayMap<bool> kept;
  for (const auto& [path, part] : model)
    if (!part->empty() && !part->state() && keeps(path, *part) && !kept.find(*part)) kept.add(*part, true);
  // The copies have the same memory layout as the parameters, so that one kernel can update packed parameters.
  struct Extent {
    std::int64_t begin, end;
    bool narrow = false;  ///< whether the model computes with any of these copies
    Array copies = {};
  };
  std::map<const Storage*, Extent> memory;
  for (const auto& [path, part] : model) {
    if (!part->empty()) part->eval();
    weights_.push_back(*part);
    narrow_.push_back(narrows() && !part->empty() && has_copy(*part) && !kept.find(*part));
    if (part->empty()) continue;
    if (!has_copy(*part) || !part->contiguous()) continue;
    Extent& e = memory.try_emplace(part->view().storage.get(), part->offset(), part->offset()).first->second;
    e.begin = std::min(e.begin, part->offset()), e.end = std::max(e.end, part->offset() + part->size());
    e.narrow = e.narrow || narrow_.back();
  }
  if (!narrows()) return;
  for (std::size_t i = 0; i < model.size(); ++i) {
    const Array& w = weights_[i];
    const bool may = w.size() != 0 && has_copy(*model[i].second);
    Extent* e = may && w.contiguous() ? &memory.at(w.view().storage.get()) : nullptr;
    if (e == nullptr ? !narrow_[i] : !e->narrow) {
      copies_.push_back(Array::empty({0}, options_.dtype));
    } else if (e == nullptr) {
      copies_.push_back(Array::empty(w.shape(), options_.dtype, w.device()));
    } else {
      if (e->copies.size() == 0) e->copies = Array::empty({e->end - e->begin}, options_.dtype, w.device());
      const std::int64_t at = w.offset() - e->begin;
      copies_.push_back(e->copies.slice(0, at, at + w.size()).reshape(w.shape()));
    }
  }
  refresh();
}

void Precision::narrow(const Parts& model) const {
  for (std::size_t i = 0; i < model.size(); ++i)
    if (narrow_[i]) model[i].second->narrow(copies_[i]);
}

void Precision::refresh() {
  for (std::size_t i = 0; i < copies_.size(); ++i)
    if (copies_[i].size() != 0) copies_[i].assign(weights_[i]);
  mark_current();
}
void Precision::mark_current() {
  writes_.clear();
  for (const Array& c : copies_) writes_.push_back(c.size() == 0 ? 0 : written(weights_[writes_.size()]));
}
bool Precision::outdated() const {
  for (std::size_t i = 0; i < copies_.size(); ++i)
    if (copies_[i].size() != 0 && written(weights_[i]) != writes_[i]) return true;
  return false;
}

void Precision::check_place(const char* asked, const ConstParts& model) const {
  for (std::size_t i = 0; i < model.size(); ++i) {
    const auto& [path, part] = model[i];
    if (i < weights_.size() && part->empty() && weights_[i].size() == 0) continue;
    if (i < weights_.size() && part->source() == weights_[i].source() && part->offset() == weights_[i].offset() &&
        part->shape() == weights_[i].shape())
      continue;
    fail<ArgumentError>(
        {.operation = asked,
         .with = {{"path", path}},
         .wrong = "the memory of this array was replaced after the MixedPrecision was created, so updates would be "
                  "written to the old memory",
         .remedy = "Create the MixedPrecision after setup and pack, from this model or one that shares its memory"});
  }
}

Array Precision::scaled(const Array& loss) const {
  const DType wide = loss.dtype() == DType::f64 ? DType::f64 : DType::f32;
  return loss.astype(wide) * scale_.astype(wide);
}
Array Precision::inverse() const { return (1.0 / scale_).eval(); }
Array Precision::is_at_min_scale() const { return scale_ <= options_.loss_scale.smallest; }

void Precision::update(const Array& finite, const std::optional<Array>& stopped) {
  const LossScaleOptions& o = options_.loss_scale;
  const Array grows = good_ + 1 >= o.growth_interval;
  const auto unless_stopped = [&](Array value, const Array& before) {
    return stopped ? where(*stopped == 0, std::move(value), before) : value;
  };
  Array scale = where(finite, where(grows, minimum(scale_ * o.growth_factor, greatest_scale), scale_),
                      maximum(scale_ * o.backoff_factor, o.smallest));
  Array good = where(finite & !grows, good_ + 1, 0);
  Array skipped = where(finite, skipped_, skipped_ + 1);
  assign_all({{scale_, unless_stopped(std::move(scale), scale_)},
              {good_, unless_stopped(std::move(good), good_)},
              {skipped_, unless_stopped(std::move(skipped), skipped_)}});
}

std::vector<std::pair<std::string, Array>> Precision::kept() const {
  if (!scales_) return {};
  return {{"precision.scale", scale_}, {"precision.good", good_}, {"precision.skipped", skipped_}};
}
std::uint64_t Precision::skipped_steps() const { return scales_ ? skipped_.item<std::uint64_t>() : 0; }
double Precision::scale() const { return scales_ ? scale_.item<float>() : 1; }

void Precision::track_finite(const Array& loss, const ConstParts& gradient) {
  Array finite = isfinite(loss).reshape({}).to(scale_.device());
  for (const auto& [path, part] : gradient)
    if (!part->empty()) finite = finite & all(isfinite(*part)).to(scale_.device());
  finite_ = (finite_ ? *finite_ & finite : finite).eval();
}

void Precision::step(Optimiser& optimiser, const Parts& model, const ConstParts& gradient, const Training* mode) {
  ApplyOptions how{.copies = copies_};
  const std::optional<Array> finite = finite_;
  if (finite) {
    how.stopped = where(*finite, 0, 1).astype(DType::u64).eval();
    how.skipped = skipped_;
  }
  optimiser.advance();
  try {
    optimiser.apply_to(model, gradient, how);
  } catch (...) {
    optimiser.rewind(optimiser.steps() - 1);
    throw;
  }
  finite_.reset();
  if (mode) mode->apply_to(model, how.stopped);
  if (finite) update(*finite, std::nullopt);
  mark_current();
}

}  // namespace tessera::detail
