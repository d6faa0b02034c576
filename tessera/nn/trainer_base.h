// SPDX-License-Identifier: Apache-2.0
// The part of Trainer (trainer.h) that does not depend on the model's type.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tessera/base/callback.h"
#include "tessera/base/owner.h"
#include "tessera/nn/any_optimiser.h"
#include "tessera/nn/batches.h"
#include "tessera/nn/mode.h"
#include "tessera/nn/precision.h"

namespace tessera {

/// Options of Trainer.
struct TrainerOptions {
  std::uint64_t seed = 0;                 ///< seed of the layers' random numbers in training: Dropout
  std::optional<double> clip_norm = {};   ///< clip_gradient_norm before each update
  std::optional<double> clip_value = {};  ///< clip_gradient_value before each update, before clip_norm
  std::int64_t accumulate = 1;            ///< steps whose mean gradient makes one update
  /// Steps are recorded (device/queue/checked_sequence.h) separately for each shape of a batch, in its second and third
  /// step, and replayed from the fourth on. Results are bit-identical. A replay does not call the loss, so host values
  /// that change have no effect: the two recordings are compared and, at the latest every 64 steps, a step is run again
  /// and compared with the recording. If they differ, recording stops and not_recorded() says why. A Generator in the
  /// loss draws new numbers in each replay.
  bool recorded = true;
  /// How many batch shapes are cached, each with its own arrays and recording. The least recently used one is evicted,
  /// which not_recorded() reports.
  std::int64_t shapes = 32;
  /// After a step whose loss or gradient is not finite, this and all later steps change nothing until check() is
  /// called.
  bool check_finite = true;
  /// What the model computes in (nn/precision.h). With a loss scale (f16), a step whose loss or gradient is not finite
  /// is skipped and counted; check_finite applies only to steps with the smallest scale.
  PrecisionOptions precision = {};
  /// With several devices, the samples of each batch are split over them. Each has a replica of the model; gradients
  /// are summed in a fixed tree on the first, which runs the optimiser. The loss must be a mean over samples. The same
  /// split gives the same bits. State (BatchNorm's running statistics) is the first device's, and each draws its own
  /// random numbers. Steps are not recorded.
  std::vector<Device> devices = {};
};

/// Thrown when a step's loss or gradient is not finite.
class NotFinite : public Error {
 public:
  /// Created by trainers.
  NotFinite(const std::string& text, std::uint64_t step) : Error(text), step_(step) {}
  std::uint64_t step() const { return step_; }  ///< number of the step, from 1

 private:
  std::uint64_t step_;
};

/// The part of Trainer that does not depend on the model.
class TrainerBase {
 public:
  virtual ~TrainerBase();
  TrainerBase(const TrainerBase&) = delete;
  TrainerBase& operator=(const TrainerBase&) = delete;

  /// Throws NotFinite if a step had a non-finite loss or gradient. To find the operation and layer, it runs that step
  /// again and checks each operation's result. Everything is restored to the state before that step, and training can
  /// continue with another batch. Waits for the device.
  void check();

  std::uint64_t steps() const { return steps_; }  ///< batches seen
  std::uint64_t updates() const;                  ///< updates of the optimiser, including skipped ones
  /// Updates that changed nothing because, with a loss scale, the loss or the gradient was not finite. Waits for the
  /// device.
  std::uint64_t skipped() const { return precision_.skipped_steps(); }
  /// The factor of the loss, 1 without loss scaling; see MixedPrecision. Waits for the device.
  double loss_scale() const { return precision_.scale(); }
  double rate() const;  ///< the learning rate of the next update
  /// The device that the steps run on.
  Device device() const { return device_; }
  /// Mean loss of the steps since the last call (or since creation, or load()); NaN if there are none. Leaves out a
  /// non-finite step that check() will report and the steps after it; with a loss scale, all non-finite losses. Waits
  /// for the device.
  double mean_loss();

  /// Position in the data: the argument of set_position, advanced by the steps since then. Saved in checkpoints.
  DataPosition position() const { return {position_.epoch, position_.batch + (steps_ - position_at_)}; }
  void set_position(DataPosition position);  ///< Sets the position in the data, for checkpoints.

  /// Copies of the model's arrays.
  std::vector<Array> snapshot() const;
  void restore(std::span<const Array> values);  ///< Copies values from snapshot() back into the model.

  /// Why steps, or some of them, are not recorded, or empty. After an out-of-memory error, recording is tried again
  /// after 8 steps, then after 16, and so on up to every 64.
  std::string not_recorded() const;
  std::uint64_t replays() const { return replays_; }  ///< steps that were replayed

  /// Calls check(), then writes parameters, state, the optimiser's state, counters and the data position to a
  /// safetensors file, which is replaced atomically. A trainer that loads it computes the same numbers. `more` is
  /// additional metadata; `extra` are additional arrays, saved as "beside.NAME". Throws the errors of
  /// save_safetensors.
  void save(const std::string& path, const std::map<std::string, std::string>& more = {},
            const std::vector<std::pair<std::string, Array>>& extra = {});
  /// Loads such a file and returns its metadata. Loads all arrays or none: throws ArgumentError that lists every array
  /// that is missing, unexpected, or of another shape or dtype; FormatError if it was not written by save. Ignores
  /// additional arrays.
  std::map<std::string, std::string> load(const std::string& path);

 protected:
  /// Called with the loss and the gradient's arrays, which it may modify.
  using UseGradient = Callback<void(Array loss, const detail::Parts& gradient)>;

  TrainerBase(AnyOptimiser optimiser, const TrainerOptions& options);
  void begin(detail::Parts parts);  ///< parts of the trained model, whose memory stays in place
  bool narrows() const { return precision_.narrows(); }
  void narrow(detail::Parts parts);  ///< parts of the model that computes, which shares their memory
  /// The loss times the loss scale, to be differentiated.
  Array scaled(const Array& loss) const { return precision_.scales() ? precision_.scaled(loss) : loss; }
  void forget() noexcept;  ///< drops recordings
  bool splits() const { return options_.devices.size() > 1; }
  const std::vector<Device>& devices() const { return options_.devices; }
  std::vector<std::string> patterns() const { return optimiser_->patterns(); }
  /// Mode of a replica.
  TrainingOptions mode_of(std::size_t replica) const;
  Array step_arrays(std::span<const Array> batch);
  std::size_t shapes() const;

 private:
  // Implemented by Trainer. A slot is a batch shape, with its own arrays, into which each batch is copied.
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
  /// Why steps are no longer recorded after one that differs; also warns if there were unchecked replays.
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
  std::uint64_t position_at_ = 0;  ///< steps_ at set_position
  std::uint64_t summed_from_ = 0;  ///< steps_ at the last mean_loss()

  // On the device, each of one element.
  Array counter_;              ///< u64: number of the running step, from 1
  Array first_nonfinite_;      ///< u64: 0, or number of the first non-finite step times slots_.size(), plus its slot
  Array sum_;                  ///< of losses since the last mean_loss()
  Array left_out_;             ///< u64: how many of those had a non-finite loss; with a loss scale
  std::vector<Array> summed_;  ///< gradients of this update's steps; with accumulate
  std::vector<Owner<Slot>> slots_;
  Owner<Recordings> recorded_;
  std::string not_recorded_;
  std::uint64_t dropped_ = 0;  ///< evicted slots
  bool wrote_ = false;         ///< in this step, which therefore cannot be restarted
};

}  // namespace tessera
