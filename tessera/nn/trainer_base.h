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
#include "tessera/grad/reverse.h"
#include "tessera/nn/any_optimiser.h"
#include "tessera/nn/batches.h"
#include "tessera/nn/exchange.h"
#include "tessera/nn/gradient_buckets.h"
#include "tessera/nn/mode.h"
#include "tessera/nn/precision.h"

namespace tessera {

/// Options of Trainer.
struct TrainerOptions {
  std::uint64_t seed = 0;                ///< Seed of random numbers that layers draw in training, for example Dropout.
  std::optional<double> clip_norm = {};  ///< Maximum norm for clip_gradient_norm, called before each update.
  /// Limit for clip_gradient_value, called before each update and before clip_norm.
  std::optional<double> clip_value = {};
  std::int64_t accumulate = 1;  ///< Steps per update. The update uses the mean of their gradients.
  /// Record steps (device/queue/checked_sequence.h). For each batch shape, the second and third steps are recorded, and
  /// later steps are replayed. Results are bit-identical. A replay does not call the loss, so changes of host values
  /// would have no effect. To detect such changes, the two recordings are compared, and at least every 64 steps a step
  /// is run directly and compared with the recording. If they differ, recording stops and not_recorded() returns the
  /// reason. A Generator in the loss draws new numbers in each replay.
  bool recorded = true;
  /// Number of batch shapes that are cached, each with its own arrays and recording. When there are more, the least
  /// recently used one is evicted, and not_recorded() reports it.
  std::int64_t shapes = 32;
  /// If the loss or gradient of a step is not finite, this step and all later ones change nothing until check() is
  /// called.
  bool check_finite = true;
  /// Precision of the computation (nn/precision.h). With loss scaling (f16), a step with a non-finite loss or gradient
  /// is skipped and counted. check_finite then only applies to steps at the smallest scale.
  PrecisionOptions precision = {};
  /// Splits the samples of each batch over these devices. Each device has a replica of the model. Gradients are summed
  /// in a fixed tree on the first device, which also runs the optimiser. The loss must be a mean over samples. Results
  /// are bit-identical for the same split. State, such as BatchNorm's running statistics, is updated on the first
  /// device only. Each device draws its own random numbers. Steps on several devices are not recorded.
  std::vector<Device> devices = {};
  /// Trains together with other processes (dist::World). All ranks must make the same calls. Each batch is split over
  /// the ranks, and their gradients are added up in a fixed tree, so that all ranks apply the same update: results are
  /// bit-identical for the same number of ranks. The trainer starts with the first rank's model and optimiser. The loss
  /// must be a mean over samples. State, such as BatchNorm's running statistics, is the first rank's. Must outlive the
  /// trainer. Null: this process trains alone.
  Exchange* ranks = nullptr;
  /// With several ranks: gradients of more than this many bytes are sent to the other ranks in several parts, each as
  /// soon as the backward pass has completed it, while the rest is computed. Results are bit-identical for any value.
  /// 0: after the backward pass. Not used with accumulate and with several devices per rank.
  std::size_t bucket_bytes = std::size_t{25} << 20;
};

/// Thrown when a step's loss or gradient is not finite.
class NotFinite : public Error {
 public:
  /// Called by trainers.
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

  /// Throws NotFinite if a step had a non-finite loss or gradient. To find the operation and the layer, it runs the
  /// step again and checks the result of each operation. Before it throws, it restores the state before that step, so
  /// training can continue with another batch. Waits for the device. With several ranks, all of them must call it, and
  /// all throw; the message names the ranks whose samples were not finite.
  void check();

  std::uint64_t steps() const { return steps_; }  ///< number of batches processed
  std::uint64_t updates() const;                  ///< number of optimiser updates, including skipped ones
  /// Number of updates that were skipped because the loss or gradient was not finite, with loss scaling. Waits for the
  /// device.
  std::uint64_t skipped() const { return precision_.skipped_steps(); }
  /// Returns the loss scale, or 1 without loss scaling; see MixedPrecision. Waits for the device.
  double loss_scale() const { return precision_.scale(); }
  double rate() const;  ///< learning rate of the next update
  /// The device on which steps run.
  Device device() const { return device_; }
  /// Returns the mean loss of the steps since the last call, or since the trainer was created or loaded. Returns NaN if
  /// there were no steps. If check() will report a non-finite step, this step and the following ones are left out. With
  /// loss scaling, all non-finite losses are left out. Waits for the device.
  double mean_loss();

  /// Position in the data set: the argument of the last set_position, advanced by one batch for each step since then.
  /// It is saved in checkpoints.
  DataPosition position() const { return {position_.epoch, position_.batch + (steps_ - position_at_)}; }
  void set_position(DataPosition position);  ///< Sets the position in the data set.

  /// Returns copies of the model's arrays.
  std::vector<Array> snapshot() const;
  void restore(std::span<const Array> values);  ///< Copies the values of a snapshot() back into the model.

  /// Returns the reason why steps, or some of them, are not recorded, or an empty string if all are recorded. After an
  /// out-of-memory error, recording is retried after 8 steps, then after 16 and 32, and then every 64 steps.
  std::string not_recorded() const;
  std::uint64_t replays() const { return replays_; }  ///< number of steps that were replayed

  /// The ranks that train together, or null if this process trains alone.
  Exchange* ranks() const { return ranks_; }
  /// Sets the flags that this rank sends in the next step. Used by fit().
  void set_flags(StepFlags flags) { flags_to_send_ = flags; }
  /// Returns the combined flags of all ranks in the last step.
  const StepFlags& flags() const { return flags_; }
  /// Throws ArgumentError if the bits of the trained parameters differ between ranks. All ranks must call it. Called
  /// after steps 10, 100 and each 1,000, and by fit() at the end.
  void compare_ranks();
  /// Copies the model's state (BatchNorm's running statistics, for example) from the first rank to all.
  void share_state();

  /// Calls check(), then saves the parameters and state of the model, the state of the optimiser, counters and the data
  /// position in a safetensors file. The file is replaced atomically. A trainer that loads it continues with
  /// bit-identical results. With several ranks, all call it, the first one writes, and a file resumes on any number of
  /// ranks. `more` is additional metadata. `extra` are additional arrays, which are saved as
  /// "beside.NAME". Throws the errors of save_safetensors.
  void save(const std::string& path, const std::map<std::string, std::string>& more = {},
            const std::vector<std::pair<std::string, Array>>& extra = {});
  /// Loads a file that was written by save(), and returns its metadata. Loads all arrays or none. Throws ArgumentError
  /// with a list of all arrays that are missing, unexpected, or have a different shape or dtype. Throws FormatError if
  /// the file was not written by save(). Additional arrays are ignored.
  std::map<std::string, std::string> load(const std::string& path);

 protected:
  /// Callback for the loss and the arrays of the gradient. The callback may modify the arrays.
  using UseGradient = Callback<void(Array loss, const detail::Parts& gradient)>;

  TrainerBase(AnyOptimiser optimiser, const TrainerOptions& options);
  void begin(detail::Parts parts);  ///< arrays of the trained model; their memory must not move
  bool narrows() const { return precision_.narrows(); }
  /// Arrays of the model with 16-bit copies, which shares memory with the trained one.
  void narrow(detail::Parts parts);
  /// Returns the loss times the loss scale. The gradient is computed from this product.
  Array scaled(const Array& loss) const { return precision_.scales() ? precision_.scaled(loss) : loss; }
  void forget() noexcept;  ///< discards all recordings
  bool splits() const { return options_.devices.size() > 1; }
  const std::vector<Device>& devices() const { return options_.devices; }
  std::vector<std::string> patterns() const { return optimiser_->patterns(); }
  /// Training mode for a replica.
  TrainingOptions mode_of(std::size_t replica) const;
  /// Runs a step. `share` is the fraction of the samples in `batch` if it contains only this rank's samples. Without
  /// it, `batch` contains the samples of all ranks.
  Array step_arrays(std::span<const Array> batch, std::optional<double> share = {});
  /// The fraction of the batch's samples that this rank processes; 1 if it trains alone.
  double weight_of(std::size_t slot) const;
  std::size_t shapes() const;
  /// Must be called for each part of the gradient that the backward pass completes; may be null.
  const detail::AdjointReady& adjoint_ready() const { return adjoint_ready_; }

 private:
  // Implemented by Trainer. There is a slot for each batch shape, with its own arrays. Each batch is copied into the
  // arrays of its slot.
  virtual void hold(std::size_t slot, std::span<const Array> arrays) = 0;
  virtual void release(std::size_t slot) noexcept = 0;
  virtual Array loss_of(std::size_t slot) = 0;
  virtual void gradient_of(std::size_t slot, const UseGradient& use) = 0;

  struct Slot;
  struct Recordings;
  Slot& slot_for(std::span<const Array> batch, double weight);
  void fill(Slot& slot, std::span<const Array> batch);
  void work(Slot& slot, bool update);
  void run(Slot& slot, bool update);
  void run_recorded(Slot& slot, bool update);
  void drop_recordings();
  /// Returns the text for not_recorded() after a step that differs from its recording. Adds a warning if there were
  /// replays since the last comparison.
  std::string differs(const std::string& difference, std::uint64_t unchecked) const;
  void note_loss(Slot& slot, const Array& loss, const Array& finite);
  bool overlaps() const;
  void start_bucket(std::size_t number);
  Array sum_over_ranks(std::vector<Array> rows, const Array& loss, const Array& finite);
  void take_numbers(const std::map<std::string, std::string>& texts);
  void share(const std::vector<std::pair<std::string, Array>>& named, const char* what);
  std::map<std::string, std::string> load_file(const std::string& path);
  std::vector<std::pair<std::string, Array>> kept();

  AnyOptimiser optimiser_;
  const TrainerOptions options_;
  const std::uint64_t accumulate_;
  detail::Parts parts_, narrow_;
  detail::Precision precision_;
  Device device_;
  bool one_device_ = true;
  Exchange* const ranks_;  ///< null if this process trains alone

  std::uint64_t steps_ = 0, replays_ = 0, uses_ = 0;
  std::uint64_t updates_before_ = 0;  ///< updates of the optimiser before this trainer's first step
  DataPosition position_;
  std::uint64_t position_at_ = 0;  ///< value of steps_ at the last set_position()
  std::uint64_t summed_from_ = 0;  ///< value of steps_ at the last mean_loss()

  // Arrays with one element, on the device.
  Array counter_;                 ///< u64: number of the running step, from 1
  Array first_nonfinite_;         ///< u64: 0, or (number of the first non-finite step) * slots_.size() + its slot
  std::vector<Array> exchanged_;  ///< buffers for gradients; only with ranks
  Array exchanged_loss_;          ///< loss, and number of ranks that found non-finite numbers; only with ranks
  StepFlags flags_, flags_to_send_;
  std::optional<detail::GradientBuckets> buckets_;  ///< of `exchanged_`
  detail::AdjointReady adjoint_ready_;              ///< set in a step whose buckets are sent during the backward pass
  std::size_t started_ = 0;                         ///< buckets of this step that are being exchanged
  bool broken_ = false;                             ///< a step failed after some of its buckets were sent
  Array sum_;                                       ///< sum of losses since the last mean_loss()
  Array left_out_;             ///< u64: number of non-finite losses since the last mean_loss(); only with a loss scale
  std::vector<Array> summed_;  ///< sums of the gradients for the next update; only with accumulate
  std::vector<detail::Owner<Slot>> slots_;
  detail::Owner<Recordings> recorded_;
  std::string not_recorded_;
  std::uint64_t dropped_ = 0;  ///< number of slots that were evicted
  bool wrote_ = false;         ///< this step has already written memory, so it cannot be restarted
};

}  // namespace tessera
