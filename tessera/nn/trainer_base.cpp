// SPDX-License-Identifier: Apache-2.0
#include "tessera/nn/trainer_base.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <limits>

#include "tessera/base/config.h"
#include "tessera/base/log.h"
#include "tessera/base/printable.h"
#include "tessera/grad/grad.h"
#include "tessera/nn/clip.h"
#include "tessera/nn/data_parallel.h"
#include "tessera/nn/mode.h"
#include "tessera/nn/not_finite.h"
#include "tessera/nn/pack.h"
#include "tessera/nn/trainer_slot.h"

namespace tessera {

namespace {
/// True if the ranks' parameters are compared after this step: early, because most causes are mistakes in the program.
bool is_compared(std::uint64_t step) { return step == 10 || step == 100 || step % 1000 == 0; }
}  // namespace

TrainerBase::TrainerBase(AnyOptimiser optimiser, const TrainerOptions& options)
    : optimiser_(std::move(optimiser)),
      options_(options),
      accumulate_(static_cast<std::uint64_t>(std::max<std::int64_t>(1, options.accumulate))),
      ranks_(options.ranks != nullptr && options.ranks->size() > 1 ? options.ranks : nullptr),
      slots_(static_cast<std::size_t>(std::max<std::int64_t>(1, options.shapes))),
      recorded_(std::make_unique<Recordings>()) {
  const auto need = [](bool holds, const char* name, double value, const char* wrong) {
    if (!holds) fail<ArgumentError>({.operation = "Trainer", .with = {{name, std::to_string(value)}}, .wrong = wrong});
  };
  need(options.accumulate >= 1, "accumulate", static_cast<double>(options.accumulate), "accumulate must be at least 1");
  need(options.shapes >= 1, "shapes", static_cast<double>(options.shapes), "shapes must be at least 1");
  need(options.clip_norm.value_or(0) >= 0, "clip_norm", options.clip_norm.value_or(0), "the norm must be at least 0");
  need(options.clip_value.value_or(0) >= 0, "clip_value", options.clip_value.value_or(0),
       "the largest absolute value must be at least 0");
  detail::check_devices(options.devices);
  if (splits())
    not_recorded_ = "batches are split over several devices";
  else if (!options.recorded)
    not_recorded_ = "disabled by the trainer's options";
  else if (!config::flag("TESSERA_SEQUENCES", true))
    not_recorded_ = "disabled by TESSERA_SEQUENCES";
}
TrainerBase::~TrainerBase() = default;

void TrainerBase::begin(detail::Parts parts) {
  parts_ = std::move(parts);
  const auto trained = std::ranges::find_if(parts_, [](const auto& p) { return differentiable(*p.second); });
  if (trained == parts_.end())
    fail<ArgumentError>({.operation = "Trainer",
                         .wrong = "the model has no trained parameters",
                         .remedy = "Call setup(model, {.seed, .input}) first; unfreeze the parameters to train"});
  device_ = trained->second->device();
  one_device_ =
      std::ranges::all_of(parts_, [&](const auto& p) { return p.second->empty() || p.second->device() == device_; });
  if (!one_device_ && not_recorded_.empty()) not_recorded_ = "the model is on several devices";
  const DeviceScope scope(device_);
  const std::vector<Array> rows = detail::pack_model(parts_, optimiser_->patterns());
  optimiser_->prepare(parts_);
  updates_before_ = optimiser_->steps();
  precision_ = detail::Precision("Trainer", options_.precision, parts_);
  if (precision_.scales()) left_out_ = Array::zeros({}, DType::u64);
  counter_ = Array::zeros({}, DType::u64);
  first_nonfinite_ = Array::zeros({}, DType::u64);
  if (accumulate_ > 1)
    for (const Array& row : rows) summed_.push_back(Array::zeros(row.shape(), row.dtype(), row.device()));
  if (ranks_ == nullptr) return;
  const bool wide = std::ranges::any_of(rows, [](const Array& row) { return row.dtype() == DType::f64; });
  exchanged_loss_ = Array::zeros({2}, wide ? DType::f64 : DType::f32);
  share(kept(), "the trainer's model and optimiser");
  updates_before_ = optimiser_->steps();
}

void TrainerBase::share(const std::vector<std::pair<std::string, Array>>& named, const char* what) {
  std::vector<Array> arrays;
  for (const auto& [name, array] : named) arrays.push_back(array);
  ranks_->broadcast(arrays, what);
  precision_.refresh();
}

void TrainerBase::share_state() {
  if (ranks_ == nullptr) return;
  std::vector<std::pair<std::string, Array>> state;
  for (const auto& [path, part] : parts_)
    if (part->state() && !part->empty()) state.emplace_back(path, *part);
  if (!state.empty()) share(state, "the model's state");
}

void TrainerBase::narrow(detail::Parts parts) {
  narrow_ = std::move(parts);
  precision_.narrow(narrow_);
}

TrainingOptions TrainerBase::mode_of(std::size_t replica) const {
  const Device device = replica < devices().size() ? devices()[replica] : device_;
  const std::uint64_t before =
      ranks_ == nullptr ? 0 : static_cast<std::uint64_t>(ranks_->rank()) * std::max<std::size_t>(1, devices().size());
  return {.seed = options_.seed + (before + replica) * 0x9e3779b97f4a7c15, .counter = Counter(counter_.to(device))};
}

double TrainerBase::weight_of(std::size_t slot) const { return slots_[slot]->weight; }

void TrainerBase::forget() noexcept {
  for (auto& slot : slots_) slot.reset();
  recorded_.reset();
}

/// Compares the bits of the trained parameters. They are equal unless the ranks' devices compute differently, or a
/// program has written a parameter on one rank only.
void TrainerBase::compare_ranks() {
  if (ranks_ == nullptr) return;
  std::uint64_t hash = 0;
  std::vector<std::byte> bytes;
  for (const auto& [path, part] : parts_) {
    if (!part->trained() || part->empty()) continue;
    bytes.resize(static_cast<std::size_t>(part->size()) * dtype_size(part->dtype()));
    part->download(bytes.data());
    for (std::size_t at = 0; at < bytes.size(); at += sizeof hash) {
      std::uint64_t word = 0;
      std::memcpy(&word, bytes.data() + at, std::min(sizeof word, bytes.size() - at));
      hash = (hash ^ word) * 0x9e3779b97f4a7c15;
      hash ^= hash >> 32;
    }
  }
  const std::vector<std::uint64_t> all = ranks_->gather(hash);
  for (std::size_t k = 1; k < all.size(); ++k)
    if (all[k] != all[0])
      fail<ArgumentError>({.operation = "Trainer.step",
                           .with = {{"step", std::to_string(steps_)}},
                           .wrong = fmt::format("the parameters of rank {} differ from those of rank 0", k),
                           .remedy = "Use the same optimiser settings and devices of one kind on all ranks, and change "
                                     "parameters on all ranks alike"});
}

TrainerBase::Slot& TrainerBase::slot_for(std::span<const Array> batch, double weight) {
  const auto same = [&](const detail::Owner<Slot>& s) {
    return s != nullptr && s->weight == weight &&
           std::ranges::equal(s->arrays, batch, [](const Array& a, const Array& b) {
             return a.shape() == b.shape() && a.dtype() == b.dtype();
           });
  };
  auto at = std::ranges::find_if(slots_, same);
  if (at == slots_.end() || !one_device_) {
    if (!one_device_) at = slots_.begin();
    if (at == slots_.end()) at = std::ranges::find_if(slots_, [](const auto& s) { return s == nullptr; });
    if (at == slots_.end()) {
      // Before eviction, because check() needs the slot's batch if it was not finite. (Not with ranks: they may evict
      // slots at different steps. The cause of a non-finite number is then looked for in another batch.)
      if (ranks_ == nullptr) check();
      at = std::ranges::min_element(slots_, {}, [](const auto& s) { return s->last_use; });
      ++dropped_;
    }
    const auto index = static_cast<std::size_t>(at - slots_.begin());
    release(index);
    at->reset();
    auto slot = std::make_unique<Slot>();
    slot->index = index, slot->weight = weight;
    for (const Array& a : batch) slot->arrays.push_back(one_device_ ? Array::empty(a.shape(), a.dtype(), device_) : a);
    hold(index, slot->arrays);
    *at = std::move(slot);
  }
  (*at)->last_use = ++uses_;
  return **at;
}

void TrainerBase::fill(Slot& slot, std::span<const Array> batch) {
  if (!one_device_) return;
  // check() inspects the non-finite batch. Therefore, batches are not overwritten after training has stopped.
  const bool guarded = options_.check_finite && slot.filled;
  std::vector<Assignment> all;
  for (std::size_t i = 0; i < batch.size(); ++i) {
    Array value = stop_gradient(batch[i]).to(device_);
    if (guarded) value = where(first_nonfinite_ == 0, std::move(value), slot.arrays[i]);
    all.push_back({slot.arrays[i], std::move(value)});
  }
  assign_all(all);
  slot.filled = true;
}

Array TrainerBase::step_arrays(std::span<const Array> batch, std::optional<double> share) {
  if (broken_)
    fail<Error>({.operation = "Trainer.step",
                 .wrong = "an earlier step failed after the other ranks had received a part of its gradient",
                 .remedy = "Start the program again and resume from a checkpoint"});
  const DeviceScope scope(device_);
  std::vector<Array> part;
  if (ranks_ != nullptr && !share) {
    const std::int64_t samples = detail::samples_of(batch);
    const auto [begin, size] = detail::part_of_samples(samples, ranks_->size(), ranks_->rank());
    for (const Array& a : batch) part.push_back(a.rank() == 0 ? a : a.slice(0, begin, begin + size));
    batch = part, share = static_cast<double>(size) / static_cast<double>(samples);
  }
  Slot& slot = slot_for(batch, share.value_or(1));
  const bool update = (steps_ + 1) % accumulate_ == 0;
  const std::uint64_t before = optimiser_->steps(), number = steps_ + 1;
  try {
    fill(slot, batch);
    current_queue(device_).upload(counter_.view_for_writing(), &number);
    if (update) optimiser_->advance();
    run(slot, update);
  } catch (...) {
    optimiser_->rewind(before);
    broken_ = started_ != 0;
    throw;
  }
  steps_ = number;
  if (!one_device_) check();
  if (is_compared(steps_)) compare_ranks();
  return slot.loss * 1;  // a copy, because the next step overwrites slot.loss
}

void TrainerBase::run(Slot& slot, bool update) {
  Slot::Kind& kind = slot.kinds[update ? 1 : 0];
  if (slot.retry_at != 0 && uses_ >= slot.retry_at) slot.not_recorded_reason.clear(), slot.retry_at = 0;
  if (not_recorded_.empty() && slot.not_recorded_reason.empty()) {
    Queue& queue = current_queue(device_);
    if (recorded_->core != &queue.core()) {  // sequences and their memory belong to the previous queue
      for (auto& s : slots_)
        if (s != nullptr)
          for (Slot::Kind& k : s->kinds) k.sequence = CheckedSequence();
      recorded_->pool = SequencePool(), recorded_->core = &queue.core();
    }
    if (kind.seen) return run_recorded(slot, update);
  }
  work(slot, update);
  kind.seen = true;
}

void TrainerBase::run_recorded(Slot& slot, bool update) {
  CheckedSequence& sequence = slot.kinds[update ? 1 : 0].sequence;
  const bool known = sequence.valid();
  const std::uint64_t unchecked = sequence.unchecked();
  bool done = false;
  wrote_ = false;
  const auto eagerly = [&](std::string& why, const Error& e) {
    if (wrote_ && !done) throw;  // the step cannot be restarted after it has written memory
    why = e.what();
    if (!done) work(slot, update);
  };
  std::string why;
  try {
    const auto step = [&] { work(slot, update), done = true; };
    if (sequence.run(current_queue(device_), step, recorded_->pool, why)) ++replays_;
    if (!why.empty()) not_recorded_ = known ? differs(why, unchecked) : why;
  } catch (const KernelError& e) {
    eagerly(not_recorded_, e);
  } catch (const OutOfMemory& e) {
    if (known && !done && !wrote_) {  // a comparison needs more memory than a replay
      if (unchecked < 2 * CheckedSequence::most_unchecked) {
        sequence.replay();
        ++replays_;
        return;
      }
      sequence = CheckedSequence();  // too many replays since the last comparison
    }
    slot.retry_at = uses_ + slot.wait;
    slot.wait = std::min<std::uint64_t>(2 * slot.wait, 64);
    eagerly(slot.not_recorded_reason, e);
  } catch (const ArgumentError& e) {
    eagerly(not_recorded_, e);
  }
  if (!not_recorded_.empty()) drop_recordings();
}

void TrainerBase::drop_recordings() {
  for (auto& s : slots_)
    if (s != nullptr) s->kinds = {};
}

std::string TrainerBase::differs(const std::string& difference, std::uint64_t unchecked) const {
  std::string why = fmt::format(
      "step {} differs from the recorded step: {}. The loss uses a host value that changes; a replay does not see the "
      "change. Draw random numbers from a Generator or with training()->counter, compute schedules from step_number(), "
      "and store other values in arrays that are written between steps",
      steps_ + 1, difference);
  if (unchecked != 0)
    logging::warn(
        fmt::format("Trainer: {}. Up to {} before it may have used the old value (or all {} replayed steps, if the "
                    "loss itself changes the value). Steps are no longer recorded",
                    why, count_noun(unchecked, "step"), replays_));
  return why;
}

void TrainerBase::note_loss(Slot& slot, const Array& loss, const Array& finite) {
  const bool check = options_.check_finite, scales = precision_.scales();
  const Array wide = loss.astype(sum_.dtype()), on = first_nonfinite_ == 0;
  std::vector<Assignment> all = {{slot.loss, loss}};
  if (check) {
    // While the scale can still decrease, a non-finite step is only skipped.
    const Array goes_on = scales ? finite | !precision_.is_at_min_scale() : finite;
    all.push_back({first_nonfinite_,
                   where((first_nonfinite_ != 0) | goes_on, first_nonfinite_, counter_ * slots_.size() + slot.index)});
  }
  if (scales) {
    const Array counts = isfinite(wide);
    all.push_back({left_out_, where(on & !counts, left_out_ + 1, left_out_)});
    all.push_back({sum_, where(on & counts, sum_ + wide, sum_)});
  } else {
    all.push_back({sum_, check ? where(on & finite, sum_ + wide, sum_) : sum_ + wide});
  }
  assign_all(all);
}

/// True if gradients can be sent during the backward pass.
bool TrainerBase::overlaps() const {
  return ranks_ != nullptr && options_.bucket_bytes > 0 && accumulate_ == 1 && !splits();
}

/// Sends a bucket. If a step is restarted, its gradient is the same, and what was sent is not sent again.
void TrainerBase::start_bucket(std::size_t number) {
  if (number < started_) return;
  ranks_->start_sum(steps_ + 1, buckets_->bucket(number));
  ++started_;
}

/// Adds up the loss over the ranks, and the gradients in `rows`, and exchanges the flags. The sums replace the contents
/// of the arrays. Returns the loss.
Array TrainerBase::sum_over_ranks(std::vector<Array> rows, const Array& loss, const Array& finite) {
  std::vector<Assignment> notes = {
      {exchanged_loss_.slice(0, 0, 1), loss.reshape({1}).astype(exchanged_loss_.dtype())},
      {exchanged_loss_.slice(0, 1, 2), where(finite, 0, 1).reshape({1}).astype(exchanged_loss_.dtype())}};
  assign_all(notes);
  rows.push_back(exchanged_loss_);
  wrote_ = true;  // the other ranks have this rank's gradients, so the step cannot be restarted
  Sequence::between([this, rows = std::move(rows)] {
    wrote_ = true;  // in a replay, too
    StepFlags flags = std::exchange(flags_to_send_, {});
    ranks_->sum_step(steps_ + 1, rows, flags);
    started_ = 0;
    flags_ = flags;
  });
  return exchanged_loss_.slice(0, 0, 1).reshape({}).astype(loss.dtype());
}

void TrainerBase::work(Slot& slot, bool update) {
  Training mode(mode_of(0));
  const bool early = overlaps() && buckets_ && buckets_->size() > 1;
  if (early) {
    buckets_->begin();
    adjoint_ready_ = [this](std::size_t number, Array adjoint) {
      return buckets_->store(number, std::move(adjoint), [this](std::size_t bucket) {
        Sequence::between([this, bucket] { start_bucket(bucket); });
      });
    };
  }
  struct Reset {
    detail::AdjointReady& ready;
    ~Reset() { ready = nullptr; }
  } const reset{adjoint_ready_};
  gradient_of(slot.index, [&](Array loss, const detail::Parts& gradient) {
    const std::vector<Array> rows =
        detail::pack_parts(gradient, optimiser_->patterns(), summed_.empty() && ranks_ == nullptr,
                           ranks_ == nullptr ? nullptr : &exchanged_);
    const bool check = options_.check_finite, scales = precision_.scales();
    loss = loss.reshape({}).to(device_);
    if (slot.loss.rank() != 0 || slot.loss.dtype() != loss.dtype()) slot.loss = Array::zeros({}, loss.dtype());
    if (sum_.rank() != 0) sum_ = Array::zeros({}, loss.dtype() == DType::f64 ? DType::f64 : DType::f32);
    // The division by the scale is fused into a kernel that runs anyway.
    std::optional<Array> inverse;
    if (scales && update) inverse = precision_.inverse();
    const auto unscaled = [&](Array row) {
      if (inverse) row = row * inverse->to(row.device());
      return row;
    };
    const auto all_finite = [&](const Array& value) {
      Array finite = isfinite(value);
      for (const Array& row : rows) finite = finite & all(isfinite(row)).to(device_);
      return finite.eval();
    };
    const auto mean = [&](Array sum) { return unscaled(std::move(sum)) * (1.0 / static_cast<double>(accumulate_)); };
    for (std::size_t i = 0; i < summed_.size(); ++i) {
      Array row = rows[i];
      row.assign(update && ranks_ == nullptr ? mean(row + summed_[i]) : row + summed_[i]);
    }
    Array finite = isfinite(loss);
    if (ranks_ != nullptr) {
      loss = sum_over_ranks(update && !early ? rows : std::vector<Array>(), loss,
                            (check || scales) && !update ? all_finite(loss) : finite);
      // After the exchange, because a first step that fails earlier may be repeated while the others wait.
      if (overlaps() && !buckets_) buckets_.emplace(rows, gradient, options_.bucket_bytes);
      if (update && !summed_.empty())
        for (Array row : rows) row.assign(mean(row));
      finite = isfinite(loss) & (exchanged_loss_.slice(0, 1, 2).reshape({}) == 0);
    }
    if (!summed_.empty()) inverse.reset();
    if ((check || scales) && (ranks_ == nullptr || update)) finite = all_finite(loss);
    // All allocations are made before memory is written. If one fails, nothing has changed.
    std::optional<Array> stopped;
    if (check) stopped = first_nonfinite_;
    if (scales) stopped = where(finite & (first_nonfinite_ == 0), 0, 1).astype(DType::u64).eval();
    ApplyOptions how{.stopped = stopped, .copies = precision_.copies()};
    if (update) {
      if (scales) how.skipped = precision_.skipped_;
      if (options_.clip_value) {
        for (Array row : rows) row.assign(clip(unscaled(row), -*options_.clip_value, *options_.clip_value));
        inverse.reset();
      }
      if (options_.clip_norm) {
        std::vector<Array> of;
        for (const Array& row : rows) of.push_back(unscaled(row));
        how.scale = detail::clip_factor(of, *options_.clip_norm, 2).factor;
      }
      if (inverse) how.scale = (how.scale ? *how.scale * *inverse : *inverse).eval();
    }
    wrote_ = true;
    note_loss(slot, loss, finite);
    if (update) optimiser_->apply_to(parts_, detail::ConstParts(gradient.begin(), gradient.end()), how);
    for (std::size_t i = 0; i < summed_.size(); ++i) {
      Array sum = update ? Array::zeros({1}, summed_[i].dtype(), summed_[i].device()) : rows[i];
      summed_[i].assign(check ? where(first_nonfinite_.to(summed_[i].device()) == 0, std::move(sum), summed_[i]) : sum);
    }
    mode.apply_to(parts_, stopped);
    if (scales && update) precision_.update(finite, check ? std::optional(first_nonfinite_) : std::nullopt);
  });
}

void TrainerBase::check() {
  if (!options_.check_finite) return;
  const std::uint64_t code = first_nonfinite_.item<std::uint64_t>();
  if (code == 0) return;
  const DeviceScope scope(device_);
  const std::uint64_t number = code / slots_.size();
  first_nonfinite_.fill(0);
  steps_ = number - 1;
  summed_from_ = std::min(summed_from_, steps_);
  optimiser_->rewind(updates_before_ + steps_ / accumulate_);
  current_queue(device_).upload(counter_.view_for_writing(), &number);
  const auto at = static_cast<std::size_t>(code % slots_.size());
  Training mode(mode_of(0));
  detail::Parts looked_at = parts_;
  for (const auto& [path, part] : narrow_)
    if (part->narrowed()) looked_at.emplace_back(path + " as " + std::string(dtype_name(part->dtype())), part);
  detail::NotFiniteCause found{.text = "", .found = false};
  if (slots_[at] != nullptr && slots_[at]->weight > 0)
    found = detail::find_not_finite(
        looked_at, slots_[at]->arrays, [&] { return loss_of(at); },
        [&](const Callback<void(const detail::Parts&)>& use) {
          gradient_of(at, [&](const Array&, const detail::Parts& gradient) { use(gradient); });
        });
  if (ranks_ != nullptr) {  // the ranks whose samples are not finite name the cause
    const std::vector<std::uint64_t> causes = ranks_->gather(!found.found ? 0 : found.in_batch ? 2 : 1);
    std::string named;
    int root = 0;
    for (std::size_t rank = causes.size(); rank-- > 0;)
      if (causes[rank] != 0)
        root = static_cast<int>(rank), named = "rank " + std::to_string(rank) + (named.empty() ? "" : ", ") + named;
    found.text = ranks_->broadcast(found.text, root);
    found.in_batch = causes[static_cast<std::size_t>(root)] == 2;
    if (!named.empty()) found.text = "on " + named + ": " + found.text;
  }
  throw NotFinite(
      error_text(
          {.operation = "Trainer.step",
           .with = {{"step", std::to_string(number)}},
           .wrong = "the loss or its gradient is not finite: " + found.text,
           .remedy = found.in_batch
                         ? "Everything except Generators was restored to the state before this step. Correct the batch"
                         : "Everything except Generators was restored to the state before this step. Lower the "
                           "learning rate, clip the gradient, or inspect the batch"}),
      number);
}

std::string TrainerBase::not_recorded() const {
  std::string why = not_recorded_;
  for (const auto& s : slots_)
    if (why.empty() && s != nullptr) why = s->not_recorded_reason;
  if (why.empty() && dropped_ != 0)
    why = fmt::format(
        "batches have more shapes than the {} that are cached. {} evicted so far; an evicted shape is recorded "
        "again when it is used. Increase TrainerOptions::shapes, or pad batches to fewer shapes",
        slots_.size(), count_noun(dropped_, "recording"));
  return why;
}

std::vector<Array> TrainerBase::snapshot() const {
  std::vector<Array> out;
  for (const auto& [path, part] : parts_) out.push_back(part->empty() ? Array(*part) : part->copy());
  return out;
}
void TrainerBase::restore(std::span<const Array> values) {
  for (std::size_t i = 0; i < parts_.size(); ++i)
    if (!parts_[i].second->empty()) parts_[i].second->assign(values[i]);
  precision_.refresh();
}

std::size_t TrainerBase::shapes() const { return slots_.size(); }
std::uint64_t TrainerBase::updates() const { return optimiser_->steps(); }
double TrainerBase::rate() const { return optimiser_->rate(); }

double TrainerBase::mean_loss() {
  if (steps_ == summed_from_) return std::numeric_limits<double>::quiet_NaN();
  const double sum = sum_.dtype() == DType::f64 ? sum_.item<double>() : sum_.item<float>();
  sum_.fill(0);
  std::uint64_t count = steps_ - summed_from_;
  // The first non-finite step and all later ones were not added to the sum.
  if (const std::uint64_t bad = options_.check_finite ? first_nonfinite_.item<std::uint64_t>() / slots_.size() : 0)
    count -= std::min(count, steps_ + 1 - bad);
  if (precision_.scales()) {
    count -= std::min(count, left_out_.item<std::uint64_t>());
    left_out_.fill(0);
  }
  const double mean = count == 0 ? std::numeric_limits<double>::quiet_NaN() : sum / static_cast<double>(count);
  summed_from_ = steps_;
  return mean;
}

void TrainerBase::set_position(DataPosition position) {
  check();
  position_ = position, position_at_ = steps_;
}

}  // namespace tessera
