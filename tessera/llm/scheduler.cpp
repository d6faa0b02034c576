// SPDX-License-Identifier: Apache-2.0
#include "tessera/llm/scheduler.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <list>
#include <mutex>
#include <optional>
#include <thread>
#include <variant>

#include "tessera/base/log.h"
#include "tessera/base/os/fork.h"
#include "tessera/base/os/pages.h"
#include "tessera/llm/batch_decoder.h"
#include "tessera/llm/estimate.h"
#include "tessera/llm/fetched_logits.h"
#include "tessera/llm/grammar/matcher.h"
#include "tessera/llm/paged_cache.h"
#include "tessera/llm/text_builder.h"

namespace tessera {
namespace {

using ops::page_positions;
using Clock = std::chrono::steady_clock;

constexpr std::int64_t most_sequences = 4096;  // of a request
constexpr std::int64_t most_pages = std::int64_t{1} << 30;

double seconds_between(Clock::time_point a, Clock::time_point b) {
  return std::chrono::duration<double>(b - a).count();
}

/// The state of a request that other threads use. It does not own the callback, whose destructor may call the
/// scheduler.
struct Progress {
  Scheduler::RequestId id = 0;
  std::atomic<bool> cancelled = false, started = false;
};

/// A submitted request.
struct Job {
  TextRequest request;
  const std::shared_ptr<Progress> progress = std::make_shared<Progress>();

  // An exception of the callback must not end the thread. The request is cancelled instead.
  void deliver(std::int64_t sequence, const TextEvent& event) noexcept {
    try {
      if (request.on_event) request.on_event(sequence, event);
    } catch (...) {
      progress->cancelled = true;
    }
  }
  std::int64_t count() const { return std::ssize(request.prompts) * request.sequences; }
};

/// A sequence of a request that waits or runs.
struct Run {
  Run(std::shared_ptr<Job> of, std::int64_t n, const Tokenizer& tokenizer)
      : job(std::move(of)), number(n), text(tokenizer, job->request.stop, job->request.shown) {
    const TextRequest& r = job->request;
    SamplerOptions options = r.sampling;
    options.seed += static_cast<std::uint64_t>(n % r.sequences);
    sampler = Sampler(std::move(options));
    if (r.grammar) matcher.emplace(r.grammar, tokenizer);
    tokens = r.prompts[static_cast<std::size_t>(n / r.sequences)];
    prompt = std::ssize(tokens);
  }

  std::shared_ptr<Job> job;
  std::int64_t number;
  TextBuilder text;
  Sampler sampler;
  std::optional<grammar::Matcher> matcher;
  FetchedLogits logits;
  std::vector<TokenId> tokens;  ///< the prompt and the generated tokens
  std::int64_t prompt = 0;      ///< number of tokens of the prompt
  PagedCache::Sequence cached;  ///< the tokens that were read
  bool started = false;
  TextPiece piece;             ///< not delivered yet
  std::vector<float> states;   ///< of an embedding: the states of the tokens of the last step
  std::vector<double> summed;  ///< of an embedding: the sum of the states of all tokens that were read
  Clock::time_point begun, read;

  std::int64_t generated() const { return std::ssize(tokens) - prompt; }
  /// The tokens that must be read before the next one can be chosen.
  std::span<const TokenId> unread() const {
    return std::span(tokens).subspan(static_cast<std::size_t>(cached.length()));
  }
  /// Chooses the next token from `last`, the logits of the last one.
  TokenId sample(const Array& last, const Tokenizer& tokenizer) {
    logits.fetch(last, sampler, matcher.has_value() || job->request.log_probabilities >= 0);
    if (!matcher) return logits.sample(sampler, tokens);
    std::vector<float> masked;
    matcher->mask().apply(logits.all(), masked);
    const TokenId token = sampler.sample(masked, tokens);
    if (!tokenizer.is_end(token)) matcher->append(token);
    return token;
  }
  /// Adds the states of the last step. Tokens are added one after another, so that the sum does not depend on how the
  /// prompt is divided into steps.
  void add_states(std::size_t width) {
    summed.resize(width);
    for (std::size_t i = 0; i < states.size(); ++i) summed[i % width] += states[i];
  }
  /// Throws ArgumentError if the states are not finite or have no direction.
  TextEmbedding embedding() const {
    double squares = 0;
    for (const double v : summed) squares += v * v;
    if (!(squares > 0 && std::isfinite(squares)))
      fail<ArgumentError>({.operation = "embedding", .wrong = "the states of the model are zero or not finite"});
    TextEmbedding out;
    for (const double v : summed) out.values.push_back(static_cast<float>(v / std::sqrt(squares)));
    return out;
  }
  void deliver(const TextEvent& event) { job->deliver(number, event); }
  void deliver_piece() {
    if (!piece.text.empty() || !piece.tokens.empty()) deliver(std::exchange(piece, {}));
  }
  void end(StopReason reason) {
    if (started && reason != StopReason::stop_text) piece.text += text.finish();
    if (text.stopped()) reason = StopReason::stop_text;
    deliver_piece();
    const Clock::time_point now = Clock::now();
    TextEnded ended{.reason = reason, .tokens = generated()};
    if (started) {
      const bool has_read = read != Clock::time_point();
      ended.prompt_seconds = seconds_between(begun, has_read ? read : now);
      ended.generate_seconds = has_read ? seconds_between(read, now) : 0;
    }
    deliver(ended);
  }
};

/// Enough pages for all texts, but not more than half of the free memory. One text always fits.
std::int64_t default_pages(const Llama& model, const SchedulerOptions& options) {
  const std::int64_t of_text = (options.context + page_positions - 1) / page_positions;
  const std::uint64_t bytes = PagedCache::page_bytes(model.config(), options.cache_dtype);
  std::int64_t pages = of_text * std::min(options.parallel, most_pages / of_text);
  const std::uint64_t states =
      2 * RecurrentStates::slot_bytes(model.config()) * static_cast<std::uint64_t>(options.parallel);
  const std::vector<Device>& layers = model.layer_devices();
  for (const Device device : layers) {
    const auto part = static_cast<std::uint64_t>(std::ranges::count(layers, device));
    const std::uint64_t on_device = bytes * part / layers.size(), half = free_memory(device) / 2;
    const std::uint64_t room = half - std::min(half, states * part / layers.size());
    pages = std::min(pages, static_cast<std::int64_t>(room / std::max<std::uint64_t>(on_device, 1)));
  }
  return std::max(pages, of_text);
}

}  // namespace

struct Scheduler::State {
  State(const LanguageModel& m, const SchedulerOptions& o)
      : model(m),
        options(o),
        cache(m.model().config(), o.pages, m.model().layer_devices(), o.context, o.cache_dtype),
        decoder(m.model(), cache) {}

  void check(const TextRequest& request) const;
  void run();
  void take_submitted();
  void end_cancelled();
  using Ending = std::variant<StopReason, std::string>;  ///< why a sequence ends, or an error
  void end(std::list<Run>& list, std::list<Run>::iterator run, const Ending& how);
  void admit();
  bool start(Run& run);
  bool reserve(std::list<Run>::iterator run);
  std::vector<std::list<Run>::iterator> plan(std::vector<SequencePiece>& pieces);
  void fit_memory(std::int64_t tokens);
  void step();
  std::optional<StopReason> choose(Run& run, const Array& logits);
  std::optional<StopReason> embed(Run& run);
  bool reduce_batch();
  void fail_running(const std::string& message);
  void publish();
  std::int64_t queued() const;
  void cancel_all();
  std::int64_t most_tokens() const { return std::min(options.context, cache.pages() * page_positions); }

  const LanguageModel& model;
  SchedulerOptions options;

  // Used by the thread only. Sequences that were admitted earlier come first.
  PagedCache cache;
  BatchDecoder decoder;
  std::list<Run> waiting, running;
  SchedulerStatistics counted;
  std::int64_t step_tokens = 0;  ///< of the last step with more tokens than `parallel`

  mutable std::mutex mutex;  ///< protects the members below
  std::condition_variable changed;
  std::vector<std::shared_ptr<Job>> submitted;
  std::vector<std::weak_ptr<Progress>> requests;  ///< all that have not ended
  bool stopping = false, cancels = false;
  RequestId next_id = 1;
  SchedulerStatistics statistics;

  const std::uint32_t generation = os::fork_generation();
  std::thread thread;
};

void Scheduler::State::check(const TextRequest& request) const {
  if (request.prompts.empty()) fail<ArgumentError>({.operation = "generate", .wrong = "there is no prompt"});
  if (request.sequences < 1 || request.sequences > most_sequences / std::ssize(request.prompts))
    fail<ArgumentError>({.operation = "generate",
                         .with = {{"sequences", std::to_string(request.sequences)},
                                  {"prompts", std::to_string(request.prompts.size())}},
                         .wrong = fmt::format("a request must have between 1 and {} sequences", most_sequences)});
  const LlamaConfig& config = model.model().config();
  const auto check_token = [&](TokenId id, const char* what) {
    if (id < 0 || id >= config.vocabulary)
      fail<ArgumentError>({.operation = "generate",
                           .with = {{"token", std::to_string(id)}, {"tokens", std::to_string(config.vocabulary)}},
                           .wrong = fmt::format("{} a token that the model does not have", what)});
  };
  for (const std::vector<TokenId>& prompt : request.prompts) {
    require_prompt(std::ssize(prompt), options.context, config.context_length);
    for (const TokenId id : prompt) check_token(id, "the prompt contains");
  }
  require_generate({.sampling = request.sampling, .max_tokens = request.max_tokens, .stop = request.stop});
  for (const auto& [id, bias] : request.sampling.logit_bias) check_token(id, "there is a bias for");
}

void Scheduler::State::take_submitted() {
  std::vector<std::shared_ptr<Job>> taken;
  {
    const std::lock_guard lock(mutex);
    taken.swap(submitted);
  }
  for (const std::shared_ptr<Job>& job : taken) {
    std::int64_t n = 0;
    try {
      for (; n < job->count(); ++n) waiting.emplace_back(job, n, model.tokenizer());
    } catch (const std::exception& e) {
      for (; n < job->count(); ++n) job->deliver(n, TextFailed{e.what()});
    }
  }
}

void Scheduler::State::end_cancelled() {
  for (std::list<Run>* list : {&waiting, &running})
    for (auto run = list->begin(); run != list->end();) {
      const auto next = std::next(run);
      if (run->job->progress->cancelled) end(*list, run, StopReason::cancelled);
      run = next;
    }
}

/// Releases the pages of a sequence, and delivers its last event, after which statistics() does not contain it.
void Scheduler::State::end(std::list<Run>& list, std::list<Run>::iterator run, const Ending& how) {
  std::list<Run> ended;
  ended.splice(ended.end(), list, run);
  if (const auto* error = std::get_if<std::string>(&how)) {
    cache.discard(run->cached);  // its contents may be wrong
    publish();
    run->deliver_piece();
    run->deliver(TextFailed{*error});
  } else {
    run->cached = {};
    publish();
    run->end(std::get<StopReason>(how));
  }
}

/// Takes pages for all tokens of a sequence that waits. Returns false if there are too few.
bool Scheduler::State::start(Run& run) {
  run.cached = cache.open(run.job->request.salt);
  const bool shares = options.shares_prefixes && !run.job->request.embeds;  // an embedding needs all states
  const std::int64_t shared = shares ? cache.share(run.cached, run.tokens) : 0;
  run.summed.clear();
  if (!cache.reserve(run.cached, std::ssize(run.tokens) - shared)) {
    run.cached = {};
    return false;
  }
  if (!std::exchange(run.started, true)) {
    counted.cached_tokens += shared;
    run.begun = Clock::now();
    run.job->progress->started = true;
    run.deliver(TextStarted{run.prompt, shared});
  }
  return true;
}

/// Sequences start in order. One whose prompt is being read by another sequence waits, to use the pages of that one.
void Scheduler::State::admit() {
  const auto prompt_of = [](const Run& run) { return run.number / run.job->request.sequences; };
  for (auto next = waiting.begin(); next != waiting.end() && std::ssize(running) < options.parallel;) {
    const auto run = next++;
    const auto reads_the_same = [&](const Run& other) {
      return other.job == run->job && prompt_of(other) == prompt_of(*run) && other.cached.length() < other.prompt;
    };
    if (options.shares_prefixes && std::ranges::any_of(running, reads_the_same)) continue;
    bool starts = false;
    std::string error;
    try {
      starts = start(*run);
    } catch (const std::exception& e) {
      error = e.what();
    }
    if (starts) {
      running.splice(running.end(), waiting, run);
    } else if (!error.empty() || running.empty()) {
      if (error.empty())
        error = fmt::format("there is memory for {} tokens, but the text has {}", cache.pages() * page_positions,
                            run->tokens.size());
      end(waiting, run, error);
    } else {
      return;
    }
  }
}

/// Takes pages for the next token of a running sequence. If there are too few, the sequence that was admitted last
/// waits, and is read again later. Returns false if that is the sequence itself.
bool Scheduler::State::reserve(std::list<Run>::iterator run) {
  while (!cache.reserve(run->cached, 1)) {
    const auto last = std::prev(running.end());
    last->cached = {};
    ++counted.preempted;
    waiting.splice(waiting.begin(), running, last);
    if (last == run) return false;
  }
  return true;
}

/// Chooses the tokens of the next step: one for each sequence that generates, then parts of prompts, oldest first.
std::vector<std::list<Run>::iterator> Scheduler::State::plan(std::vector<SequencePiece>& pieces) {
  std::vector<std::list<Run>::iterator> runs;
  std::int64_t room = options.batch;
  const auto add = [&](std::list<Run>::iterator run) {
    const std::span<const TokenId> unread = run->unread();
    const auto count = std::min(unread.size(), static_cast<std::size_t>(room));
    const bool embeds = run->job->request.embeds;
    pieces.push_back(
        {&run->cached, unread.first(count), !embeds && count == unread.size(), embeds ? &run->states : nullptr});
    runs.push_back(run);
    room -= static_cast<std::int64_t>(count);
  };
  for (auto run = running.begin(); run != running.end() && room > 0; ++run) {
    if (run->unread().size() != 1) continue;
    if (!reserve(run)) break;  // it was the last one
    add(run);
  }
  for (auto run = running.begin(); run != running.end() && room > 0; ++run)
    if (run->unread().size() > 1) add(run);
  return runs;
}

/// Chooses the next token of a sequence. Returns the reason if its text has ended.
std::optional<StopReason> Scheduler::State::choose(Run& run, const Array& logits) {
  const TextRequest& request = run.job->request;
  if (run.generated() == 0) run.read = Clock::now();
  if (request.max_tokens == 0) return StopReason::max_tokens;
  if (std::ssize(run.tokens) >= most_tokens()) return StopReason::context_full;
  if (run.matcher && run.matcher->is_complete() && model.tokenizer().ends().empty()) return StopReason::end_token;
  const TokenId token = run.sample(logits, model.tokenizer());
  if (model.tokenizer().is_end(token)) return StopReason::end_token;
  run.tokens.push_back(token);
  run.piece.tokens.push_back(token);
  if (request.log_probabilities >= 0)
    run.piece.log_probabilities.push_back(log_probabilities(run.logits.all(), token, request.log_probabilities));
  ++counted.generated_tokens;
  run.piece.text += run.text.push(token);
  if (run.text.stopped()) return StopReason::stop_text;
  if (run.generated() >= request.max_tokens) return StopReason::max_tokens;
  if (std::ssize(run.tokens) >= most_tokens()) return StopReason::context_full;
  if (!run.piece.text.empty()) run.deliver_piece();
  return {};
}

/// Adds the states of a step to an embedding, and delivers it after the last token.
std::optional<StopReason> Scheduler::State::embed(Run& run) {
  run.add_states(static_cast<std::size_t>(model.model().config().width));
  if (!run.unread().empty()) return {};
  run.read = Clock::now();
  run.deliver(run.embedding());
  return StopReason::max_tokens;
}

/// Frees the memory of steps with other numbers of tokens if it is much, because MemoryPool uses a block only for sizes
/// that are at most a fifth smaller.
void Scheduler::State::fit_memory(std::int64_t tokens) {
  if (tokens <= options.parallel || (tokens <= step_tokens && 5 * tokens >= 4 * step_tokens)) return;
  step_tokens = tokens;
  bool frees = false;
  const std::vector<Device>& layers = model.model().layer_devices();
  for (std::size_t i = 0; i < layers.size(); ++i)
    if ((i == 0 || layers[i] != layers[i - 1]) &&
        memory_stats(layers[i]).cached_bytes > model.model().weight_bytes(layers[i]) / 64)
      trim(layers[i]), frees = true;
  if (frees) os::trim_heap();
}

void Scheduler::State::step() {
  std::vector<SequencePiece> pieces;
  const std::vector<std::list<Run>::iterator> runs = plan(pieces);
  if (pieces.empty()) return;
  std::int64_t tokens = 0;
  for (const SequencePiece& p : pieces) tokens += std::ssize(p.tokens);
  fit_memory(tokens);
  const Array logits = decoder.takes(pieces) ? decoder.step(pieces) : model.model().forward(pieces, cache);
  std::int64_t row = 0;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    Run& run = *runs[i];
    if (run.generated() == 0 || pieces[i].tokens.size() > 1) counted.read_tokens += std::ssize(pieces[i].tokens);
    const bool embeds = run.job->request.embeds;
    if (!pieces[i].logits && !embeds) continue;
    std::optional<Ending> ending;
    try {
      if (const auto reason = embeds ? embed(run) : choose(run, logits.slice(0, row, row + 1))) ending = *reason;
    } catch (const ArgumentError& e) {  // logits that are not finite
      ending = std::string(e.what());
    }
    if (!embeds) ++row;
    counted.failed_steps = 0;  // the device has computed the logits
    if (ending) end(running, runs[i], *ending);
  }
}

/// A step without enough memory is repeated with fewer tokens, if it can be. Returns false otherwise.
bool Scheduler::State::reduce_batch() {
  if (options.batch <= std::max<std::int64_t>(options.parallel, 32)) return false;
  options.batch = std::max(options.batch / 2, options.parallel);
  for (const Device device : model.model().layer_devices()) trim(device);
  logging::warn(
      fmt::format("a step of the model does not fit in memory; steps have at most {} tokens now", options.batch));
  return true;
}

/// Ends all sequences that run. The contents of the cache may be wrong after an error of a device.
void Scheduler::State::fail_running(const std::string& message) {
  while (!running.empty()) end(running, running.begin(), message);
  cache.forget();
}

void Scheduler::State::publish() {
  counted.running = std::ssize(running);
  counted.pages = cache.pages(), counted.used_pages = cache.used_pages(), counted.shared_pages = cache.shared_pages();
  const std::lock_guard lock(mutex);
  statistics = counted;
  std::erase_if(requests, [](const std::weak_ptr<Progress>& one) { return one.expired(); });
}

void Scheduler::State::run() {
  const DeviceScope scope(model.device());
  while (true) {
    {
      std::unique_lock lock(mutex);
      changed.wait(lock,
                   [&] { return stopping || cancels || !submitted.empty() || !waiting.empty() || !running.empty(); });
      if (stopping && submitted.empty() && waiting.empty() && running.empty()) return;
      cancels = false;
    }
    try {
      take_submitted();
      end_cancelled();
      admit();
      publish();
      step();
    } catch (const OutOfMemory& e) {
      if (!reduce_batch()) fail_running(e.what());
    } catch (const std::exception& e) {
      if (dynamic_cast<const DeviceError*>(&e) != nullptr) ++counted.failed_steps;
      fail_running(e.what());
    }
    publish();
  }
}

/// Number of requests of which no sequence has started. Requires the lock.
std::int64_t Scheduler::State::queued() const {
  return std::ranges::count_if(requests, [](const std::weak_ptr<Progress>& weak) {
    const std::shared_ptr<Progress> one = weak.lock();
    return one && !one->started && !one->cancelled;
  });
}

/// Requires the lock.
void Scheduler::State::cancel_all() {
  for (const std::weak_ptr<Progress>& weak : requests)
    if (const std::shared_ptr<Progress> one = weak.lock()) one->cancelled = true;
  cancels = true;
}

Scheduler::Scheduler(const LanguageModel& model, SchedulerOptions options) {
  const std::int64_t trained = model.model().config().context_length;
  if (options.context == 0) options.context = trained;
  require_context("generate", options.context, trained);
  for (const auto& [name, value] :
       {std::pair("context", options.context), std::pair("batch", options.batch),
        std::pair("parallel", options.parallel), std::pair("pages", options.pages == 0 ? 1 : options.pages)})
    if (value < 1 || value > most_pages)
      fail<ArgumentError>({.operation = "Scheduler",
                           .with = {{name, std::to_string(value)}},
                           .wrong = fmt::format("{} must be between 1 and {}", name, most_pages)});
  if (options.pages == 0) options.pages = default_pages(model.model(), options);
  options.batch = std::max(options.batch, options.parallel);
  // Otherwise, a text would wait for another one with the same prompt, whose states it could not use.
  if (model.model().config().is_recurrent()) options.shares_prefixes = false;
  state_ = std::make_unique<State>(model, options);
  state_->thread = std::thread([state = state_.get()] { state->run(); });
}

Scheduler::~Scheduler() {
  if (state_->generation != os::fork_generation()) {  // the thread belongs to the parent
    state_->thread.detach();
    static_cast<void>(state_.release());
    return;
  }
  {
    const std::lock_guard lock(state_->mutex);
    state_->stopping = true;
    state_->cancel_all();
  }
  state_->changed.notify_all();
  state_->thread.join();
}

Scheduler::RequestId Scheduler::submit(TextRequest request) {
  state_->check(request);
  auto job = std::make_shared<Job>();
  job->request = std::move(request);
  const std::lock_guard lock(state_->mutex);
  const std::int64_t idle = std::max<std::int64_t>(state_->options.parallel - state_->statistics.running, 0);
  const std::int64_t queued = state_->queued();
  if (state_->stopping || queued >= static_cast<std::int64_t>(state_->options.queue) + idle)
    fail<QueueFull>({.operation = "generate",
                     .with = {{"waiting requests", std::to_string(queued)}},
                     .wrong = state_->stopping ? "the scheduler is being destroyed" : "the queue is full",
                     .remedy = state_->stopping ? "" : "Try again later"});
  const RequestId id = job->progress->id = state_->next_id++;
  state_->requests.push_back(job->progress);
  state_->submitted.push_back(std::move(job));
  state_->changed.notify_all();
  return id;
}

void Scheduler::cancel(RequestId id) {
  const std::lock_guard lock(state_->mutex);
  for (const std::weak_ptr<Progress>& weak : state_->requests)
    if (const std::shared_ptr<Progress> one = weak.lock(); one && one->id == id) one->cancelled = true;
  state_->cancels = true;
  state_->changed.notify_all();
}

void Scheduler::cancel_all() {
  const std::lock_guard lock(state_->mutex);
  state_->cancel_all();
  state_->changed.notify_all();
}

std::int64_t Scheduler::context() const { return state_->options.context; }

SchedulerStatistics Scheduler::statistics() const {
  const std::lock_guard lock(state_->mutex);
  SchedulerStatistics now = state_->statistics;
  now.queued = state_->queued();
  return now;
}

}  // namespace tessera
