// SPDX-License-Identifier: Apache-2.0
// Fuzz tests for model files, folders and vocabularies with random faults. Each file must either load or throw a
// Tessera error, and memory use must be bounded by the size of the file. There are 2,000 cases of each kind, or a
// million with TESSERA_TEST_LONG=1 (preferably with a sanitizer). TESSERA_FUZZ_CASES sets the number.
#include <gtest/gtest.h>
#include <malloc.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <new>
#include <nlohmann/json.hpp>
#include <random>
#include <sstream>
#include <variant>

#include "tessera/base/error.h"
#include "tessera/base/log.h"
#include "tessera/base/test_seed.h"
#include "tessera/device/placement/dry_run.h"
#include "tessera/llm/gguf_values.h"
#include "tessera/llm/gguf_writer.h"
#include "tessera/llm/inspect.h"
#include "tessera/llm/llama.h"
#include "tessera/llm/tokenizer.h"
#include "tests/embedding/embedding_folder.h"
#include "tests/hub/model_folder.h"
#include "tests/llm/architecture_values.h"
#include "tests/support/folder.h"

namespace {
std::atomic<std::int64_t> live = 0, most = 0;
void* counted_malloc(std::size_t size) {
  void* const p = std::malloc(size);
  if (p == nullptr) throw std::bad_alloc();
  const auto now = live += static_cast<std::int64_t>(::malloc_usable_size(p));
  for (std::int64_t m = most; now > m && !most.compare_exchange_weak(m, now);) {}
  return p;
}
void counted_free(void* p) {
  if (p != nullptr) live -= static_cast<std::int64_t>(::malloc_usable_size(p));
  std::free(p);
}
}  // namespace

void* operator new(std::size_t size) { return counted_malloc(size); }
void* operator new[](std::size_t size) { return counted_malloc(size); }
// Replaced as well, because std::stable_sort allocates its buffer with nothrow.
void* operator new(std::size_t size, const std::nothrow_t&) noexcept try {
  return counted_malloc(size);
} catch (const std::bad_alloc&) {
  return nullptr;
}
void* operator new[](std::size_t size, const std::nothrow_t&) noexcept try {
  return counted_malloc(size);
} catch (const std::bad_alloc&) {
  return nullptr;
}
void operator delete(void* p) noexcept { counted_free(p); }
void operator delete[](void* p) noexcept { counted_free(p); }
void operator delete(void* p, std::size_t) noexcept { counted_free(p); }
void operator delete[](void* p, std::size_t) noexcept { counted_free(p); }

namespace tessera {
namespace {

using nlohmann::json;
using Random = std::mt19937_64;

std::size_t cases() {
  if (const char* many = std::getenv("TESSERA_FUZZ_CASES")) return std::strtoull(many, nullptr, 10);
  return std::getenv("TESSERA_TEST_LONG") != nullptr ? 1'000'000 : 2'000;
}

template <class T>
const T& one_of(Random& random, const std::vector<T>& all) {
  return all[random() % all.size()];
}

/// Limits the memory that may be used for a file to four times its size plus 64 MiB.
class Bounded {
 public:
  explicit Bounded(std::size_t size)
      : before_(live), bound_(static_cast<std::int64_t>(size) * 4 + (std::int64_t{64} << 20)) {
    most = before_;
  }
  ~Bounded() { EXPECT_LE(most - before_, bound_); }

 private:
  std::int64_t before_, bound_;
};

// --- Files ----------------------------------------------------------------------------------------------------------

struct Tensor {
  std::string name;
  std::vector<std::uint64_t> dims;
  GgmlType type;
};
struct Model {
  std::vector<std::pair<std::string, GgufValue>> keys;
  std::vector<Tensor> tensors;
};

void add_vocabulary(Model& m, std::size_t size) {
  std::vector<std::string> tokens;
  for (std::size_t i = 0; i < size; ++i)
    tokens.push_back(i < 256 ? byte_level_text(std::string(1, static_cast<char>(i))) : "<|" + std::to_string(i) + "|>");
  std::vector<std::int32_t> types(size, 1);
  for (std::size_t i = 256; i < size; ++i) types[i] = 3;
  m.keys.emplace_back("tokenizer.ggml.model", std::string("gpt2"));
  m.keys.emplace_back("tokenizer.ggml.pre", std::string("llama-bpe"));
  m.keys.emplace_back("tokenizer.ggml.tokens", GgufArray{tokens});
  m.keys.emplace_back("tokenizer.ggml.token_type", GgufArray{types});
  m.keys.emplace_back("tokenizer.ggml.merges", GgufArray{std::vector<std::string>{"a b", "c d"}});
  m.keys.emplace_back("tokenizer.ggml.eos_token_id", std::uint32_t{1});
  m.keys.emplace_back("tokenizer.chat_template", std::string("{% for m in messages %}{{ m.content }}{% endfor %}"));
}

/// A WordPiece or Unigram vocabulary.
void add_embedding_vocabulary(Model& m, std::size_t size, bool is_unigram) {
  std::vector<std::string> tokens = {"[PAD]", "[UNK]", "[CLS]", "[SEP]"};
  for (std::size_t i = tokens.size(); i < size; ++i)
    tokens.push_back((i % 2 == 0 ? "\u2581" : "") + std::string(1 + i / 52, static_cast<char>('a' + i / 2 % 26)));
  std::vector<std::int32_t> types(size, 1);
  std::fill_n(types.begin(), 4, 3);
  m.keys.emplace_back("tokenizer.ggml.model", std::string(is_unigram ? "t5" : "bert"));
  m.keys.emplace_back("tokenizer.ggml.tokens", GgufArray{tokens});
  m.keys.emplace_back("tokenizer.ggml.token_type", GgufArray{types});
  m.keys.emplace_back("tokenizer.ggml.unknown_token_id", std::uint32_t{1});
  m.keys.emplace_back("tokenizer.ggml.eos_token_id", std::uint32_t{3});
  if (!is_unigram) return;
  m.keys.emplace_back("tokenizer.ggml.scores", GgufArray{std::vector<float>(size, -1.5f)});
  // "a" becomes "b": the root refers to unit 'a' ^ 2, and this unit to the value at 2 ^ 'a' ^ 8.
  std::vector<std::uint8_t> map(4 + 4 * 256 + 2);
  const auto set = [&](std::size_t unit, std::uint32_t value) {
    for (std::size_t b = 0; b < 4; ++b) map[4 + 4 * unit + b] = static_cast<std::uint8_t>(value >> (8 * b));
  };
  map[1] = 4, set(0, 2 << 10), set(2 ^ 'a', 8 << 10 | 1 << 8 | 'a'), set(2 ^ 'a' ^ 8, 1u << 31);
  map[map.size() - 2] = 'b';
  m.keys.emplace_back("tokenizer.ggml.precompiled_charsmap", GgufArray{map});
}

/// Returns a model of each architecture, with the same shapes as in files of llama.cpp's converter.
std::vector<Model> models() {
  std::vector<Model> out;
  json figures = json::parse(std::ifstream("tests/data/architectures.json"));
  json embeddings = json::parse(std::ifstream("tests/data/embeddings.json"));
  for (json& c : embeddings["cases"]) figures["cases"].push_back(c);
  for (const json& c : figures["cases"]) {
    Model m;
    for (const json& k : c["keys"]) m.keys.emplace_back(k[0], test::value_of(k[1], k[2]));
    std::uint64_t tokens = 0;
    for (const json& t : c["tensors"]) {
      m.tensors.push_back({t[0], t[1], GgmlType::f32});
      if (m.tensors.back().name == "token_embd.weight") tokens = m.tensors.back().dims[1];
    }
    if (c.contains("embeddings"))
      add_embedding_vocabulary(m, tokens, c["name"] == "XLM-R");
    else
      add_vocabulary(m, tokens);
    out.push_back(std::move(m));
  }
  return out;
}

/// Returns a boundary value or a random number.
template <class T>
T number(Random& random) {
  using Limits = std::numeric_limits<T>;
  switch (random() % 8) {
    case 0: return T(0);
    case 1: return Limits::max();
    case 2: return Limits::lowest();
    case 3: return T(1);
    case 4: return static_cast<T>(Limits::max() / 2 + 1);
    case 5: return std::is_floating_point_v<T> ? Limits::quiet_NaN() : static_cast<T>(random());
    case 6: return static_cast<T>(random() % 64);
    default: return static_cast<T>(random() % 5000);
  }
}

std::string noise(Random& random, std::size_t longest) {
  std::string out(random() % (longest + 1), ' ');
  for (char& c : out) c = random() % 3 == 0 ? static_cast<char>(random()) : "abc{}%<|> \n.0/"[random() % 14];
  return out;
}

template <class T>
std::vector<T> numbers(Random& random, std::size_t size) {
  std::vector<T> out(size);
  for (auto&& v : out) v = number<T>(random);
  return out;
}

GgufValue any_value(Random& random) {
  const std::size_t size = random() % 4 == 0 ? random() % 400 : random() % 5;
  switch (random() % 12) {
    case 0: return number<std::uint8_t>(random);
    case 1: return number<std::int32_t>(random);
    case 2: return number<std::uint32_t>(random);
    case 3: return number<std::uint64_t>(random);
    case 4: return number<float>(random);
    case 5: return number<double>(random);
    case 6: return random() % 2 == 0;
    case 7: return noise(random, size);
    case 8: return GgufArray{numbers<std::int32_t>(random, size)};
    case 9: return GgufArray{numbers<float>(random, size)};
    case 10: {
      std::vector<std::string> texts(size);
      for (std::string& t : texts) t = noise(random, 6);
      return GgufArray{texts};
    }
    default: return GgufArray{std::vector<GgufArray>{{numbers<std::uint32_t>(random, size)}}};
  }
}

void damage(Model& m, Random& random) {
  const std::size_t key = random() % m.keys.size(), tensor = random() % m.tensors.size();
  switch (random() % 10) {
    case 0: m.keys.erase(m.keys.begin() + static_cast<std::ptrdiff_t>(key)); break;
    case 1:
    case 2:
    case 3: m.keys[key].second = any_value(random); break;
    case 4:  // a number of the same type
      std::visit(
          [&]<class T>(T& v) {
            if constexpr (std::is_integral_v<T> && !std::is_same_v<T, bool>)
              v = random() % 2 ? number<T>(random) : static_cast<T>(static_cast<std::uint64_t>(v) * 2);
            else if constexpr (std::is_floating_point_v<T>)
              v = random() % 2 ? number<T>(random) : v * 2;
          },
          m.keys[key].second);
      break;
    case 5: {
      const std::string prefix = m.keys[key].first.substr(0, m.keys[key].first.find('.'));
      const std::vector<std::string> more = {".rope.scaling.type",
                                             ".rope.scaling.factor",
                                             ".rope.freq_base",
                                             ".attention.key_length",
                                             ".attention.sliding_window",
                                             ".expert_count",
                                             ".nonsense",
                                             ".rope.dimension_count",
                                             ".context_length"};
      std::string name = prefix + one_of(random, more);
      if (std::ranges::find(m.keys, name, [](const auto& k) { return k.first; }) == m.keys.end())
        m.keys.emplace_back(std::move(name), any_value(random));
      break;
    }
    case 6: m.tensors.erase(m.tensors.begin() + static_cast<std::ptrdiff_t>(tensor)); break;
    case 7: m.tensors[tensor].name += "x"; break;
    case 8: {
      std::uint64_t& d = one_of(random, std::vector<Tensor*>{&m.tensors[tensor]})->dims[0];
      d = random() % 2 ? d * 2 : 1 + random() % 300;
      break;
    }
    default: {
      Tensor& t = m.tensors[tensor];
      t.type = ggml_types()[random() % ggml_types().size()].type;
    }
  }
  if (m.tensors.empty()) m.tensors.push_back({"t", {1}, GgmlType::f32});
  if (m.keys.empty()) m.keys.emplace_back("k", true);
}

/// Returns the file of a model. Omits tensors that GgufWriter would reject.
std::vector<std::byte> bytes_of(const Model& m, std::span<const std::byte> zeros) {
  GgufWriter w;
  for (const auto& [key, value] : m.keys) w.set(key, value);
  for (const Tensor& t : m.tensors) {
    const auto bytes = ggml_tensor_bytes(*ggml_type_info(t.type), t.dims);
    if (bytes && *bytes <= zeros.size()) w.add_tensor(t.name, t.dims, t.type, zeros.first(*bytes));
  }
  return w.bytes();
}

void damage(std::vector<std::byte>& bytes, std::size_t head, Random& random) {
  for (std::size_t n = 1 + random() % 4; n > 0; --n)
    bytes[random() % std::min(head, bytes.size())] = static_cast<std::byte>(random() % 3 ? random() : 255);
}

const bool quiet = (logging::set_level(logging::Level::error), true);  // suppress warnings about unsupported features

/// Inspects and loads a file without computing. Returns true if the file can be loaded.
bool loads(const GgufFile& file, const DryRun& dry) {
  inspect_model(file);
  try {
    const Tokenizer tokenizer(file);
    EXPECT_EQ(tokenizer.decode(tokenizer.encode("an 'index' of 12 tables\n")).substr(0, 0), "");
    if (is_embedding_model(file)) read_pooling(file);
    if (find_encoder_architecture(file.get<std::string>("general.architecture")))
      Encoder::load(file, dry.device());
    else
      Llama::load(file, dry.device());
    return true;
  } catch (const Error&) {
    return false;
  }
}

TEST(ModelFuzz, FilesLoadOrThrow) {
  Random random(test_seed());
  const std::vector<Model> all = models();
  ASSERT_GE(all.size(), 14u);
  const std::vector<std::byte> zeros(std::size_t{4} << 20);
  const DryRun dry(Device{Backend::cpu, 0});
  std::size_t loaded = 0, parsed = 0;
  for (std::size_t i = 0; i < cases(); ++i) {
    SCOPED_TRACE(i);
    Model m = one_of(random, all);
    for (std::size_t n = random() % 4; n > 0; --n) damage(m, random);
    std::vector<std::byte> bytes = bytes_of(m, zeros);
    const bool bits = random() % 3 == 0;
    if (bits) damage(bytes, 4096 + random() % 20000, random);
    // Copy to a buffer of the exact size, so that a sanitizer detects reads past the end.
    if (random() % 16 == 0) bytes.resize(random() % bytes.size());
    const std::vector<std::byte> exact(bytes.begin(), bytes.end());
    const Bounded memory(exact.size());
    try {
      const GgufFile file = GgufFile::parse(exact, "damaged.gguf");
      ++parsed;
      loaded += loads(file, dry);
    } catch (const FormatError&) {}
  }
  std::printf("%zu files: %zu parsed, %zu loaded\n", cases(), parsed, loaded);
  EXPECT_GT(loaded, cases() / 50);
  EXPECT_LT(loaded, cases() / 2);
}

TEST(ModelFuzz, SplitFilesLoadOrThrow) {
  namespace fs = std::filesystem;
  Random random(test_seed() + 1);
  const std::vector<Model> all = models();
  const std::vector<std::byte> zeros(std::size_t{4} << 20);
  const DryRun dry(Device{Backend::cpu, 0});
  const fs::path folder = fs::temp_directory_path() / ("tessera-parts-" + std::to_string(::getpid()));
  fs::create_directories(folder);
  std::size_t loaded = 0, count = cases() / 20;
  for (std::size_t i = 0; i < count; ++i) {
    SCOPED_TRACE(i);
    const Model whole = one_of(random, all);
    std::size_t size = 0;
    const std::size_t faulty = random() % 6;  // the part with a fault; no part if it is 3 or more
    for (std::size_t part = 0; part < 3; ++part) {
      Model m;
      if (part == 0) m.keys = whole.keys;
      for (std::size_t t = part; t < whole.tensors.size(); t += 3) m.tensors.push_back(whole.tensors[t]);
      m.keys.emplace_back("split.no", static_cast<std::uint16_t>(part));
      m.keys.emplace_back("split.count", std::uint16_t{3});
      m.keys.emplace_back("split.tensors.count", static_cast<std::int32_t>(whole.tensors.size()));
      if (part == faulty && random() % 2) damage(m, random);
      std::vector<std::byte> bytes = bytes_of(m, zeros);
      if (part == faulty && random() % 2) damage(bytes, 512, random);
      if (part == faulty && random() % 8 == 0) bytes.resize(random() % bytes.size());
      size += bytes.size();
      const fs::path path = folder / ("m-0000" + std::to_string(part + 1) + "-of-00003.gguf");
      std::ofstream(path, std::ios::binary)
          .write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
    }
    const Bounded memory(size);
    try {
      loaded += loads(GgufFile::open(folder / "m-00001-of-00003.gguf"), dry);
    } catch (const Error&) {}
  }
  fs::remove_all(folder);
  std::printf("%zu models in three parts: %zu loaded\n", count, loaded);
  EXPECT_GT(loaded, count / 4);
  EXPECT_LT(loaded, count);
}

// --- Folders --------------------------------------------------------------------------------------------------------

json any_json(Random& random) {
  switch (random() % 9) {
    case 0: return nullptr;
    case 1: return random() % 2 == 0;
    case 2: return number<std::int64_t>(random);
    case 3: return number<std::uint64_t>(random);
    case 4: return random() % 100 / 8.0;
    case 5:
      return one_of<std::string>(random,
                                 {"", "yarn", "llama3", "longrope", "linear", "BPE", "ByteLevel", "t1", "BF16"});
    case 6: return json::array({number<std::int32_t>(random), "x"});
    case 7: return json::object();
    default: return {{"type", "yarn"}, {"factor", random() % 5}, {"content", "t1"}};
  }
}

/// Replaces, adds or removes a value somewhere in a document.
void damage(json& value, Random& random) {
  if (!value.is_structured() || value.empty() || random() % 32 == 0) {
    value = any_json(random);
    return;
  }
  auto at = value.begin();
  std::advance(at, static_cast<std::ptrdiff_t>(random() % value.size()));
  const auto what = random() % 12;
  if (what == 0)
    value.erase(at);
  else if (what == 1 && value.is_object())
    value[one_of<std::string>(random, {"rope_scaling", "head_dim", "num_experts", "per_layer_config", "type",
                                       "normalizer"})] = any_json(random);
  else
    damage(*at, random);
}

/// A file of a folder. `value` is its JSON, or the header of a safetensors file, in which `tail` follows it.
struct File {
  std::string name, text;
  json value;
  std::string tail = {};
};

File file_of(const std::filesystem::path& folder, const std::string& name) {
  std::ostringstream text;
  text << std::ifstream(folder / name, std::ios::binary).rdbuf();
  File f{name, text.str(), {}};
  std::uint64_t header = f.text.size() - 8;
  const bool is_json = name.ends_with(".json");
  if (!is_json) std::memcpy(&header, f.text.data(), 8);
  f.value = json::parse(is_json ? f.text : f.text.substr(8, header));
  if (!is_json) f.tail = f.text.substr(8 + header);
  return f;
}

/// Damages the text of a file: its JSON, or some of its first bytes.
std::string damaged(const File& file, Random& random) {
  const bool is_json = file.name.ends_with(".json");
  if (random() % 6 > 0) {
    json value = file.value;
    for (std::size_t n = 1 + random() % 2; n > 0; --n) damage(value, random);
    const std::string text = value.dump(-1, ' ', false, json::error_handler_t::replace);
    if (is_json) return text;
    std::string out(8, '\0');
    const std::uint64_t size = random() % 8 == 0 ? number<std::uint64_t>(random) : text.size();
    std::memcpy(out.data(), &size, 8);
    return out + text + file.tail;
  }
  std::string out = file.text;
  const auto at = [&] { return random() % (std::min<std::size_t>(out.size(), 20'000) + 1); };
  switch (random() % 4) {
    case 0: out.resize(random() % 2 ? at() : random() % out.size()); break;
    case 1: out.insert(at(), noise(random, 20)); break;
    case 2: out.insert(at(), file.text.substr(at(), random() % 200)); break;
    default: break;
  }
  for (std::size_t n = random() % 3; n > 0 && !out.empty(); --n)
    out[at() % out.size()] = random() % 2 ? static_cast<char>(random()) : "{}[],:\"0\\"[random() % 9];
  return out;
}

struct Folder {
  std::filesystem::path path;
  std::vector<File> files;
  std::size_t size = 0;
};

/// Writes the folders of language models of each family, of embedding models, and of each kind of tokenizer.
std::vector<Folder> write_folders(const std::filesystem::path& to) {
  std::vector<Folder> out;
  const auto add = [&](test::ModelFolder m, bool has_modules) {
    Folder& f = out.emplace_back(Folder{to / std::to_string(out.size()), {}});
    m.shards = 1 + out.size() % 2;
    m.further_files["tokenizer_config.json"] = R"({"model_max_length":64,"bos_token":null,"add_bos_token":true})";
    if (!has_modules) m.further_files["generation_config.json"] = R"({"eos_token_id":[1,2],"top_k":5})";
    if (has_modules) {
      m.further_files["modules.json"] =
          std::string("[") + test::transformer_module + "," + test::pooling_module + "," + test::normalize_module + "]";
      m.further_files["sentence_bert_config.json"] = R"({"max_seq_length":48,"do_lower_case":false})";
      m.further_files["config_sentence_transformers.json"] =
          R"({"prompts":{"query":"find: ","document":""},"default_prompt_name":"document"})";
    }
    test::write_folder(f.path, m);
    if (has_modules) {
      std::filesystem::create_directory(f.path / "1_Pooling");
      test::put_file(f.path / "1_Pooling/config.json", R"({"pooling_mode_mean_tokens":true,"include_prompt":true})");
    }
    for (const auto& entry : std::filesystem::recursive_directory_iterator(f.path))
      if (entry.is_regular_file()) {
        f.files.push_back(file_of(f.path, std::filesystem::relative(entry.path(), f.path)));
        f.size += f.files.back().text.size();
      }
    std::ranges::sort(f.files, {}, &File::name);  // the order on disk differs between machines
  };
  for (const test::FolderCase& c : test::folder_cases) add(test::folder_of(c), false);
  for (const char* name : {"BERT", "XLM-R", "Qwen 3 Embedding"}) {
    test::ModelFolder m = test::embedding_folder(name);
    add(m, true);
    if (name != std::string("XLM-R")) continue;
    std::vector<std::string> texts = {"<s>", "<pad>", "</s>", "<unk>"};
    json scores = json::array();
    while (texts.size() < 64)
      texts.push_back((texts.size() % 2 ? "\u2581" : "") +
                      std::string(1 + texts.size() / 30, static_cast<char>('a' + texts.size() / 2 % 26)));
    for (std::size_t i = 0; i < texts.size(); ++i) scores.push_back(-0.5 * static_cast<double>(i % 7));
    std::vector<std::int32_t> types(64, 1);
    std::fill_n(types.begin(), 4, 3);
    // The map of the empty trie: its size, one unit, and no texts.
    m.tokenizer =
        test::unigram({{"tokens", texts}, {"scores", scores}, {"types", types}, {"charsmap", "BAAAAAAAAAA="}});
    add(m, true);
  }
  test::ModelFolder m = test::folder_of(test::folder_cases[0]);
  m.config["vocab_size"] = 1000;
  const json tokenizers = json::parse(std::ifstream("tests/data/hub_tokenizers.json"));
  for (const json& c : tokenizers["cases"]) m.tokenizer = c["tokenizer"], add(m, false);
  return out;
}

/// Encodes and decodes random text with the tokenizer of a folder.
void use_tokenizer(const GgufFile& file, Random& random) {
  const Tokenizer t(file);
  const std::vector<TokenId> ids = t.encode(noise(random, 60), {.parse_special = random() % 2 == 0});
  for (const TokenId id : ids) EXPECT_LT(static_cast<std::size_t>(id), t.size());
  t.decode(ids, true);
  if (is_embedding_model(file)) {
    EXPECT_GT(read_max_tokens(file), 0);
  }
}

TEST(ModelFuzz, FoldersLoadOrThrow) {
  Random random(test_seed() + 3);
  const DryRun dry(Device{Backend::cpu, 0});
  const test::Folder scratch;
  const std::vector<Folder> folders = write_folders(scratch.path());
  for (const Folder& f : folders) EXPECT_TRUE(loads(GgufFile::open(f.path), dry)) << f.path;
  std::size_t opened = 0, tokenizers = 0, encoded = 0, models = 0, loaded = 0;
  for (std::size_t i = 0; i < cases(); ++i) {
    SCOPED_TRACE(i);
    const Folder& f = one_of(random, folders);
    const bool of_tokenizer = random() % 2;
    std::vector<const File*> changed;
    if (of_tokenizer) changed.push_back(&*std::ranges::find(f.files, "tokenizer.json", &File::name));
    if (!of_tokenizer || random() % 8 == 0) changed.push_back(&one_of(random, f.files));
    std::size_t size = f.size;
    for (const File* file : changed) {
      if (random() % 32 == 0) {
        std::filesystem::remove(f.path / file->name);
        continue;
      }
      const std::string text = damaged(*file, random);
      size += text.size();
      test::put_file(f.path / file->name, text);
    }
    {
      const Bounded memory(size);
      try {
        const GgufFile file = GgufFile::open(f.path);
        ++opened;
        if (of_tokenizer) {
          ++tokenizers;
          use_tokenizer(file, random);
          ++encoded;
        } else {
          ++models;
          for (const GgufTensor& t : file.tensors()) file.data(t);
          loaded += loads(file, dry);
        }
      } catch (const Error&) {}
    }
    for (const File* file : changed) test::put_file(f.path / file->name, file->text);
  }
  std::printf("%zu folders: %zu opened; %zu of %zu tokenizers encoded, %zu of %zu models loaded\n", cases(), opened,
              encoded, tokenizers, loaded, models);
  EXPECT_GT(encoded, tokenizers / 8);
  EXPECT_GT(loaded, models / 2);
  EXPECT_LT(loaded, models);
  EXPECT_GT(opened, cases() / 10);
  EXPECT_LT(opened, cases() / 2);
}

// --- Vocabularies ---------------------------------------------------------------------------------------------------

GgufWriter random_vocabulary(Random& random) {
  static const std::vector<std::string> pres = {
      "gpt-2",  "llama-bpe", "qwen2", "deepseek-llm", "deepseek-coder", "deepseek-v3", "tekken",          "gpt-4o",
      "smollm", "falcon",    "phi-2", "default",      "starcoder",      "command-r",   "deepseek-r1-qwen"};
  const bool gpt2 = random() % 2;
  std::vector<std::string> tokens;
  std::vector<std::int32_t> types;
  std::vector<float> scores;
  const auto add = [&](std::string text, std::int32_t type) {
    tokens.push_back(std::move(text)), types.push_back(type);
    scores.push_back(random() % 50 == 0 ? number<float>(random) : -static_cast<float>(random() % 1000));
  };
  if (!gpt2) add("<unk>", 2);
  for (int b = 0; b < 256; ++b) {
    if (random() % 200 == 0) continue;
    char hex[8];
    std::snprintf(hex, sizeof hex, "<0x%02X>", b);
    gpt2 ? add(byte_level_text(std::string(1, static_cast<char>(b))), 1) : add(hex, 6);
  }
  std::vector<std::string> merges;
  const std::string letters = "abc \n1'.";
  for (std::size_t n = random() % 120; n > 0; --n) {
    std::string text;
    for (std::size_t l = 1 + random() % 6; l > 0; --l)
      text += random() % 12 ? std::string(1, letters[random() % letters.size()])
                            : one_of<std::string>(random, {"é", "▁", "漢"});
    const std::int32_t type = random() % 10 ? 1 : static_cast<std::int32_t>(random() % 7);
    const std::string spelt = gpt2 ? byte_level_text(text) : text;
    add(spelt, type);
    if (spelt.size() > 1) {
      std::size_t cut = 1 + random() % (spelt.size() - 1);
      merges.push_back(spelt.substr(0, cut) + " " + spelt.substr(cut));
    }
  }
  for (const char* special : {"<s>", "</s>", "<|im_start|>", "<|im_end|>", "<", ""})
    if (random() % 2) add(special, random() % 4 ? 3 : 4);
  // Remove duplicate tokens in most cases, because vocabularies with duplicates are rejected.
  if (random() % 8) {
    std::vector<std::string> seen;
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      while (std::ranges::find(seen, tokens[i]) != seen.end()) tokens[i] += static_cast<char>('a' + random() % 26);
      seen.push_back(tokens[i]);
    }
  }
  if (random() % 20 == 0) types.resize(random() % (types.size() + 1));
  if (random() % 20 == 0) merges.push_back(noise(random, 8));
  GgufWriter w;
  w.set("general.architecture", std::string("llama"));
  w.set("tokenizer.ggml.model", std::string(gpt2 ? "gpt2" : "llama"));
  if (gpt2 || random() % 4 == 0) w.set("tokenizer.ggml.pre", random() % 30 ? one_of(random, pres) : noise(random, 5));
  const auto ids = [&](const char* key) {
    if (random() % 2) w.set(key, static_cast<std::uint32_t>(random() % 20 ? random() % tokens.size() : random()));
  };
  ids("tokenizer.ggml.bos_token_id");
  ids("tokenizer.ggml.eos_token_id");
  ids("tokenizer.ggml.unknown_token_id");
  for (const char* key : {"tokenizer.ggml.add_bos_token", "tokenizer.ggml.add_space_prefix"})
    if (random() % 2) w.set(key, random() % 2 == 0);
  if (!types.empty()) w.set("tokenizer.ggml.token_type", types);
  if (gpt2 || random() % 4 == 0) w.set("tokenizer.ggml.merges", merges);
  if (!gpt2 || random() % 4 == 0) w.set("tokenizer.ggml.scores", scores);
  w.set("tokenizer.ggml.tokens", std::move(tokens));
  return w;
}

TEST(ModelFuzz, VocabulariesEncodeAnyTextOrThrow) {
  Random random(test_seed() + 2);
  std::size_t taken = 0, made = 0;
  for (std::size_t i = 0; i < cases();) {
    const std::vector<std::byte> bytes = random_vocabulary(random).bytes();
    const Bounded memory(bytes.size());
    const GgufFile file = GgufFile::parse(bytes, "vocabulary.gguf");
    ++made;
    std::optional<Tokenizer> t;
    try {
      t.emplace(file);
    } catch (const FormatError&) {
      ++i;
      continue;
    }
    ++taken;
    for (int k = 0; k < 8; ++k, ++i) {
      std::string text;
      for (std::size_t n = random() % 60; n > 0; --n)
        text += random() % 4 == 0 ? std::string(1, static_cast<char>(random()))
                : random() % 3 == 0 ? one_of<std::string>(random, {"é", "▁", "漢字", "<s>", "<|im_end|>", "\r\n", "١"})
                                    : std::string(1, "abc \n1'."[random() % 8]);
      const std::size_t begin = random() % (text.size() + 1);
      const EncodeOptions::Range plain{begin, begin + random() % (text.size() - begin + 1)};
      const std::vector<TokenId> ids = t->encode(
          text, {.add_special = random() % 2 == 0, .parse_special = random() % 2 == 0, .plain = std::span(&plain, 1)});
      // Each token covers at least one byte of the text, except for the tokens of characters that are not in the
      // vocabulary.
      EXPECT_LE(ids.size(), 3 * text.size() + 3 + 3) << "TESSERA_TEST_SEED=" << test_seed();
      for (const TokenId id : ids) EXPECT_LT(static_cast<std::size_t>(id), t->size());
      t->decode(ids);
      t->decode(ids, true);
    }
  }
  std::printf("%zu texts with %zu vocabularies, of which %zu were rejected\n", cases(), made, made - taken);
  EXPECT_GT(taken, made / 4);
  EXPECT_LT(taken, made);
}

}  // namespace
}  // namespace tessera
