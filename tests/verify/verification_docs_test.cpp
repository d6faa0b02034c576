// SPDX-License-Identifier: Apache-2.0
// Tests docs/verification.md. Every C++ block of the page is contained in this file, where it is compiled and run.
#include <gtest/gtest.h>
#include <tessera/tessera.h>

#include "tests/support/docs_page.h"
#include "tests/support/folder.h"

using namespace tessera;

namespace {

const test::DocsPage& page() {
  static const test::DocsPage one("docs/verification.md");
  return one;
}

TEST(VerificationDocs, EveryCodeBlockIsCompiled) {
  page().expect_blocks_in("tests/verify/verification_docs_test.cpp", 5);
}

/// Expects the page to contain each line of `text` except the first one, which contains times.
void expect_lines(const std::string& text) {
  for (std::size_t at = text.find('\n'); at != text.npos; at = text.find('\n', at + 1))
    page().expect(text.substr(at + 1, text.find('\n', at + 1) - at - 1));
}

// The code below must be identical to the code on the page.
// clang-format off

TEST(VerificationDocs, ExamplesProduceTheDocumentedResults) {
  const DeviceScope scope(Device{});
auto model = setup(sequential(dense<2, 4>, relu, dense<4, 2>), {.seed = 1});
model.get<0>().weight = Array::from<float>({1, 0, -1, 0, 0, 1, 0, -1}, Shape{4, 2});
model.get<0>().bias = Array::zeros({4});
model.get<2>().weight = Array::from<float>({1, 1, 1, 1, -1, -1, -1, -1}, Shape{2, 4});
model.get<2>().bias = Array::zeros({2});   // |x0| + |x1|, and minus that

InputBox box = InputBox::of({2}, -1, 1);   // all inputs whose two numbers are from -1 to 1
Proof proof = prove(model, bounded(-2.001, 2.001), box);
bool proven = proof.verdict == Verdict::proven;

  EXPECT_TRUE(proven);
  expect_lines(to_string(proof));

Proof wrong = prove(model, bounded(-1, 1), box);
Array x = wrong.counterexample->input, y = wrong.counterexample->output;   // (1, 2) each, as the device gave it

  EXPECT_EQ(wrong.verdict, Verdict::refuted);
  EXPECT_EQ(model(x).to_vector<float>(), y.to_vector<float>());
  expect_lines(to_string(wrong));

Proof unknown = prove(model, bounded(-2, 2), box);

  EXPECT_EQ(unknown.verdict, Verdict::unknown);
  expect_lines(to_string(unknown));

Array sample = Array::from<float>({0.5f, 0.25f});
Proof stays = prove(model, robust(0.2), InputBox::at(sample));               // of one input
Proof longer = prove(model, robust(0.2, Norm::two), InputBox::at(sample));   // distance as length
Proof all = prove(model, finite(), InputBox::around(sample, 100));
Proof order = prove(model, inequality({-1, 1}, 0.001), box);                 // y1 - y0 is at most 0.001

  for (const Proof* p : {&stays, &longer, &all, &order}) EXPECT_EQ(p->verdict, Verdict::proven) << to_string(*p);
  EXPECT_EQ(to_string(all).find("by at least"), std::string::npos);  // finite() has no margin

Array data = random_uniform({1000, 2}, 3, -1, 1);
std::optional<Counterexample> steep = find_counterexample(model, lipschitz(1.5, 0.1), data);
std::optional<Counterexample> own = find_counterexample(
    model, predicate("y0 is not below 0", [](const Array&, const Array& y) { return y.select(1, 0) >= 0; }), data);

  EXPECT_TRUE(steep);
  EXPECT_FALSE(own);
  const test::Folder folder;
  const std::string file = folder / "proof.json";

save_certificate(certificate_of(model, proof), file);
CertificateCheck check = check_certificate(model, load_certificate(file));
auto other = clone(model);
other.get<2>().bias = other.get<2>().bias + 1;
std::string said = to_string(check_certificate(other, load_certificate(file)));

  EXPECT_TRUE(check.holds);
  page().expect(said);
}

}  // namespace
