// SPDX-License-Identifier: Apache-2.0
// Prompts whose keys and values are saved in a file, and loaded by another session.
#include "tessera/llm/saved_prompt.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>

#include "tessera/llm/text_session.h"
#include "tests/support/errors.h"
#include "tests/support/folder.h"

namespace tessera {
namespace {

using test::expect_throw;

const LanguageModel& model(const char* file = "models/pgdocs-2m-f16.gguf") {
  static std::map<std::string, LanguageModel> all;
  const auto at = all.find(file);
  return at != all.end() ? at->second
                         : all.emplace(file, LanguageModel::load(file, Device{Backend::cpu, 0})).first->second;
}

class SavedPrompts : public ::testing::Test {
 protected:
  GenerateOptions options(DType cache) const {
    GenerateOptions o;
    o.sampling.temperature = 0;
    o.max_tokens = 20, o.log_probabilities = 3, o.cache_dtype = cache;
    o.batch = 32;  // the prompts have several batches
    o.prompt_cache = path;
    return o;
  }
  static std::vector<TokenId> prompt(const std::string& end) {
    std::string text;
    for (int i = 0; i < 12; ++i) text += "An index is a data structure. ";
    return model().tokenizer().encode(text + end);
  }
  static GenerateResult generate(const std::vector<TokenId>& tokens, const GenerateOptions& o,
                                 const LanguageModel& m = model()) {
    return m.generate(tokens, o);
  }
  /// Expects the same tokens with the same bits of their log probabilities.
  static void expect_same(const GenerateResult& a, const GenerateResult& b) {
    EXPECT_EQ(a.tokens, b.tokens);
    ASSERT_EQ(a.log_probabilities.size(), b.log_probabilities.size());
    for (std::size_t i = 0; i < a.log_probabilities.size(); ++i)
      for (std::size_t j = 0; j < a.log_probabilities[i].size(); ++j) {
        EXPECT_EQ(a.log_probabilities[i][j].id, b.log_probabilities[i][j].id);
        EXPECT_EQ(a.log_probabilities[i][j].log_probability, b.log_probabilities[i][j].log_probability);
      }
  }
  void write(const std::string& bytes) const { std::ofstream(path, std::ios::binary) << bytes; }
  std::string read() const {
    std::ifstream in(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  test::Folder folder;
  const std::string path = (folder / "prompt.safetensors").string();
};

// A session that loads a prompt continues with the same bits as one that has read it in the same pieces. A longer
// prompt reads only what is new, and replaces the file.
TEST_F(SavedPrompts, ContinueWithTheSameBits) {
  for (const DType cache : {DType::f16, DType::f32, DType::i8}) {
    const GenerateOptions o = options(cache);
    GenerateOptions without = o;
    without.prompt_cache.clear();
    std::filesystem::remove(path);
    const std::vector<TokenId> first = prompt("A"), second = prompt("Indexes of a table");
    const GenerateResult read_first = generate(first, o);
    expect_same(read_first, generate(first, without));
    EXPECT_EQ(read_first.read, std::ssize(first));
    const std::string saved = read();
    // Reference: one session reads the first prompt, and then the others.
    TextSession session(model(), 1024, cache);
    session.generate(first, without);
    const GenerateResult again = generate(first, o);
    expect_same(again, session.generate(first, without));
    EXPECT_EQ(again.read, 1);
    EXPECT_EQ(read(), saved) << "not written again";
    session.clear();
    GenerateOptions only_read = without;
    only_read.max_tokens = 0;
    session.generate(first, only_read);
    const GenerateResult longer = generate(second, o);
    expect_same(longer, session.generate(second, without));
    EXPECT_LT(longer.read, 12);
    EXPECT_NE(read(), saved);
    EXPECT_EQ(generate(second, o).read, 1);
    EXPECT_EQ(folder.files().size(), 1u) << "no temporary files remain";
  }
}

TEST_F(SavedPrompts, RejectDamagedFilesAndOtherModels) {
  const GenerateOptions o = options(DType::f16);
  const std::vector<TokenId> tokens = prompt("A");
  const GenerateResult expected = generate(tokens, o);
  const std::string whole = read();
  for (const std::size_t size : {std::size_t{0}, std::size_t{5}, whole.size() / 2, whole.size() - 1}) {
    write(whole.substr(0, size));
    expect_throw<FormatError>([&] { generate(tokens, o); }, {path});
  }
  std::string changed = whole;
  changed[whole.size() - 100] ^= 1;
  write(changed);
  expect_throw<FormatError>([&] { generate(tokens, o); }, {path, "contents have changed"});
  save_safetensors(path, {{"a", Array::zeros({2})}});
  expect_throw<FormatError>([&] { generate(tokens, o); }, {path, "not a saved prompt"});
  write(whole);
  expect_throw<ArgumentError>([&] { generate(tokens, o, model("models/pgdocs-2m-q8_0.gguf")); },
                              {path, "another model", "Delete"});
  // Files of another type of cache are not used, and replaced.
  EXPECT_EQ(generate(tokens, options(DType::f32)).read, std::ssize(tokens));
  EXPECT_EQ(generate(tokens, options(DType::f32)).read, 1);
  std::filesystem::remove(path);
  expect_same(generate(tokens, o), expected);
  GenerateOptions unwritable = o;
  unwritable.prompt_cache = path + "/prompt.safetensors";
  expect_throw<Error>([&] { generate(tokens, unwritable); }, {path});
}

TEST_F(SavedPrompts, FilesAreCheckedBeforeTheModelIsLoaded) {
  generate(prompt("A"), options(DType::f16));
  const auto load = [&](const std::string& file, const char* of = "models/pgdocs-2m-f16.gguf") {
    LoadOptions o{.devices = {Device{Backend::cpu, 0}}, .prompt = "A"};
    o.generate.prompt_cache = file;
    o.accepted = [] { ADD_FAILURE() << "the model is loaded"; };
    LanguageModel::load(of, o);
  };
  const std::string missing = folder / "missing";
  expect_throw<ArgumentError>([&] { load(missing + "/prompt.safetensors"); },
                              {"the folder " + missing + " does not exist", "Create the folder"});
  EXPECT_FALSE(std::filesystem::exists(missing));
  expect_throw<ArgumentError>([&] { load(path, "models/pgdocs-2m-q8_0.gguf"); }, {path, "another model"});
  write("no tensors");
  expect_throw<FormatError>([&] { load(path); }, {path});
}

}  // namespace
}  // namespace tessera
