// SPDX-License-Identifier: Apache-2.0
// `tessera chat`, `generate --chat` and `tokenize`, with pipes and on a pseudo terminal.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <regex>
#include <sstream>

#include "tessera/llm/gguf_values.h"
#include "tessera/llm/gguf_writer.h"
#include "tessera/tessera.h"
#include "tests/app/app_program.h"
#include "tests/app/app_terminal.h"
#include "tests/support/scripted_model.h"

using namespace tessera::test;
using nlohmann::json;

namespace {

const std::string bare = "models/pgdocs-2m-q8_0.gguf";
const std::string plain =
    "{% for m in messages %}{% if m.content == 'refuse' %}{{ raise_exception('No such word') }}{% endif %}"
    "{{ '<|endoftext|>' if m.role == 'user' }}{{ m.content }}{% endfor %}";

/// Returns the folder of the kernel cache, which all runs of this test share.
const std::string& kernels() {
  static const TemporaryFolder folder;
  static const std::string path = folder / "kernels";
  std::filesystem::create_directory(path);
  return path;
}
Outcome tessera_with(const std::vector<std::string>& arguments, RunOptions o = {}) {
  o.environment = {{"TESSERA_KERNEL_CACHE", "1"}, {"TESSERA_CACHE_DIR", kernels()}};
  return run(arguments, o);
}

/// A copy of the shipped model with a chat template.
class ModelFile {
 public:
  explicit ModelFile(const std::string& chat_template, const std::vector<std::pair<std::string, float>>& more = {}) {
    const auto file = tessera::GgufFile::open(bare);
    tessera::GgufWriter w;
    for (const auto& e : file.metadata())
      if (e.key != "general.alignment") w.set(e.key, e.value);
    w.set("tokenizer.chat_template", chat_template);
    for (const auto& [key, value] : more) w.set(key, value);
    for (const auto& t : file.tensors()) w.add_tensor(t.name, {t.dims.begin(), t.dims.end()}, t.type, file.data(t));
    w.write(folder_ / "model.gguf");
  }
  std::string path() const { return folder_ / "model.gguf"; }
  std::string path_in_folder(const std::string& name) const { return folder_ / name; }

 private:
  TemporaryFolder folder_;
};

const ModelFile& model() {
  static const ModelFile m(plain);
  return m;
}

std::vector<std::string> chat(const std::vector<std::string>& more, const std::string& file = model().path()) {
  std::vector<std::string> all = {"chat", file, "--device", "cpu", "--temperature", "0", "-n", "12", "--cache", "f32"};
  all.insert(all.end(), more.begin(), more.end());
  return all;
}
RunOptions typed(const std::string& in) { return {.in = in}; }

std::vector<json> objects(const Outcome& o) {
  EXPECT_EQ(o.code, 0) << o.err;
  std::vector<json> out;
  std::istringstream lines(o.out);
  for (std::string line; std::getline(lines, line);) out.push_back(json::parse(line));
  return out;
}

TEST(Chat, AnswersEachLineOfAPipe) {
  const auto answers = objects(tessera_with(chat({"--json", "-q"}), typed("What is an index?\n\nAnd a table?\n")));
  ASSERT_EQ(answers.size(), 2u);
  for (const json& a : answers) {
    EXPECT_EQ(a["role"], "assistant");
    EXPECT_EQ(a["tokens"], 12);
    EXPECT_EQ(a["stopped"], "number of tokens reached");
    EXPECT_EQ(a["left_out"], 0);
  }
  EXPECT_EQ(answers[0]["read_tokens"], answers[0]["prompt_tokens"]);
  EXPECT_LT(answers[1]["read_tokens"], answers[1]["prompt_tokens"].get<int>() - 5) << "tokens that were read are kept";
  // Without --json, standard output contains only the model's answers, one per line.
  const Outcome text = tessera_with(chat({}), typed("What is an index?\nAnd a table?"));
  EXPECT_EQ(text.code, 0) << text.err;
  EXPECT_EQ(text.out,
            answers[0]["content"].get<std::string>() + "\n" + answers[1]["content"].get<std::string>() + "\n");
  EXPECT_TRUE(holds(text.err, {"device    cpu:0", "context   1024 tokens", "the chat template of " + model().path(),
                               "the answer was cut off at 12 tokens"}));
  EXPECT_EQ(tessera_with(chat({"-q"}), typed("What is an index?\n")).err, "");
  const Outcome once = tessera_with(chat({"-q", "--prompt", "What is an index?"}));
  EXPECT_EQ(once.out, answers[0]["content"].get<std::string>() + "\n");
  EXPECT_EQ(tessera_with(chat({"-q"}), typed("")).out, "");
}

TEST(Chat, CommandsChangeTheConversation) {
  const std::string saved = model().path_in_folder("saved.json"), again = model().path_in_folder("again.json");
  const Outcome o =
      tessera_with(chat({"--system", "Old."}),
                   typed("/system You are\n/help\nWhat \\\nis this?\n\"\"\"\na\n\nb\n\"\"\"\n//slash\n/save " + saved +
                         "\n/retry\n/reset\n/save " + again + "\n/quit\nnever read\n"));
  ASSERT_EQ(o.code, 0) << o.err;
  EXPECT_TRUE(holds(o.err, {"the system prompt is set", "/retry         answer", "(7 messages written to " + saved,
                            "a new conversation"}));
  const json all = json::parse(text_of(saved));
  ASSERT_EQ(all.size(), 7u);
  EXPECT_EQ(all[0], (json{{"role", "system"}, {"content", "You are"}}));
  EXPECT_EQ(all[1]["content"], "What \nis this?");
  EXPECT_EQ(all[3]["content"], "a\n\nb");
  EXPECT_EQ(all[5]["content"], "/slash");
  EXPECT_EQ(all[6]["role"], "assistant");
  EXPECT_EQ(json::parse(text_of(again)), json::array({all[0]}));
  // A saved conversation can be continued with --load and with /load.
  const auto loaded = objects(tessera_with(chat({"-q", "--json", "--load", saved}), typed("More?\n")));
  const auto command = objects(tessera_with(chat({"-q", "--json"}), typed("/load " + saved + "\nMore?\n")));
  ASSERT_EQ(loaded.size(), 1u);
  ASSERT_EQ(command.size(), 1u);
  EXPECT_EQ(loaded[0]["content"], command[0]["content"]);
  EXPECT_EQ(loaded[0]["prompt_tokens"], command[0]["prompt_tokens"]);
  EXPECT_GT(loaded[0]["prompt_tokens"].get<int>(), 40);
}

TEST(Chat, SetChangesOptionsAndShowListsThem) {
  const std::string home = model().path_in_folder("home");
  std::filesystem::create_directory(home);
  RunOptions o = typed(
      "What is an index?\n/set tokens 3\n/set top-k=7\n/set seed 11\n/retry\n/show\n/save ~/a.json\n/load ~/a.json\n");
  o.environment = {{"TESSERA_KERNEL_CACHE", "1"}, {"TESSERA_CACHE_DIR", kernels()}, {"HOME", home}};
  const Outcome json_lines = run(chat({"--json"}), o);
  const auto answers = objects(json_lines);
  ASSERT_EQ(answers.size(), 2u);
  EXPECT_EQ(answers[0]["tokens"], 12);
  EXPECT_EQ(answers[1]["tokens"], 3);
  EXPECT_EQ(answers[1]["seed"], 11);
  const int used = answers[1]["prompt_tokens"].get<int>() + 2;
  EXPECT_TRUE(holds(json_lines.err,
                    {"(tokens is 3)", "(top-k is 7)", "model     " + model().path(), "device    cpu:0",
                     "context   " + std::to_string(used) + " of 1024 tokens used, 2 messages", "temperature        0 ",
                     "top-k              7 ", "seed               12 ", "2 messages read from " + home + "/a.json"}));
  EXPECT_TRUE(fails(tessera_with(chat({}), typed("/set heat 3\n")), 1, {"unknown option", "heat", "/set lists"}));
  EXPECT_TRUE(fails(tessera_with(chat({}), typed("/set top-p 3\n")), 1, {"3 is out of range: above 0 to 1", "top-p"}));
  EXPECT_TRUE(fails(tessera_with(chat({}), typed("/set top-p\n")), 1, {"/set top-p needs a value", "It is 0.95 now"}));
}

TEST(Chat, RetryDrawsANewAnswerAndSeedsReproduceAnswers) {
  const std::vector<std::string> warm = {"chat", model().path(), "--device", "cpu",    "-n",
                                         "12",   "--seed",       "5",        "--json", "-q"};
  const auto a = objects(tessera_with(warm, typed("What is an index?\n/retry\n"))),
             b = objects(tessera_with(warm, typed("What is an index?\n/retry\n")));
  ASSERT_EQ(a.size(), 2u);
  EXPECT_NE(a[0]["content"], a[1]["content"]);
  EXPECT_EQ(a[0]["seed"], 5);
  EXPECT_EQ(a[1]["seed"], 6);
  EXPECT_EQ(a[0]["content"], b[0]["content"]);
  EXPECT_EQ(a[1]["content"], b[1]["content"]);
  EXPECT_EQ(a[1]["read_tokens"], 1);
}

TEST(Chat, ErrorInAScriptEndsTheProgram) {
  EXPECT_TRUE(fails(tessera_with(chat({}), typed("/nope\n")), 1, {"/nope", "/help"}));
  EXPECT_TRUE(fails(tessera_with(chat({}), typed("/retry\n")), 1, {"no message to answer"}));
  EXPECT_TRUE(fails(tessera_with(chat({}), typed("/save\n")), 1, {"/save needs a file name"}));
  EXPECT_TRUE(fails(tessera_with(chat({}), typed("/save /nonexistent/x\n")), 1,
                    {"/nonexistent/x", "the folder /nonexistent does not exist"}));
  const std::string notes = model().path_in_folder("notes.txt");
  std::ofstream(notes) << "notes";
  EXPECT_TRUE(fails(tessera_with(chat({}), typed("/save " + notes + "\n")), 1, {notes, "is not a conversation"}));
  EXPECT_EQ(text_of(notes), "notes");
  EXPECT_TRUE(fails(tessera_with(chat({}), typed("/load /nonexistent/x\n")), 1, {"/nonexistent/x", "No such file"}));
  EXPECT_TRUE(fails(tessera_with(chat({}), typed("/load README.md\n")), 1, {"README.md", "not valid JSON"}));
  const std::string pipe = model().path_in_folder("pipe");
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  for (const std::string& endless : {pipe, std::string("/dev/zero")}) {
    EXPECT_TRUE(fails(tessera_with(chat({}), typed("/load " + endless + "\n")), 1, {endless, "not a regular file"}));
    EXPECT_TRUE(fails(tessera_with(chat({"--load", endless}), typed("a\n")), 1, {endless, "not a regular file"}));
  }
  EXPECT_TRUE(fails(tessera_with(chat({}), typed("refuse\n")), 1, {"rejects this conversation", "No such word"}));
  EXPECT_TRUE(fails(tessera_with(chat({}), typed("/system refuse\n")), 1, {"No such word"}));
  EXPECT_TRUE(fails(tessera_with(chat({}), typed("\"\"\"\nno end\n")), 1, {"no closing"}));
  EXPECT_TRUE(fails(tessera_with(chat({"--template-args", "[1]"}), typed("a\n")), 1, {"not a JSON object"}));
  EXPECT_TRUE(fails(tessera_with(chat({"--ctx", "16"}), typed(std::string(500, 'x') + "\n")), 1,
                    {"longer than the context",
                     "Shorten the message, or increase the context (--ctx), at most to the model's 1024"}));
  EXPECT_TRUE(fails(tessera_with(chat({"--ctx", "16", "--system", std::string(500, 'x')}), typed("a\n")), 1,
                    {"the system prompt is longer than the context", "/system"}));
  EXPECT_TRUE(fails(tessera_with(chat({"-p", ""})), 2, {"--prompt", "the message is empty"}));
  EXPECT_TRUE(fails(tessera_with(chat({"--ctx", "5000"}), typed("a\n")), 1, {"5000", "1024"}));
  EXPECT_TRUE(fails(tessera_with(chat({"--when-full", "explode"})), 2, {"explode"}));
  EXPECT_TRUE(fails(tessera_with(chat({"--logit-bias", "x=1"})), 2,
                    {"error: --logit-bias: \"x=1\" is not a bias; expected TOKEN=NUMBER"}));
  EXPECT_TRUE(fails(tessera_with(chat({"--stop", ""})), 2, {"--stop"}));
}

TEST(Chat, FileWithoutATemplateNeedsATemplateOption) {
  EXPECT_TRUE(
      fails(tessera_with(chat({}, bare), typed("a\n")), 1, {bare, "no chat template", "--template NAME", "chatml"}));
  EXPECT_TRUE(fails(tessera_with(chat({"--template", "alpaca"}, bare), typed("a\n")), 1, {"alpaca", "zephyr"}));
  const Outcome o = tessera_with(chat({"--template", "chatml"}, bare), typed("a\n"));
  EXPECT_EQ(o.code, 0) << o.err;
  EXPECT_TRUE(holds(o.err, {"template  the built-in chat template chatml",
                            "needs the tokens <|im_end|>, <|im_start|>, which are not in the vocabulary"}));
}

TEST(Chat, FullContextIsRefusedOrShiftedAndReported) {
  std::string many;
  for (int i = 0; i < 8; ++i) many += "What is an index number " + std::to_string(i) + "?\n";
  const Outcome refused = tessera_with(chat({"--ctx", "80"}), typed(many));
  EXPECT_TRUE(fails(refused, 1,
                    {"the context of 80 tokens is full and the answer was cut off", "longer than the context",
                     "Start over (/reset), or drop the oldest messages (--when-full shift), or increase"}));
  const auto shifted = tessera_with(chat({"--ctx", "80", "--when-full", "shift", "--json"}), typed(many));
  const auto answers = objects(shifted);
  ASSERT_EQ(answers.size(), 8u);
  EXPECT_EQ(answers[0]["left_out"], 0);
  EXPECT_GT(answers[7]["left_out"], 0);
  for (const json& a : answers) EXPECT_EQ(a["tokens"], 12);
  EXPECT_TRUE(holds(shifted.err, {"(the oldest "}));
}

TEST(Chat, AppliesStopStringsAndSamplingOptionsOfTheFile) {
  const auto whole = objects(tessera_with(chat({"--json", "-q", "-p", "What is an index?"})));
  const std::string text = whole.at(0)["content"];
  const auto cut = objects(
      tessera_with(chat({"--json", "-q", "-p", "What is an index?", "--stop", text.substr(7, 6), "--stop", "\x02"})));
  EXPECT_EQ(cut.at(0)["content"], text.substr(0, text.find(text.substr(7, 6))));
  EXPECT_EQ(cut.at(0)["stopped"], "stop text");
  // If the file sets temperature 0, all seeds result in the same answer, unless the command line overrides it.
  const ModelFile cold(plain, {{"general.sampling.temp", 0.0f}});
  const auto of = [&](const std::string& seed, std::vector<std::string> more) {
    std::vector<std::string> all = {"chat", cold.path(),         "--device", "cpu",    "-n",
                                    "12",   "--cache",           "f32",      "--json", "-q",
                                    "-p",   "What is an index?", "--seed",   seed};
    all.insert(all.end(), more.begin(), more.end());
    return objects(tessera_with(all)).at(0)["content"].get<std::string>();
  };
  EXPECT_EQ(of("1", {}), text);
  EXPECT_EQ(of("2", {}), text);
  EXPECT_NE(of("1", {"--temperature", "2", "--top-k", "0"}), of("2", {"--temperature", "2", "--top-k", "0"}));
}

TEST(Chat, ThoughtsAreSeparateFromTheAnswer) {
  const ModelFile thinks(plain + "<think>\n");
  const auto answers = objects(tessera_with(chat({"--json", "-q", "-p", "What is an index?"}, thinks.path())));
  EXPECT_EQ(answers.at(0)["content"], "");
  EXPECT_GT(answers.at(0)["reasoning_content"].get<std::string>().size(), 10u);
  EXPECT_EQ(tessera_with(chat({"-q", "-p", "What is an index?"}, thinks.path())).out, "\n");
  Terminal t(TESSERA_PROGRAM, kernels(), chat({"-q", "-p", "What is an index?"}, thinks.path()));
  EXPECT_EQ(t.ends(), 0);
  EXPECT_NE(t.out().find("\x1b[2m"), std::string::npos) << t.out();
}

TEST(Chat, FunctionsAreCalledAndResultsReturned) {
  const TemporaryFolder folder;
  weather_model().write(folder / "weather.gguf");
  const auto file = [&](const char* name, const std::string& text) {
    std::ofstream(folder / name) << text;
    return std::string(folder / name);
  };
  const std::string model = folder / "weather.gguf", tools = file("tools.json", weather_tools),
                    saved = folder / "saved.json";
  const auto with_tools = [&](std::vector<std::string> more, const std::string& in = {}) {
    more.insert(more.end(), {"--tools", tools});
    return tessera_with(chat(more, model), typed(in));
  };
  const std::string question = "How is the weather in Zürich?\n";
  const Outcome text = with_tools({"-q"}, question + "/tool 21.5 degrees\nThanks.\n");
  const std::string call = "Let me see.\nget_weather {\"town\":\"Zürich\"}\n";
  EXPECT_EQ(text.out, call + "It is warm.\n" + call) << text.err;
  const auto answers = objects(with_tools({"-q", "--json"}, question + "/tool 21.5\n/save " + saved + "\n"));
  ASSERT_EQ(answers.size(), 2u);
  EXPECT_EQ(answers[0]["content"], "Let me see.");
  const json function = {{"name", "get_weather"}, {"arguments", "{\"town\":\"Zürich\"}"}};
  EXPECT_EQ(answers[0]["tool_calls"],
            json::array({{{"id", "call00001"}, {"type", "function"}, {"function", function}}}));
  EXPECT_EQ(answers[1]["content"], "It is warm.");
  EXPECT_FALSE(answers[1].contains("tool_calls"));
  // A conversation that ends with the result of a function can be continued with /retry.
  auto conversation = json::parse(text_of(saved));
  ASSERT_EQ(conversation.size(), 4u);
  EXPECT_EQ(conversation[2]["role"], "tool");
  EXPECT_EQ(conversation[2]["tool_call_id"], "call00001");
  conversation.erase(3);
  EXPECT_EQ(with_tools({"-q", "--load", file("part.json", conversation.dump())}, "/retry\n").out, "It is warm.\n");
  conversation.erase(2);
  EXPECT_EQ(with_tools({"-q", "--load", file("part.json", conversation.dump())}, "/tool 21.5\n").out, "It is warm.\n");
  EXPECT_EQ(with_tools({"-q", "--load", file("part.json", conversation.dump())}, "/retry\n").out, call);

  EXPECT_TRUE(fails(with_tools({"-q"}, question + "Well?\n"), 1,
                    {"get_weather", "is waiting for the result of a function", "/tool TEXT"}));
  EXPECT_TRUE(fails(with_tools({"-q"}, "/tool 7\n"), 1, {"no pending function call"}));
  EXPECT_TRUE(fails(with_tools({"-q", "--template", "chatml"}, question), 1, {"chatml", "does not support tools"}));
  const auto refused = [&](const std::string& path) {
    return tessera_with(chat({"-q", "--tools", path}, model), typed(question));
  };
  EXPECT_TRUE(fails(refused(file("bad.json", "{]")), 1, {"bad.json", "not valid JSON"}));
  EXPECT_TRUE(fails(refused(folder / "none.json"), 1, {"none.json", "cannot be read", "No such file"}));
  EXPECT_TRUE(fails(tessera_with(chat({"-q", "--tools", tools})), 1, {"does not support tools"}));
}

/// Returns the visible text of a terminal, without styles and cursor movements.
std::string visible(const std::string& out) {
  std::string text;
  for (std::size_t i = 0; i < out.size(); ++i) {
    if (out[i] == '\x1b' && i + 1 < out.size() && out[i + 1] == '[')
      for (i += 2; i < out.size() && (out[i] < '@' || out[i] > '~');) ++i;
    else if (out[i] != '\r')
      text += out[i];
  }
  return text;
}

TEST(ChatTerminal, ThoughtsBeforeACallAreOnTheirOwnLine) {
  const TemporaryFolder folder;
  const std::string tools = folder / "tools.json", call = "get_weather {\"town\":\"Zürich\"}\n";
  write_file(tools, weather_tools);
  int number = 0;
  for (const auto& [first, shown] : std::vector<std::pair<std::vector<std::string>, std::string>>{
           {{"<think>", "Rain?", "</think>", "\n\n"}, "Rain?\n"},
           {{"<think>", "\n", "Rain?\n", "</think>", "\n\n", "I look.\n"}, "Rain?\n\nI look.\n"},
           {{"<think>", "Rain?", "</think>", "I look."}, "Rain?\n\nI look.\n"},
           {{}, ""}}) {
    const std::string model = folder / ("weather" + std::to_string(number++) + ".gguf");
    weather_model(first).write(model);
    Terminal t(TESSERA_PROGRAM, kernels(), chat({"-q", "--tools", tools, "-p", "How is the weather?"}, model));
    EXPECT_EQ(t.ends(), 0) << t.out();
    EXPECT_EQ(visible(t.out()), shown + call);
  }
}

TEST(Chat, CtrlCInAScriptEndsTheProgram) {
  std::vector<std::string> endless = {"chat",         model().path(), "--device",    "cpu",
                                      "--logit-bias", "2047=-inf",    "--when-full", "shift"};
  RunOptions o = typed("What is an index?\nAnd a table?\n");
  o.interrupt = [](const std::string& out, const auto&) { return !out.empty(); };
  const Outcome cut = tessera_with(endless, o);
  EXPECT_EQ(cut.code, 130) << cut.err;
  EXPECT_FALSE(cut.late);
  EXPECT_TRUE(holds(cut.err, {"(stopped)"}));
}

TEST(ChatTerminal, CtrlCStopsTheAnswerButNotTheProgram) {
  Terminal t(TESSERA_PROGRAM, kernels(),
             {"chat", model().path(), "--device", "cpu", "--logit-bias", "2047=-inf", "--seed", "1"});
  ASSERT_TRUE(t.shows("/help lists the commands")) << t.out();
  ASSERT_TRUE(t.prompts()) << t.out();
  t.send("What is an index?\r");
  ASSERT_TRUE(t.shows("e")) << t.out();
  ASSERT_TRUE(t.shows("\n")) << t.out();
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(t.shows(" t")) << t.out();
  t.send("\x03");
  ASSERT_TRUE(t.shows("(stopped")) << t.out();
  ASSERT_TRUE(t.prompts()) << t.out();
  // At the prompt, Ctrl-C discards the line and prints how to quit.
  t.send("/nonsense\x03");
  ASSERT_TRUE(t.shows("(Ctrl-D or /quit ends)")) << t.out();
  t.send("/nope\r");
  ASSERT_TRUE(t.shows("unknown command")) << t.out();
  EXPECT_EQ(t.out().find("/nonsense)"), std::string::npos);
  ASSERT_TRUE(t.prompts()) << t.out();
  t.send("\x04");
  EXPECT_EQ(t.ends(), 0) << t.out();
}

TEST(ChatTerminal, LinesAreEditedAndRecalled) {
  const std::string saved = model().path_in_folder("typed.json");
  Terminal t(TESSERA_PROGRAM, kernels(), chat({}));
  ASSERT_TRUE(t.prompts()) << t.out();
  const auto answered = [&] { return t.shows("the answer was cut off at 12 tokens") && t.prompts(); };
  t.send("What is n\xc3\xa9x\x7f\x1b[D\x1b[Da\xc3\xa8\r");  // "néx", backspace, two times cursor left, "aè"
  ASSERT_TRUE(answered()) << t.out();
  t.send("\x1b[A!\r");  // recall the previous line and append text
  ASSERT_TRUE(answered()) << t.out();
  t.send("/save " + saved + "\r");
  ASSERT_TRUE(t.shows("4 messages written")) << t.out();
  t.send("/quit\r");
  EXPECT_EQ(t.ends(), 0);
  const json all = json::parse(text_of(saved));
  const std::string first = all[0]["content"], second = all[2]["content"];
#ifdef TESSERA_LIBEDIT
  EXPECT_EQ(first, "What is a\xc3\xa8n\xc3\xa9");
#endif
  EXPECT_EQ(second, first + "!");
}

#ifdef TESSERA_LIBEDIT
TEST(ChatTerminal, PastedLinesAreOneMessage) {
  const std::string saved = model().path_in_folder("pasted.json"), on = "\x1b[?2004h", off = "\x1b[?2004l";
  Terminal t(TESSERA_PROGRAM, kernels(), chat({}));
  ASSERT_TRUE(t.prompts()) << t.out();
  EXPECT_NE(t.out().find(on), std::string::npos);
  EXPECT_EQ(t.out().find(off), std::string::npos);
  t.send("See: \x1b[200~an \xc3\xa9\rindex\r\n\ton\x1b[31m\n\x1b[201~ it\r");
  ASSERT_TRUE(t.shows("the answer was cut off at 12 tokens") && t.prompts()) << t.out();
  t.send("/save " + saved + "\r");
  ASSERT_TRUE(t.shows("2 messages written") && t.prompts()) << t.out();
  EXPECT_EQ(json::parse(text_of(saved))[0]["content"], "See: an \xc3\xa9\nindex\n\ton[31m it");
  // Several lines are no command, and nothing in them has a meaning.
  const std::string code = "// one\n/show\n\"\"\"two\\";
  t.send("\x1b[200~" + code + "\x1b[201~\r");
  ASSERT_TRUE(t.shows("the answer was cut off at 12 tokens") && t.prompts()) << t.out();
  t.send("/save " + saved + "\r");
  ASSERT_TRUE(t.shows("4 messages written") && t.prompts()) << t.out();
  EXPECT_EQ(json::parse(text_of(saved))[2]["content"], code);
  t.kill(SIGTERM);
  EXPECT_EQ(t.ends(), 128 + SIGTERM);
  EXPECT_TRUE(t.out().ends_with(off)) << json(t.out()).dump();
}
#endif

TEST(ChatTerminal, AnswersAreWrappedBetweenWords) {
  const TemporaryFolder folder;
  const std::string path = folder / "words.gguf", saved = folder / "saved.json";
  const std::vector<std::string> line = {"<|ask|>",  "The qu",  "ick br", "own fox jumps ", "over the la", "zy dog, ",
                                         "and then", " it sle", "eps",    ".\n\n  Then it", " w",          "akes.",
                                         "<|end|>"};
  scripted_model({"<|end|>", "<|ask|>"}, {line}, "{% for m in messages %}{{ m.content }}{% endfor %}<|ask|>")
      .write(path);
  Terminal t(TESSERA_PROGRAM, kernels(), {"chat", path, "--device", "cpu", "--temperature", "0"}, 30);
  ASSERT_TRUE(t.prompts()) << t.out();
  t.send("Hi\r");
  ASSERT_TRUE(t.shows("tokens/s)") && t.prompts()) << t.out();
  EXPECT_TRUE(holds(visible(t.out()), {"\nThe quick brown fox jumps over\nthe lazy dog, and then it\nsleeps.\n\n"
                                       "  Then it wakes.\n"}));
  EXPECT_NE(t.out().find("\x1b[2m(11 tokens, "), std::string::npos) << "speeds are dimmed: " << t.out();
  t.send("/save " + saved + "\r");
  ASSERT_TRUE(t.shows("2 messages written")) << t.out();
  EXPECT_EQ(json::parse(text_of(saved))[1]["content"],
            "The quick brown fox jumps over the lazy dog, and then it sleeps.\n\n  Then it wakes.");
}

TEST(ChatTerminal, ShowsProgressWhileALongMessageIsRead) {
  std::string text;
  for (int i = 0; i < 900; ++i) text += "index ";
  Terminal t(TESSERA_PROGRAM, kernels(),
             {"chat", model().path(), "--device", "interp", "--batch", "1", "-n", "1", "-p", text});
  ASSERT_TRUE(t.shows("\rreading ") && t.shows(" tokens\x1b[K")) << t.out();
  t.send("\x03");
  ASSERT_TRUE(t.shows("\r\x1b[K") && t.shows("the message is dropped")) << t.out();
  EXPECT_EQ(t.ends(), 130);
}

TEST(Tokenize, PrintsPiecesIdsAndText) {
  const std::string text = "The index\n\xc3\xa9";
  const Outcome table = tessera_with({"tokenize", bare, text});
  EXPECT_EQ(table.code, 0) << table.err;
  EXPECT_EQ(table.out,
            "   2047  <|endoftext|>  (control)\n    384  \"The\"\n    538  \" index\"\n     10  \"\\n\"\n"
            "    195  \"\\xc3\"\n    169  \"\\xa9\"\n");
  EXPECT_EQ(tessera_with({"tokenize", bare, "--ids", "-"}, typed(text)).out, "2047 384 538 10 195 169\n");
  EXPECT_EQ(tessera_with({"tokenize", bare, "--ids", "--bare", text}).out, "384 538 10 195 169\n");
  EXPECT_EQ(tessera_with({"tokenize", bare, "--ids", "--special", "--bare", "<|endoftext|>"}).out, "2047\n");
  EXPECT_EQ(tessera_with({"tokenize", bare, "--decode", "2047 384, 538 10\n195 169"}).out, text + "\n");
  EXPECT_EQ(tessera_with({"tokenize", bare, "--decode", "--special", "2047 384"}).out, "<|endoftext|>The\n");
  const json rows = json::parse(tessera_with({"tokenize", bare, "--json", "The index"}).out);
  EXPECT_EQ(rows[2], (json{{"id", 538}, {"text", "\xc4\xa0index"}, {"bytes", " index"}}));
  EXPECT_TRUE(fails(tessera_with({"tokenize", bare, "--decode", "1 x"}), 1, {"number = x"}));
  EXPECT_TRUE(fails(tessera_with({"tokenize", bare, "--decode", "99999"}), 1, {"99999", "the token does not exist"}));
  EXPECT_TRUE(fails(tessera_with({"tokenize", bare}), 2, {"TEXT"}));
  EXPECT_TRUE(fails(tessera_with({"tokenize", "README.md", "a"}), 1, {"README.md"}));
}

TEST(Generate, SupportsIdsChatStopStringsAndLogProbabilities) {
  const std::vector<std::string> rest = {"--device", "cpu", "--temperature", "0", "-n", "8"};
  const auto generate = [&](const std::string& file, std::vector<std::string> more) {
    std::vector<std::string> all = {"generate", file};
    all.insert(all.end(), rest.begin(), rest.end());
    all.insert(all.end(), more.begin(), more.end());
    return tessera_with(all);
  };
  const json j = json::parse(generate(bare, {"-p", "The index", "--json", "--logprobs", "2", "--threads", "1"}).out);
  std::string numbers;
  for (const int id : j["tokens"]) numbers += (numbers.empty() ? "" : " ") + std::to_string(id);
  EXPECT_EQ(generate(bare, {"--ids", "-p", "2047 384 538", "-q"}).out, numbers + "\n");
  ASSERT_EQ(j["logprobs"].size(), j["tokens"].size());
  EXPECT_EQ(j["logprobs"][0]["token"], j["tokens"][0]);
  ASSERT_EQ(j["logprobs"][0]["likeliest"].size(), 2u);
  std::string bytes;
  for (const json& token : j["logprobs"])
    for (const int byte : token["bytes"]) bytes += static_cast<char>(byte);
  EXPECT_EQ(bytes, j["text"].get<std::string>());
  EXPECT_EQ(j["logprobs"][0]["likeliest"][0]["text"], j["logprobs"][0]["text"]) << "greedy";
  EXPECT_LT(j["logprobs"][0]["logprob"].get<double>(), 0);
  const std::string text = j["text"], stop = text.substr(4, 5);
  EXPECT_EQ(generate(bare, {"-p", "The index", "-q", "--stop", stop}).out, text.substr(0, text.find(stop)) + "\n");
  const std::string first = std::to_string(j["tokens"][0].get<int>());
  const json other = json::parse(generate(bare, {"-p", "The index", "--json", "--logit-bias", first + "=-inf"}).out);
  EXPECT_NE(other["tokens"][0], j["tokens"][0]);
  // `generate --chat` produces the same answer as `chat`.
  const Outcome turn =
      generate(model().path(), {"-p", "What is an index?", "--chat", "--system", "S", "--cache", "f32"});
  EXPECT_EQ(turn.out, tessera_with({"chat", model().path(), "--device", "cpu", "--temperature", "0", "-n", "8",
                                    "--cache", "f32", "-q", "-p", "What is an index?", "--system", "S"})
                          .out);
  EXPECT_TRUE(holds(turn.err, {"template  the chat template of "}));
  EXPECT_TRUE(fails(generate(bare, {"-p", "a", "--chat"}), 1, {"no chat template"}));
  EXPECT_TRUE(fails(generate(bare, {"-p", "a", "--template", "chatml"}), 2, {"--chat"}));
  EXPECT_TRUE(fails(generate(bare, {"-p", "1 b", "--ids"}), 1, {"number = b"}));
  EXPECT_TRUE(fails(generate(bare, {"-p", "99999", "--ids"}), 1, {"99999", "vocabulary"}));
  EXPECT_TRUE(fails(generate(bare, {"-p", "a", "--logprobs", "1"}), 2, {"--json"}));
}

TEST(Generate, ReadsControlTokensOnlyIfRequested) {
  const auto generate = [](std::vector<std::string> more) {
    more.insert(more.begin(), {"generate", bare, "--device", "cpu", "-n", "1", "--json", "-q"});
    return tessera_with(more);
  };
  const std::string prompt = "The index<|endoftext|>The";
  const Outcome plain_text = generate({"-p", prompt});
  EXPECT_EQ(plain_text.err,
            "tessera: warning: <|endoftext|> in the prompt is read as plain text; --special reads it as a control "
            "token\n");
  EXPECT_GT(json::parse(plain_text.out)["prompt_tokens"].size(), 6u);
  const Outcome parsed = generate({"-p", prompt, "--special"});
  EXPECT_EQ(parsed.err, "");
  EXPECT_EQ(json::parse(parsed.out)["prompt_tokens"], (json{2047, 384, 538, 2047, 384}));
  EXPECT_EQ(generate({"-p", "The index <|end|>"}).err, "") << "not a token";
  EXPECT_TRUE(fails(generate({"-p", "a", "--special", "--chat"}), 2, {"--special", "--chat"}));
  EXPECT_TRUE(fails(generate({"-p", "1", "--special", "--ids"}), 2, {"--special", "--ids"}));
}

TEST(Generate, WarnsAboutTextThatIsNotUtf8) {
  const auto warning = [](const std::string& prompt) {
    return tessera_with({"generate", bare, "--device", "cpu", "-n", "1", "--json", "-q", "-p", prompt}).err;
  };
  EXPECT_EQ(warning("na\xc3\xafve \xf0\x9f\xa6\x8a"), "");
  EXPECT_TRUE(holds(warning("na\xefve"), {"the prompt is not UTF-8: byte 2 is 0xef", "iconv"}));
  EXPECT_TRUE(holds(tessera_with({"tokenize", bare, "a\xc3"}).err, {"the text is not UTF-8: byte 1 is 0xc3"}));
  const Outcome message = tessera_with(chat({}), typed("na\xefve\n"));
  EXPECT_TRUE(holds(message.err, {"the message is not UTF-8: byte 2 is 0xef"}));
}

/// Replaces numbers with four decimals by `#` and returns them. Their last digits depend on the processor.
std::vector<double> take_decimals(std::string& text) {
  static const std::regex number("-?\\d\\.\\d{4}\\b");
  std::vector<double> out;
  for (std::sregex_iterator i(text.begin(), text.end(), number), end; i != end; ++i) out.push_back(std::stod(i->str()));
  text = std::regex_replace(text, number, "#");
  return out;
}

TEST(Documents, CommandsOfLlmMdPrintTheDocumentedOutput) {
  const std::string page = text_of("docs/llm.md");
  const std::string folder = std::filesystem::path(TESSERA_PROGRAM).parent_path();
  RunOptions shell;
  shell.program = "/bin/sh";
  shell.environment = {{"TESSERA_KERNEL_CACHE", "1"},
                       {"TESSERA_CACHE_DIR", kernels()},
                       {"TESSERA_DEVICE", "cpu"},
                       {"PATH", folder + ":/usr/bin:/bin"}};
  int commands = 0;
  std::istringstream lines(page);
  std::string command, shown;
  bool inside = false;
  const auto check = [&] {
    if (!command.empty()) {
      Outcome o = run({"-c", command}, shell);
      const std::vector<double> decimals = take_decimals(o.out);
      EXPECT_THAT(decimals, testing::Pointwise(testing::DoubleNear(1e-3), take_decimals(shown))) << command;
      EXPECT_EQ(o.out, shown) << command << "\n" << o.err;
      ++commands;
    }
    command.clear(), shown.clear();
  };
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("```")) {
      check();
      inside = line == "```console";
    } else if (inside && line.starts_with("$ ")) {
      check();
      command = line.substr(2);
    } else if (inside) {
      shown += line + "\n";
    }
  }
  EXPECT_EQ(commands, 12);
  const std::string block = page.substr(page.find("```cpp\n") + 7);
  EXPECT_NE(text_of("examples/language_models/chat.cpp").find(block.substr(0, block.find("```"))), std::string::npos);
  for (const std::string& family : tessera::ChatTemplate::families())
    EXPECT_NE(page.find(family), std::string::npos) << family;
}

TEST(Documents, FunctionCallConversationMatchesLlmMd) {
  const std::string page = text_of("docs/llm.md"), begin = "```text\n> ";
  ASSERT_NE(page.find(begin), std::string::npos);
  const std::string rest = page.substr(page.find(begin) + begin.size() - 2), block = rest.substr(0, rest.find("```"));
  // Pairs of the text that is typed at a prompt and the output before the next prompt.
  std::vector<std::pair<std::string, std::string>> turns;
  std::istringstream lines(block);
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("> "))
      turns.emplace_back(line.substr(2), "");
    else if (!turns.empty())
      turns.back().second += line + "\n";
  }
  ASSERT_EQ(turns.size(), 2u);
  const TemporaryFolder folder;
  const std::string model = folder / "weather.gguf", tools = folder / "tools.json";
  weather_model().write(model);
  write_file(tools, weather_tools);
  Terminal t(TESSERA_PROGRAM, kernels(), {"chat", model, "--device", "cpu", "--tools", tools});
  ASSERT_TRUE(t.prompts()) << t.out();
  for (auto [typed, shown] : turns) {
    if (!shown.ends_with("\n\n")) shown += "\n";  // there is an empty line before each prompt
    const std::size_t before = t.out().size();
    t.send(typed + "\r");
    ASSERT_TRUE(t.shows("tokens/s)") && t.prompts()) << t.out();
    const std::string now =
        std::regex_replace(visible(t.out().substr(before)), std::regex(R"(\(\d+ tokens?, [\d.]+ tokens/s\)\n)"), "");
    EXPECT_EQ(now.substr(std::min(now.size(), now.find('\n') + 1)), shown + "> ");
  }
  t.send("/quit\r");
  EXPECT_EQ(t.ends(), 0);
}

}  // namespace
