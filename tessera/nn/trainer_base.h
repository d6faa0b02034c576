// SPDX-License-Identifier: Apache-2.0
// What trainers of all models have in common: see trainer.h.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tessera/nn/any_optimiser.h"
#include "tessera/nn/batches.h"
#include "tessera/nn/mode.h"
#include "tessera/nn/precision.h"

namespace tessera {

/// Options of Trainer.
struct TrainerOptions {
  std::uint64_t seed = 0;                 ///< of what layers draw in training: Dropout
  std::optional<double> clip_norm = {};   ///< clip_gradient_norm of each update
  std::optional<double> clip_value = {};  ///< clip_gradient_value of each update, before its norm
  std::int64_t accumulate = 1;            ///< steps whose mean gradient makes one update
  /// Steps are recorded (device/queue/checked_sequence.h) for each shape of a batch, when it comes for the second and
  /// third time, and replayed from the fourth. Results are the same bits. A replay does not call the loss, so it does
  /// not see the host: the two recordings are compared, and later, each 64 steps at the latest, a step that is run
  /// again is compared with the recording. Where they differ steps are not recorded from then on, and not_recorded()
  /// says why. A Generator in the loss draws in each replay, too.
  bool recorded = true;
  /// How many shapes of batches are kept, each with an array of each of the batch's and its recording. Of more the one
  /// that was used longest ago is dropped, and not_recorded() says so.
  std::int64_t shapes = 32;
  /// A step whose loss or gradient is not finite changes nothing, nor does any later one, until check().
  bool check_finite = true;
  /// What the model computes in (nn/precision.h). With a loss scale, f16's, a step whose loss or gradient is not finite
  /// is skipped, and counted; and only one with the smallest scale is as check_finite says.
  PrecisionOptions precision = {};
  /// Several: the samples of each batch are split over them, each of which has a replica of the model; gradients are
  /// added in a fixed tree on the first, where the model is trained and the optimiser works. The loss is a mean over
  /// samples, and the same split gives the same bits. State (BatchNorm's running figures) is the first device's, and
  /// each draws its own random numbers. Steps are not recorded.
  std::vector<Device> devices = {};
};

/// A step whose loss or gradient is not finite.
class NotFinite : public Error {
 public:
  /// Made by trainers.
  NotFinite(const std::string& text, std::uint64_t step) : Error(text), step_(step) {}
  std::uint64_t step() const { return step_; }  ///< its number, from 1

 private:
  std::uint64_t step_;
};

/// The part of Trainer that does not depend on the model.
class TrainerBase {
 public:
  virtual ~TrainerBase();
  TrainerBase(const TrainerBase&) = delete;
  TrainerBase& operator=(const TrainerBase&) = delete;

  /// Throws NotFinite if a step had a loss or gradient that is not finite: it names the step, and the operation and
  /// the layer as far as they can be found, for which that step is run again, with a look at each operation's result.
  /// Everything is then as it was before that step, and training can go on with another batch. Waits for the device.
  void check();

  std::uint64_t steps() const { return steps_; }  ///< batches seen
  std::uint64_t updates() const;                  ///< that the optimiser has made, those skipped too
  /// Updates that changed nothing, because with a loss scale the loss or the gradient was not finite. Waits for the
  /// device, as loss_scale() does, which is 1 where there is none.
  std::uint64_t skipped() const { return precision_.skipped_steps(); }
  /// The factor of the loss; see MixedPrecision.
  double loss_scale() const { return precision_.scale(); }
  double rate() const;  ///< the learning rate of the next one
  /// The device that the steps run on.
  Device device() const { return device_; }
  /// Mean loss of the steps since the last call (or since the beginning, or the last load); NaN of none. A step that is
  /// not finite, and those after it, of which check() is to tell, are left out. With a loss scale losses that are not
  /// finite are. Waits for the device.
  double mean_loss();

  /// Where the data stand: what set_position said, and the steps since then. For those who save and resume.
  DataPosition position() const { return {position_.epoch, position_.batch + (steps_ - position_at_)}; }
  void set_position(DataPosition position);  ///< Tells the trainer where the data are, for checkpoints.

  /// Copies of the model's arrays, and those values again.
  std::vector<Array> snapshot() const;
  void restore(std::span<const Array> values);  ///< Copies values from snapshot() back into the model.

  /// Why steps, or some of them, are not recorded, or empty. Where memory did not suffice, recording is tried again:
  /// after 8 steps, then after 16, and so on to each 64.
  std::string not_recorded() const;
  std::uint64_t replays() const { return replays_; }  ///< steps that were replayed

  /// Writes parameters, state, what the optimiser keeps, counters and the position of the data into one safetensors
  /// file, beside the old one and then in its place; after check(). A trainer that loads it goes on to the same
  /// numbers. `more` are texts and `beside` arrays that are kept with it, these as "beside.NAME". Errors of
  /// save_safetensors.
  void save(const std::string& path, const std::map<std::string, std::string>& more = {},
            const std::vector<std::pair<std::string, Array>>& beside = {});
  /// Reads such a file, and gives all its texts. All or nothing: ArgumentError lists every array that is missing,
  /// unexpected, or of another shape or dtype; FormatError for what is no such file. Arrays beside it are passed by.
  std::map<std::string, std::string> load(const std::string& path);

 protected:
  /// Takes the loss and the arrays of the gradient, which it may change.
  using UseGradient = std::function<void(Array loss, const detail::Parts& gradient)>;

  TrainerBase(AnyOptimiser optimiser, const TrainerOptions& options);
  void begin(detail::Parts parts);  ///< the parts of the model that is trained, which stay where they are
  bool narrows() const { return precision_.narrows(); }
  void narrow(detail::Parts parts);  ///< those of a model that shares their memory, and computes
  /// The loss with its scale, which is differentiated.
  Array scaled(const Array& loss) const { return precision_.scales() ? precision_.scaled(loss) : loss; }
  void forget() noexcept;  ///< what was recorded
  bool splits() const { return options_.devices.size() > 1; }
  const std::vector<Device>& devices() const { return options_.devices; }
  std::vector<std::string> patterns() const { return optimiser_->patterns(); }
  /// Of the replica of this number.
  TrainingOptions mode_of(std::size_t replica) const;
  Array step_arrays(std::span<const Array> batch);
  std::size_t shapes() const { return slots_.size(); }

 private:
  // Of a typed trainer. A slot is a shape of batches, with arrays of its own that each batch is copied into.
  virtual void hold(std::size_t slot, std::span<const Array> arrays) = 0;
  virtual void release(std::size_t slot) noexcept = 0;
  virtual Array loss_of(std::size_t slot) = 0;
  virtual void gradient_of(std::size_t slot, const UseGradient& use) = 0;

  struct Slot;
  struct Recordings;
  Slot& slot_for(std::span<const Array> batch);
  void fill(Slot& slot, std::span<const Array> batch);
  void work(Slot& slot, bool update);
  void run(Slot& slot, bool update);
  void run_recorded(Slot& slot, bool update);
  void drop_recordings();
  /// Why steps are not recorded from a step on that differs; a warning if there were unchecked replays.
  std::string differs(const std::string& difference, std::uint64_t unchecked) const;
  void note_loss(Slot& slot, const Array& loss, const Array& finite);
  std::vector<std::pair<std::string, Array>> kept();

  AnyOptimiser optimiser_;
  const TrainerOptions options_;
  const std::uint64_t accumulate_;
  detail::Parts parts_, narrow_;
  detail::Precision precision_;
  Device device_;
  bool one_device_ = true;

  std::uint64_t steps_ = 0, replays_ = 0, uses_ = 0;
  std::uint64_t updates_before_ = 0;  ///< by the optimiser, when steps_ was 0
  DataPosition position_;
  std::uint64_t position_at_ = 0;  ///< steps_ then
  std::uint64_t summed_from_ = 0;  ///< steps_ at the last mean_loss()

  // On the device, each of one element.
  Array counter_;          ///< u64: the number of the step that runs, from 1
  Array first_nonfinite_;  ///< u64: 0, or of the first step that was not finite its number times slots_.size(), plus
                           ///< its slot
  Array sum_;              ///< of losses since the last mean_loss()
  Array left_out_;         ///< u64: how many of those had a loss that is not finite; with a loss scale
  std::vector<Array> summed_;  ///< gradients of the steps of this update; with accumulate
  std::vector<std::unique_ptr<Slot>> slots_;
  std::unique_ptr<Recordings> recorded_;
  std::string not_recorded_;
  std::uint64_t dropped_ = 0;  ///< slots, in favour of other shapes
  bool wrote_ = false;         ///< in this step: it cannot be begun again
};

}  // namespace tessera
