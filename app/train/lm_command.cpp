// SPDX-License-Identifier: Apache-2.0
// `tessera train lm`: trains a language model on a text file and writes a GGUF file.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <numbers>

#include "arguments.h"
#include "interrupts.h"
#include "terminal.h"
#include "tessera/base/os/input_file.h"
#include "tessera/base/printable.h"
#include "tessera/base/sha256.h"
#include "tessera/llm/gguf_values.h"
#include "tessera/llm/language_model.h"
#include "train/lm_model.h"
#include "train/lm_ngrams.h"
#include "train/run.h"
#include "train/train_commands.h"

namespace tessera::app {
namespace {

constexpr std::int64_t evaluation_tokens = 8192;  // number of tokens for regular evaluations
constexpr const char* shape_name = "shape";
const LmShape default_shape{};
const TrainDefaults lm_defaults{.steps = 900,
                                .batch = 16,
                                .lr = 3e-3,
                                .variant_name = shape_name,
                                .variant = "",
                                .epochs = false,
                                .batch_is = "Windows of the text per step",
                                .out_is =
                                    "Write the model to this file (GGUF), and the checkpoint for --resume to the same "
                                    "name with .safetensors (default: named after the text, in this folder)"};

struct LmArguments : TrainOptions {
  std::string text, type = "f16", prompt;
  std::optional<std::int64_t> vocabulary, layers, width, heads, key_heads, hidden, context;
  std::optional<double> dropout;
};

std::string read_text(const std::string& name) {
  const InputFile file(name);
  std::string text(file.size(), '\0');
  file.read(0, std::as_writable_bytes(std::span(text)));
  return text;
}

std::filesystem::path checkpoint_of(const std::filesystem::path& model) {
  auto out = model;
  return out.replace_extension(".safetensors");
}

/// Returns the path of the model to write. Throws if the name is not suitable.
std::filesystem::path model_file(const LmArguments& o) {
  std::filesystem::path out = o.out;
  if (o.out.empty()) {
    out = o.resume.empty() ? std::filesystem::path(o.text).filename() : std::filesystem::path(o.resume);
    out.replace_extension(".gguf");
  }
  const auto refuse = [&](std::string wrong, std::string remedy) {
    fail<ArgumentError>({.operation = "tessera train lm",
                         .with = {{"--out", out.string()}},
                         .wrong = std::move(wrong),
                         .remedy = std::move(remedy)});
  };
  if (out.extension() == ".safetensors")
    refuse("the model is written as a GGUF file", "Choose a name that ends in .gguf");
  std::error_code ignored;
  if (std::filesystem::equivalent(out, o.text, ignored))
    refuse("this is the text file", "Choose another name for the model");
  if (o.out.empty() && o.resume.empty())
    for (const auto& file : {out, checkpoint_of(out)})
      if (std::filesystem::exists(file, ignored))
        refuse(fmt::format("{} already exists", file.string()),
               fmt::format("Continue with --resume {}, or set --out, which replaces an existing file",
                           checkpoint_of(out).string()));
  return out;
}

/// Returns the sizes of the network: the saved ones if a run is resumed, otherwise the options or the defaults.
LmShape shape_of(const LmArguments& o, const TrainSettings& settings) {
  const bool saved = settings.file.has_value();
  LmShape shape = saved ? lm_shape_of(settings.variant, o.resume) : default_shape;
  const auto take = [&](const char* option, const auto& given, auto& size) {
    if (!given || static_cast<std::decay_t<decltype(size)>>(*given) == size) return;
    if (saved)
      fail<ArgumentError>({.operation = "resume",
                           .with = {{"file", o.resume}, {option, fmt::format("{}", *given)}},
                           .wrong = fmt::format("the model was trained with {} {}", option, size),
                           .remedy = "Leave the option out, or start over without --resume"});
    size = *given;
  };
  take("--vocabulary", o.vocabulary, shape.vocabulary), take("--layers", o.layers, shape.layers);
  take("--width", o.width, shape.width), take("--heads", o.heads, shape.heads);
  take("--key-heads", o.key_heads, shape.key_heads), take("--hidden", o.hidden, shape.hidden);
  take("--ctx", o.context, shape.context), take("--dropout", o.dropout, shape.dropout);
  return shape;
}

/// The text as tokens, and the losses of n-gram models as baselines.
struct Corpus {
  std::string hash;
  TrainedTokenizer trained;
  std::optional<Tokenizer> tokenizer;
  TokenStream training, held_out;
  double bigram = 0, trigram = 0;  ///< nats per token
  std::string prompt;              ///< prompt of the sample at the end; may be empty
};

Corpus corpus_of(const LmArguments& o, const std::string& text, const LmShape& shape, Progress& progress) {
  Corpus c;
  c.hash = sha256(text);
  progress.update("learning the vocabulary");
  const SplitText split = split_text(text);
  c.trained = train_tokenizer(split.training, {.vocabulary = shape.vocabulary});
  c.tokenizer = c.trained.tokenizer();
  progress.update("tokenizing the text");
  c.training = token_stream(split.training, *c.tokenizer);
  c.held_out = token_stream(split.held_out, *c.tokenizer);
  const auto needed = static_cast<std::size_t>(shape.context);
  if (c.training.tokens.size() <= needed || split.held_out.empty()) {
    const double each = static_cast<double>(c.training.bytes) / static_cast<double>(c.training.tokens.size());
    const double bytes = std::max(8000.0, 1.1 * static_cast<double>(needed + 1) * std::max(each, 4.0));
    fail<ArgumentError>(
        {.operation = "tessera train lm",
         .with = {{"--text", o.text}, {"bytes", std::to_string(text.size())}},
         .wrong = fmt::format("the text is too short: it has {} tokens to train on, but a window has {}",
                              c.training.tokens.size(), needed + 1),
         .remedy = fmt::format("Use a text of at least {} bytes, and of a million bytes for good results",
                               grouped(static_cast<std::uint64_t>(bytes)))});
  }
  const auto words = std::find_if(split.held_out.begin(), split.held_out.end(),
                                  [](std::string_view part) { return part.find(' ') != std::string_view::npos; });
  if (!o.prompt.empty()) {
    c.prompt = o.prompt;
  } else if (words != split.held_out.end()) {
    std::size_t end = 0;
    for (int i = 0; i < 3 && end != std::string_view::npos; ++i) end = words->find_first_of(" \n", end + 1);
    c.prompt = words->substr(0, std::min<std::size_t>(end, 60));
  }
  if (const std::size_t taken = c.tokenizer->encode(c.prompt).size(); taken >= needed) {
    if (!o.prompt.empty())
      fail<ArgumentError>({.operation = "tessera train lm",
                           .with = {{"tokens of --prompt", std::to_string(taken)}},
                           .wrong = fmt::format("the prompt fills the model's context of {} tokens", needed),
                           .remedy = "Use a shorter prompt, or a larger --ctx"});
    c.prompt.clear();
  }
  progress.step(fmt::format(
      "text: {} bytes; {} training tokens, {} held-out tokens, vocabulary of {} tokens{}", grouped(text.size()),
      grouped(c.training.tokens.size()), grouped(c.held_out.tokens.size()), grouped(c.trained.tokens.size()),
      static_cast<std::int64_t>(c.trained.tokens.size()) < shape.vocabulary
          ? fmt::format(" ({} requested, but the text has too few frequent pairs)", shape.vocabulary)
          : ""));
  progress.update("counting bigrams and trigrams");
  const auto loss = [&](int order) {
    const NgramModel model(c.training.tokens, order, static_cast<std::int64_t>(c.trained.tokens.size()));
    return model.loss(c.held_out.tokens) / static_cast<double>(c.held_out.tokens.size() - 1);
  };
  c.bigram = loss(2), c.trigram = loss(3);
  progress.step(fmt::format("baselines: {:.4f} nats per held-out token with a bigram model, {:.4f} with a 3-gram model",
                            c.bigram, c.trigram));
  return c;
}

GgmlType type_of(const std::string& name) {
  return name == "f32" ? GgmlType::f32 : name == "q8_0" ? GgmlType::q8_0 : GgmlType::f16;
}

/// Keeps a copy of the weights with the lowest held-out loss so far and writes them to the model's file.
class Best {
 public:
  Best(LmLearner& learner, std::function<void()> write) : learner_(learner), write_(std::move(write)) {}
  void offer(double loss) {
    if (!values_.empty() && !(loss < loss_)) return;
    values_ = learner_.trainer().snapshot(), loss_ = loss;
    write_();
  }
  void take() { learner_.trainer().restore(values_); }
  Learner::ExtraState extra_state() const {
    Learner::ExtraState out{.texts = {{"best_loss", fmt::format("{}", loss_)}}};
    for (std::size_t i = 0; i < values_.size(); ++i) out.arrays.emplace_back(fmt::format("best.{}", i), values_[i]);
    return out;
  }
  void load(const SafetensorsFile& file) {
    values_.clear();
    for (const Array& now : learner_.trainer().snapshot()) {
      values_.push_back(file.load(fmt::format("beside.best.{}", values_.size())));
      if (values_.back().shape() != now.shape() || values_.back().dtype() != now.dtype()) refuse(file);
    }
    const auto loss = file.metadata().find("best_loss");
    if (loss == file.metadata().end()) refuse(file);
    const auto [end, error] = std::from_chars(loss->second.data(), loss->second.data() + loss->second.size(), loss_);
    if (error != std::errc{}) refuse(file);
  }

 private:
  [[noreturn]] static void refuse(const SafetensorsFile& file) {
    fail<FormatError>({.operation = "resume",
                       .with = {{"file", file.name()}},
                       .wrong = "the best weights so far are missing from the file"});
  }
  LmLearner& learner_;
  std::function<void()> write_;
  double loss_ = 0;
  std::vector<Array> values_;
};

std::string sample_of(const std::filesystem::path& file, const std::string& prompt, std::uint64_t seed,
                      std::int64_t context) {
  const LanguageModel model = LanguageModel::load(file.string());
  const GenerateResult made = model.generate(
      prompt, {.sampling = {.temperature = 0.8, .seed = seed}, .max_tokens = std::min<std::int64_t>(context / 2, 100)});
  return prompt + made.text;
}

int report_lm(const LmArguments& o, const TrainSettings& settings, const TrainDevice& device, const Corpus& c,
              const LmShape& shape, const LmLearner& learner, const Trained& trained,
              const std::filesystem::path& file) {
  const double tokens = static_cast<double>(c.held_out.tokens.size() - 1);
  const double bits = trained.held_out.loss * tokens / static_cast<double>(c.held_out.bytes) / std::numbers::ln2;
  const std::string sample = c.prompt.empty() ? "" : sample_of(file, c.prompt, settings.seed, shape.context);
  TrainReport out{.settings = settings,
                  .options = o,
                  .trained = trained,
                  .parameters = learner.parameter_count(),
                  .network = fmt::format("Llama with {} and width {}, {} tokens", count_noun(shape.layers, "layer"),
                                         shape.width, grouped(c.trained.tokens.size())),
                  .why_device = device.why(),
                  .held_out_of = "tokens that were not used in training",
                  .parts = static_cast<std::uint64_t>(shape.context),
                  .part = "token"};
  const Style style(output());
  out.held_out = fmt::format(
      "{} nats per token (bigram model {:.4f}, 3-gram model {:.4f}), {:.4f} bits per byte; {:.2f} % of {} held-out "
      "tokens are predicted correctly",
      style.strong(fmt::format("{:.4f}", trained.held_out.loss)), c.bigram, c.trigram, bits,
      100 * trained.held_out.accuracy, grouped(c.held_out.tokens.size() - 1));
  if (!sample.empty()) out.more.emplace_back("writes", sample);
  out.files.emplace_back(file.string(), "the best model, for `tessera generate`");
  nlohmann::ordered_json& json = out.json;
  json = {{"text", o.text},
          {shape_name, to_json(shape)},
          {"vocabulary", c.trained.tokens.size()},
          {"training_tokens", c.training.tokens.size()},
          {"held_out",
           {{"tokens", c.held_out.tokens.size() - 1},
            {"bytes", c.held_out.bytes},
            {"accuracy", trained.held_out.accuracy},
            {"loss", trained.held_out.loss},
            {"bits_per_byte", bits},
            {"bigram_loss", c.bigram},
            {"trigram_loss", c.trigram}}},
          {"sample", sample}};
  if (trained.steps > 0)
    json["tokens_per_second"] =
        static_cast<double>(trained.steps * settings.batch * out.parts) / std::max(trained.seconds, 1e-9);
  return report(out);
}

int run_lm(LmArguments o) {
  catch_interrupts("tessera: interrupted before the first step", !o.quiet && os::is_terminal(stderr));
  const TrainDevice device(o);
  const std::filesystem::path file = model_file(o);
  o.out = checkpoint_of(file).string();
  TrainSettings settings = settings_of("lm", o, lm_defaults);
  const LmShape shape = shape_of(o, settings);
  settings.variant = to_json(shape).dump();
  network_shape(shape, shape.vocabulary);  // report invalid sizes before reading the text
  const std::string text = read_text(o.text);
  Progress progress(o.quiet || !is_first_rank());
  const Corpus c = corpus_of(o, text, shape, progress);
  if (settings.file) {
    const auto& texts = settings.file->metadata();
    if (const auto hash = texts.find("text_sha256"); hash == texts.end() || hash->second != c.hash)
      fail<ArgumentError>({.operation = "resume",
                           .with = {{"file", o.resume}, {"--text", o.text}},
                           .wrong = "the model was trained on a different text",
                           .remedy = "Use the same text, or start over without --resume"});
  }
  const LlamaShape network = network_shape(shape, static_cast<std::int64_t>(c.trained.tokens.size()));
  const auto batch = static_cast<std::int64_t>(settings.batch);
  try {
    LmLearner learner(setup(LlamaNetwork{.shape = network}, {.seed = settings.seed}),
                      lm_learner_options(learner_options(settings)));
    progress.step(fmt::format("model: {} parameters; {} steps of {} tokens are {:.1f} passes over the text",
                              grouped(static_cast<std::uint64_t>(learner.parameter_count())), settings.steps,
                              grouped(static_cast<std::uint64_t>(batch * shape.context)),
                              static_cast<double>(settings.steps) * static_cast<double>(batch * shape.context) /
                                  static_cast<double>(c.training.tokens.size())));
    progress.clear();
    const LlamaFileOptions as{
        .type = type_of(o.type), .name = file.stem().string(), .description = "Trained by `tessera train lm`"};
    Best best(learner, [&] {
      if (is_first_rank()) write_lm(learner.model(), shape.context, c.trained, file, as);
    });
    if (settings.file) best.load(*settings.file);
    const MeasuredWindows all = measured_windows(c.held_out.tokens, shape.context, 0);
    const MeasuredWindows some = measured_windows(c.held_out.tokens, shape.context,
                                                  std::max<std::int64_t>(1, 2 * evaluation_tokens / shape.context));
    const auto measure = [&](const MeasuredWindows& w) {
      return measure_lm(learner, w, shape.context, std::min(batch, w.count));
    };
    TrainData data{.batch =
                       [&](std::uint64_t step) {
                         return lm_batch(
                             windows(c.training, c.trained.end_of_text, settings.seed, step, batch, shape.context),
                             shape.context);
                       },
                   .measure_some = [&] { return measure(some); },
                   .measure_all =
                       [&](bool interrupted) {
                         if (interrupted) best.offer(measure(some).loss);
                         best.take();
                         return measure(all);
                       },
                   .parts = static_cast<std::uint64_t>(shape.context),
                   .part = "token",
                   .tells_loss = true,
                   .on_row = [&](const CurveRow& row) { best.offer(row.held_out_loss); },
                   .extra_state =
                       [&] {
                         Learner::ExtraState out = best.extra_state();
                         out.texts["text_sha256"] = c.hash;
                         return out;
                       }};
    const Trained trained = train(learner, settings, o, data);
    if (!is_first_rank()) return exit_code(trained);
    write_lm(learner.model(), shape.context, c.trained, file, as);  // needed if the loss has not improved in this run
    return report_lm(o, settings, device, c, shape, learner, trained, file);
  } catch (const OutOfMemory& e) {
    fail<OutOfMemory>(
        {.operation = "tessera train lm",
         .with = {{"parameters and windows", fmt::format("{} layers of width {}, {} windows of {} tokens", shape.layers,
                                                         shape.width, batch, shape.context)}},
         .wrong = e.what(),
         .remedy = "Lower " + suggest_option_to_lower(network, batch, shape.context)});
  }
}

}  // namespace

Command train_lm_command(CLI::App& train) {
  auto o = std::make_shared<LmArguments>();
  CLI::App* sub = train.add_subcommand("lm", "Train a language model on a text, and write a GGUF file");
  sub->add_option("--text", o->text, "The text file; it may contain several documents, separated by <|endoftext|>")
      ->required()
      ->check(require_nonempty);
  const auto size = [&](const char* name, std::optional<std::int64_t>& to, const char* text, std::int64_t otherwise,
                        std::int64_t lowest, std::int64_t highest) {
    sub->add_option(name, to, fmt::format("{} (default: {})", text, otherwise))
        ->transform(integer_in_range(lowest, highest));
  };
  const LmShape& d = default_shape;
  size("--vocabulary", o->vocabulary, "Vocabulary size, learned from the text", d.vocabulary, 257, 1 << 20);
  size("--layers", o->layers, "Number of blocks of attention and feed-forward layers", d.layers, 1, 1000);
  size("--width", o->width, "Elements per token between layers", d.width, 2, 1 << 16);
  size("--heads", o->heads, "Attention heads; must divide the width", d.heads, 1, 1 << 10);
  size("--key-heads", o->key_heads, "Key and value heads; must divide the heads", d.key_heads, 1, 1 << 10);
  size("--hidden", o->hidden, "Width of the feed-forward layers", d.hidden, 1, 1 << 18);
  size("--ctx", o->context, "Tokens per window: the model's context length", d.context, 2, 1 << 20);
  sub->add_option("--dropout", o->dropout, "Dropout probability in training (default: 0)")->transform(number(0, 0.99));
  add_train_options(*sub, *o, lm_defaults);
  sub->add_option("--type", o->type, "Type of the matrices in the model's file: f32, f16 or q8_0 (default: f16)")
      ->check(CLI::IsMember({"f32", "f16", "q8_0"}));
  sub->add_option("--prompt", o->prompt, "Prompt of the sample at the end (default: words of the held-out text)")
      ->check(require_nonempty);
  sub->footer(
      R"(Learns a byte-pair vocabulary from the text, then trains a network of Llama's architecture. A part of the text is held
out for evaluation (a twentieth, at most a megabyte, in sections spread over the text). Bigram and trigram models serve
as baselines. The model's file contains the weights with the lowest loss on the held-out text.

Results go to standard output, progress to standard error. Files are written regularly and at the end.
Ctrl-C completes the step and writes them; the exit code is then 130, and --resume continues to the same weights. A run
with the defaults takes about eight minutes on two cores; use a text of at least a megabyte.

Examples:
  tessera train lm --text book.txt
  tessera generate book.gguf -p "Once upon a time"
  tessera train lm --text book.txt --layers 6 --width 256 --heads 8 --steps 5000 --out large.gguf
  tessera train lm --text book.txt --resume large.safetensors --steps 8000
  tessera train lm --text book.txt --type q8_0 --out small.gguf)");
  return {sub, [o] { return run_lm(*o); }};
}

}  // namespace tessera::app
