// SPDX-License-Identifier: Apache-2.0
// `tessera train`: results, files, resuming, and errors.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <random>
#include <regex>
#include <set>

#include "app/image.h"
#include "tessera/tessera.h"
#include "tessera/testing/testing.h"
#include "tests/app/app_program.h"

using namespace tessera::test;
using nlohmann::json;

namespace {

using Arguments = std::vector<std::string>;

/// Runs `tessera train` with one thread, so that the order of additions is fixed, and with a shared kernel cache.
Outcome train(const Arguments& more, RunOptions options = {}) {
  Arguments all = {"train"};
  all.insert(all.end(), more.begin(), more.end());
  options.environment.emplace("TESSERA_DEVICE", "cpu");
  options.environment.emplace("TESSERA_KERNEL_CACHE", "1");
  if (const char* cache = std::getenv("TESSERA_CACHE_DIR")) options.environment.emplace("TESSERA_CACHE_DIR", cache);
  options.limit = 300;
  return run(all, options);
}
const Arguments small = {"--batch", "16", "--seed", "7"};
Arguments with(Arguments a, const Arguments& more) {
  a.insert(a.end(), more.begin(), more.end());
  return a;
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> out;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    out.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return out;
}

/// Checks that an XML text is well formed: tags match, attributes are quoted, and only XML's own entities are used.
testing::AssertionResult well_formed(const std::string& xml) {
  std::vector<std::string> open;
  const std::regex tag(R"re(<(\?xml [^>]*\?|/?[a-z]+((\s+[a-zA-Z][\w:-]*="[^"<]*")*)\s*/?)>)re");
  std::size_t at = 0;
  while ((at = xml.find('<', at)) != std::string::npos) {
    const std::size_t end = xml.find('>', at);
    const std::string one = xml.substr(at, end - at + 1);
    if (end == std::string::npos || !std::regex_match(one, tag)) return testing::AssertionFailure() << one;
    const std::string name = one.substr(1, one.find_first_of(" />", 2) - 1);
    if (one[1] == '/') {
      if (open.empty() || "/" + open.back() != one.substr(1, one.size() - 2))
        return testing::AssertionFailure() << one << " closes nothing";
      open.pop_back();
    } else if (one[1] != '?' && one[one.size() - 2] != '/') {
      open.push_back(name);
    }
    at = end;
  }
  if (!open.empty()) return testing::AssertionFailure() << open.back() << " is not closed";
  const std::regex bare("&(?!(lt|gt|amp|quot);)");
  if (std::regex_search(xml, bare)) return testing::AssertionFailure() << "a bare &";
  return testing::AssertionSuccess();
}

/// Returns the number of points of each line in a plot.
std::vector<std::size_t> points_of(const std::string& svg) {
  std::vector<std::size_t> out;
  const std::regex points("<polyline [^>]*points=\"([^\"]*)\"");
  for (std::sregex_iterator at(svg.begin(), svg.end(), points), end; at != end; ++at) {
    const std::string text = (*at)[1];
    out.push_back(static_cast<std::size_t>(std::count(text.begin(), text.end(), ',')));
  }
  return out;
}

TEST(Train, DigitsWritesItsModelAndResults) {
  for (const std::string model : {"mlp", "conv"}) {
    const TemporaryFolder folder;
    const std::string out = folder / "m.safetensors", csv = folder / "c.csv", svg = folder / "c.svg";
    const Outcome o = train(
        with({"digits", "--model", model, "--steps", "30", "--out", out, "--csv", csv, "--svg", svg, "--lr", "0.003"},
             small));
    ASSERT_EQ(o.code, 0) << o.err;
    for (const char* part : {"30 steps of 16 samples", "of 10,000 samples of fonts", "misread", "device    cpu:0",
                             "m.safetensors", "c.csv", "c.svg"})
      EXPECT_NE(o.out.find(part), std::string::npos) << part << " is not in: " << o.out;

    const auto rows = lines_of(text_of(csv));
    ASSERT_EQ(rows.size(), 32u);  // the header, the initial state, and one row per step
    EXPECT_EQ(rows[0], "step,samples,rate,loss,held_out_loss,held_out_accuracy");
    double first = 0, last = 0;
    for (std::size_t i = 1; i < rows.size(); ++i) {
      EXPECT_EQ(std::count(rows[i].begin(), rows[i].end(), ','), 5) << rows[i];
      EXPECT_EQ(rows[i].find(fmt::format("{},{},", i - 1, 16 * (i - 1))), 0u) << rows[i];
      const std::size_t at = rows[i].rfind(',', rows[i].rfind(',') - 1);
      last = std::stod(rows[i].substr(at + 1));
      if (i == 1) first = last;
    }
    EXPECT_LT(last, first);

    const std::string picture = text_of(svg);
    EXPECT_TRUE(well_formed(picture));
    auto points = points_of(picture);
    std::sort(points.begin(), points.end());
    EXPECT_EQ(points, (std::vector<std::size_t>{30, 31, 31}));
    for (const char* part : {"prefers-color-scheme: dark", ">loss<", ">accuracy, %<", ">steps<", ">training<"})
      EXPECT_NE(picture.find(part), std::string::npos) << part;

    const auto file = tessera::SafetensorsFile::open(out);
    EXPECT_EQ(file.metadata().at("task"), "digits");
    EXPECT_EQ(file.metadata().at("model"), model);
    std::size_t parameters = 0;
    for (const auto& t : file.tensors())
      if (t.name.find("model") == 0) parameters += t.bytes / 4;
    EXPECT_EQ(parameters, model == "mlp" ? 784u * 256 + 256 + 2570 : 208u + 1168 + 784 * 64 + 64 + 650);
  }
}

TEST(Train, InterruptedRunResumesBitForBit) {
  for (const std::string precision : {"f32", "f16"}) {
    const TemporaryFolder folder;
    const auto options = [&](const std::string& name) {
      return Arguments{"--out", folder / (name + ".st"), "--csv", folder / (name + ".csv")};
    };
    const Arguments digits = with({"digits", "--model", "mlp", "--steps", "60", "--precision", precision}, small);
    ASSERT_EQ(train(with(digits, options("whole"))).code, 0);
    // Interrupt the run after its first steps, resume it, and kill it later.
    const auto rows = [&](const std::string& name) { return lines_of(text_of(folder / (name + ".csv"))).size(); };
    RunOptions interrupt;
    interrupt.interrupt = [&](const auto&, const auto&) { return rows("parts") > 5; };
    const Outcome first = train(with(digits, options("parts")), interrupt);
    EXPECT_TRUE(first.code == 130 || (first.code == 0 && rows("parts") == 32)) << first.code << first.err;
    const Outcome second = train(with({"digits", "--resume", folder / "parts.st"}, options("parts")));
    ASSERT_EQ(second.code, 0) << second.err;
    EXPECT_TRUE(same_file(folder / "parts.st", folder / "whole.st"));
    EXPECT_TRUE(same_file(folder / "parts.csv", folder / "whole.csv"));
    // If all steps are done, resuming reports the same results again.
    const Outcome again = train({"digits", "--resume", folder / "parts.st", "--json"});
    ASSERT_EQ(again.code, 0) << again.err;
    const json j = json::parse(again.out);
    EXPECT_EQ(j["steps"], 0);
    EXPECT_EQ(j["held_out"]["samples"], 10000);
    EXPECT_EQ(j["device"], "cpu:0");
    EXPECT_EQ(j["precision"], precision);
    EXPECT_EQ(j["loss_scale"], precision == "f16" ? 65536 : 1);
    // The number of steps can be increased.
    const Outcome more = train({"digits", "--resume", folder / "parts.st", "--steps", "62", "--json"});
    ASSERT_EQ(more.code, 0) << more.err;
    EXPECT_EQ(json::parse(more.out)["steps"], 2);
  }
}

TEST(Train, EpochHas10000SamplesAndEachPrecisionLearns) {
  const auto run = [](const Arguments& more) {
    const Outcome o = train(with({"spirals", "--batch", "600", "--json"}, more));
    EXPECT_EQ(o.code, 0) << o.err;
    return o.code == 0 ? json::parse(o.out) : json();
  };
  const json one = run({"--epochs", "3"});
  EXPECT_EQ(one["steps"], 50);
  EXPECT_EQ(one["precision"], "f32");
  for (const std::string precision : {"bf16", "f16"}) {
    const json j = run({"--epochs", "3", "--precision", precision});
    EXPECT_EQ(j["steps"], 50);
    EXPECT_EQ(j["precision"], precision);
    EXPECT_NEAR(j["held_out"]["accuracy"], one["held_out"]["accuracy"], 0.05);
    EXPECT_NE(j["held_out"]["loss"], one["held_out"]["loss"]);
  }
  const Outcome o = train({"spirals", "--steps", "4", "--precision", "f16"});
  EXPECT_NE(o.out.find("precision f16, with f32 weights; loss scale 65536, 0 steps skipped"), o.out.npos) << o.out;
}

TEST(Train, KilledRunResumesBitForBit) {
  const bool all = std::getenv("TESSERA_TEST_LONG") != nullptr;
  const int points = all ? 20 : 3;
  std::mt19937_64 random(tessera::testing::seed());
  int killed = 0, before_the_first_step = 0;
  const auto program = [&](const Arguments& task, int most) {
    const TemporaryFolder folder;
    const auto options = [&](const std::string& name) {
      return Arguments{"--out", folder / (name + ".st"), "--csv", folder / (name + ".csv")};
    };
    const Outcome whole = train(with(task, options("whole")));
    ASSERT_EQ(whole.code, 0) << whole.err;
    while (killed < most) {
      // The kill times range from the start to shortly after the end of an uninterrupted run. The run is resumed and
      // killed again until it ends.
      std::filesystem::remove(folder / "parts.st");
      for (bool ended = false; !ended;) {
        const bool resumes = std::filesystem::exists(folder / "parts.st");
        const Arguments now =
            resumes ? with({task[0], "--resume", folder / "parts.st"}, options("parts")) : with(task, options("parts"));
        const double after =
            std::uniform_real_distribution<double>(0, killed < most ? 1.05 : 0)(random) * whole.seconds;
        const auto start = std::chrono::steady_clock::now();
        RunOptions kill{.signal = SIGKILL};
        if (killed < most)
          kill.interrupt = [&](const auto&, const auto&) {
            // The first kill is as soon as the file exists, at about the first step.
            if (killed == 0) return std::filesystem::exists(folder / "parts.st");
            return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() > after;
          };
        const Outcome o = train(now, kill);
        ended = o.code == 0;
        ASSERT_TRUE(ended || o.code == 128 + SIGKILL) << o.code << ": " << o.err;
        killed += !ended;
        before_the_first_step += !ended && !std::filesystem::exists(folder / "parts.st");
      }
      ASSERT_TRUE(same_file(folder / "parts.st", folder / "whole.st")) << "seed " << tessera::testing::seed();
      ASSERT_TRUE(same_file(folder / "parts.csv", folder / "whole.csv"));
    }
  };
  program(with({"spirals", "--steps", "150", "--arms", "3"}, small), all ? points / 2 : points);
  if (all) program(with({"digits", "--steps", "120", "--model", "conv"}, small), points);
  std::printf("killed %d times, %d of these before there was a file, seed %llu\n", killed, before_the_first_step,
              static_cast<unsigned long long>(tessera::testing::seed()));
}

TEST(Train, ClassifiesAnImageWithAModel) {
  const TemporaryFolder folder;
  const std::string model = folder / "m.st";
  ASSERT_EQ(train({"digits", "--model", "mlp", "--steps", "250", "--out", model}).code, 0);
  // Draw a one and a seven as a user might: large, dark on light, and off-centre.
  const auto drawn = [&](bool seven, const std::string& name) {
    tessera::app::Image paper{200, 160, std::vector<float>(200 * 160, 0.95f)};
    for (std::size_t y = 30; y < 130; ++y)
      for (std::size_t x = 0; x < 200; ++x) {
        const double down = double(y) - 30, across = double(x) - 100;
        const bool ink = seven ? (down < 14 && std::abs(across) < 32) || std::abs(across - 25 + 0.5 * down) < 8
                               : std::abs(across) < 8;
        if (ink) paper.grey[y * 200 + x] = 0.1f;
      }
    tessera::app::write_png(folder / name, paper);
    return folder / name;
  };
  for (const bool seven : {false, true}) {
    const std::string picture = drawn(seven, seven ? "seven.png" : "one.png");
    const Outcome o = train({"digits", "--resume", model, "--image", picture});
    ASSERT_EQ(o.code, 0) << o.err;
    const auto rows = lines_of(o.out);
    ASSERT_EQ(rows.size(), 11u) << o.out;
    double total = 0;
    for (std::size_t i = 0; i < 10; ++i) total += std::stod(rows[i].substr(3));
    EXPECT_NEAR(total, 100, 0.1);
    EXPECT_EQ(rows[10], picture + " is a " + (seven ? "7" : "1")) << o.out;
    const json j = json::parse(train({"digits", "--resume", model, "--image", picture, "--json"}).out);
    EXPECT_EQ(j["digit"], seven ? 7 : 1);
    EXPECT_EQ(j["probabilities"].size(), 10u);
  }
  tessera::app::write_png(folder / "empty.png", {20, 20, std::vector<float>(400, 1)});
  EXPECT_TRUE(fails(train({"digits", "--resume", model, "--image", folder / "empty.png"}), 1, {"uniform brightness"}));
  write_file(folder / "text.png", "not a picture");
  EXPECT_TRUE(fails(train({"digits", "--resume", model, "--image", folder / "text.png"}), 1, {"text.png"}));
  EXPECT_TRUE(fails(train({"digits", "--image", folder / "one.png"}), 2, {"--resume"}));
}

TEST(Train, SpiralsAreClassifiedAndDrawn) {
  for (const std::string arms : {"2", "3"}) {
    const TemporaryFolder folder;
    const std::string svg = folder / "plane.svg", out = folder / "m.st";
    const Outcome o =
        train({"spirals", "--arms", arms, "--steps", "400", "--batch", "128", "--picture", svg, "--out", out});
    ASSERT_EQ(o.code, 0) << o.err;
    const auto rows = lines_of(o.out);
    ASSERT_GT(rows.size(), 35u);
    std::set<char> classes;
    for (std::size_t y = 0; y < 32; ++y) {
      EXPECT_EQ(rows[y].size(), 64u);
      classes.insert(rows[y].begin(), rows[y].end());
    }
    EXPECT_EQ(classes.size(), std::stoul(arms)) << o.out;
    std::smatch right;
    ASSERT_TRUE(std::regex_search(o.out, right, std::regex("held out  ([0-9.]+) % of 10,000 points"))) << o.out;
    EXPECT_GT(std::stod(right[1]), 90) << o.out;
    const std::string picture = text_of(svg);
    EXPECT_TRUE(well_formed(picture));
    const std::regex circle("<circle ");
    EXPECT_EQ(std::distance(std::sregex_iterator(picture.begin(), picture.end(), circle), std::sregex_iterator()), 600);
    const std::string png = folder / "plane.png";
    const Outcome again = train({"spirals", "--resume", out, "--picture", png, "--json"});
    ASSERT_EQ(again.code, 0) << again.err;
    EXPECT_EQ(tessera::app::read_png(png).width, 160u);
    EXPECT_TRUE(fails(train({"digits", "--resume", out}), 1, {"written by tessera train spirals"}));
  }
}

TEST(Train, RejectsInvalidRequests) {
  const TemporaryFolder folder;
  const std::string model = folder / "m.st";
  ASSERT_EQ(train(with({"digits", "--model", "mlp", "--steps", "2", "--out", model}, small)).code, 0);
  EXPECT_TRUE(fails(train({"digits", "--device", "cuda:17"}), 1, {"cuda:17"}));
  EXPECT_TRUE(fails(train({"digits", "--device", "abacus"}), 1, {"abacus"}));
  EXPECT_TRUE(fails(train({"digits", "--device", ""}), 2, {"--device"}));
  EXPECT_TRUE(fails(train({"digits", "--steps", "0"}), 2, {"--steps"}));
  EXPECT_TRUE(fails(train({"digits", "--steps", "3", "--epochs", "1"}), 2, {"--steps", "--epochs"}));
  EXPECT_TRUE(fails(train({"digits", "--epochs", "0"}), 2, {"--epochs"}));
  EXPECT_TRUE(fails(train({"digits", "--precision", "f64"}), 2, {"--precision", "f64"}));
  EXPECT_TRUE(fails(train({"digits", "--lr", "0"}), 2, {"--lr"}));
  EXPECT_TRUE(fails(train({"digits", "--lr", "nan"}), 2, {"--lr"}));
  EXPECT_TRUE(fails(train({"digits", "--batch", "-1"}), 2, {"--batch"}));
  EXPECT_TRUE(fails(train({"digits", "--model", "transformer"}), 2, {"transformer"}));
  EXPECT_TRUE(fails(train({"spirals", "--arms", "5"}), 2, {"--arms"}));
  EXPECT_TRUE(fails(train({"spirals", "--picture", "x.gif"}), 2, {"x.gif"}));
  // Unwritable files are reported before training.
  EXPECT_TRUE(fails(train({"digits", "--out", "/proc/no/m.st"}), 1, {"/proc/no/m.st"}));
  EXPECT_TRUE(fails(train({"digits", "--csv", "/proc/no/c.csv"}), 1, {"/proc/no/c.csv"}));
  EXPECT_TRUE(fails(train({"digits", "--resume", folder / "none.st"}), 1, {"none.st"}));
  EXPECT_TRUE(fails(train({"digits", "--resume", model, "--batch", "17"}), 1, {"--batch", "trained with --batch 16"}));
  EXPECT_TRUE(fails(train({"digits", "--resume", model, "--model", "conv"}), 1, {"trained with --model mlp"}));
  EXPECT_TRUE(fails(train({"digits", "--resume", model, "--precision", "f16"}), 1, {"trained with --precision f32"}));
  EXPECT_TRUE(fails(train({"digits", "--resume", model, "--steps", "1"}), 1, {"the checkpoint already has 2 steps"}));
  const std::string whole = text_of(model);
  write_file(folder / "cut.st", whole.substr(0, whole.size() / 2));
  EXPECT_TRUE(fails(train({"digits", "--resume", folder / "cut.st"}), 1, {"cut.st"}));
  tessera::save_safetensors(folder / "other.st", {{"x", tessera::Array::zeros({3})}});
  EXPECT_TRUE(fails(train({"digits", "--resume", folder / "other.st"}), 1, {"not written by tessera train"}));
  tessera::save_safetensors(folder / "less.st", {{"x", tessera::Array::zeros({3})}},
                            tessera::SafetensorsFile::open(model).metadata());
  EXPECT_TRUE(fails(train({"digits", "--resume", folder / "less.st"}), 1, {"missing: ", "unexpected: x"}));
}

TEST(Train, DigitsReaches97PercentWithinAMinute) {
  if (!std::getenv("TESSERA_TEST_LONG")) GTEST_SKIP() << "takes a minute; set TESSERA_TEST_LONG=1 to run it";
  for (const char* model : {"conv", "mlp"}) {
    const Outcome o = train({"digits", "--model", model, "--json", "--quiet"});
    ASSERT_EQ(o.code, 0) << o.err;
    EXPECT_GE(json::parse(o.out)["held_out"]["accuracy"], 0.97) << model;
    EXPECT_EQ(o.err, "");
    std::printf("%s: %.4f of 10,000 held out, %.1f s in all\n", model,
                json::parse(o.out)["held_out"]["accuracy"].get<double>(), o.seconds);
  }
}

}  // namespace
