// SPDX-License-Identifier: Apache-2.0
#include "train/lm_text.h"

#include <algorithm>

#include "tessera/base/philox.h"

namespace tessera::app {
namespace {

constexpr std::size_t sections = 100, held_out_share = 20, most_held_out = 1'000'000, least_section = 200;
constexpr std::string_view white = " \t\r\n\f\v";

std::string_view trimmed(std::string_view text) {
  const std::size_t first = text.find_first_not_of(white);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(white) + 1 - first);
}

/// Returns the end of a section of about `size` bytes. The section ends after a line if possible, otherwise after a
/// space, or at least not within a UTF-8 character.
std::size_t section_end(std::string_view text, std::size_t size) {
  if (text.size() < 2 * size) return text.size();
  const std::string_view next = text.substr(size, size);
  for (const std::string_view at : {"\n\n", "\n", " "})
    if (const std::size_t found = next.find(at); found != std::string_view::npos) return size + found + at.size();
  std::size_t end = size;
  while (end < text.size() && (static_cast<unsigned char>(text[end]) & 0xc0) == 0x80) ++end;
  return end;
}

}  // namespace

SplitText split_text(std::string_view text) {
  const std::size_t section = std::max(least_section, text.size() / sections);
  std::vector<std::string_view> all;
  for (std::size_t at = 0; at <= text.size();) {
    const std::size_t end = std::min(text.find(end_of_text, at), text.size());
    std::string_view document = trimmed(text.substr(at, end - at));
    while (!document.empty()) {
      const std::size_t size = section_end(document, section);
      if (const std::string_view part = trimmed(document.substr(0, size)); !part.empty()) all.push_back(part);
      document.remove_prefix(size);
    }
    at = end + end_of_text.size();
  }
  std::size_t total = 0;
  for (const std::string_view part : all) total += part.size();
  // A section is held out whenever the held-out part is too small for the text so far.
  const std::size_t wanted = std::min(total / held_out_share, most_held_out);
  SplitText out;
  std::size_t passed = 0, held = 0;
  for (const std::string_view part : all) {
    passed += part.size();
    // The offset of half a section prevents the first section from being held out.
    const double due = static_cast<double>(passed) * static_cast<double>(wanted) / static_cast<double>(total);
    const bool hold = due > static_cast<double>(held) + static_cast<double>(part.size()) / 2;
    (hold ? out.held_out : out.training).push_back(part);
    if (hold) held += part.size();
  }
  return out;
}

TokenStream token_stream(const std::vector<std::string_view>& documents, const Tokenizer& tokenizer) {
  TokenStream out;
  const TokenId begin = tokenizer.bos().value();
  for (const std::string_view document : documents) {
    out.bytes += document.size();
    out.tokens.push_back(begin);
    std::size_t lines = 2;  // number of line ends before the current token
    for (const TokenId id : tokenizer.encode(document, {.add_special = false})) {
      const std::string_view bytes = tokenizer.decode(id);
      const bool blank = bytes.find_first_not_of(white) == std::string_view::npos;
      if (lines >= 2 && !blank) out.starts.push_back(out.tokens.size());
      lines = blank ? lines + static_cast<std::size_t>(std::count(bytes.begin(), bytes.end(), '\n')) : 0;
      out.tokens.push_back(id);
    }
  }
  out.tokens.push_back(begin);
  return out;
}

std::vector<std::int32_t> windows(const TokenStream& stream, std::int32_t begin, std::uint64_t seed, std::uint64_t step,
                                  std::int64_t count, std::int64_t length) {
  const auto size = static_cast<std::size_t>(length);
  // The number of positions at which a window of length + 1 tokens fits.
  const std::size_t places = stream.tokens.size() - size;
  const auto last = std::upper_bound(stream.starts.begin(), stream.starts.end(), places);
  const auto starts = static_cast<std::size_t>(last - stream.starts.begin());
  std::vector<std::int32_t> out;
  out.reserve(static_cast<std::size_t>(count) * (size + 1));
  for (std::int64_t i = 0; i < count; ++i) {
    const auto drawn = philox4x32(seed, step * static_cast<std::uint64_t>(count) + static_cast<std::uint64_t>(i));
    const std::uint64_t number = static_cast<std::uint64_t>(drawn[0]) << 32 | drawn[1];
    const bool at_start = i % 4 == 0 && starts > 0;
    const std::size_t at = at_start ? stream.starts[number % starts] : number % places;
    if (at_start) out.push_back(begin);
    const auto first = stream.tokens.begin() + static_cast<std::ptrdiff_t>(at);
    out.insert(out.end(), first, first + static_cast<std::ptrdiff_t>(size + (at_start ? 0 : 1)));
  }
  return out;
}

MeasuredWindows measured_windows(const std::vector<std::int32_t>& tokens, std::int64_t length, std::int64_t most) {
  MeasuredWindows out;
  const auto total = static_cast<std::int64_t>(tokens.size());
  for (std::int64_t next = 1; next < total && (most == 0 || out.count < most); ++out.count) {
    const std::int64_t start = next == 1 ? 0 : next - std::max<std::int64_t>(1, length / 2);
    for (std::int64_t i = start; i < start + length; ++i) {
      const bool counts = i + 1 < total && i + 1 >= next;
      out.inputs.push_back(i < total ? tokens[static_cast<std::size_t>(i)] : 0);
      out.targets.push_back(counts ? tokens[static_cast<std::size_t>(i) + 1] : ignore_index);
      out.counted += counts;
    }
    next = std::min(start + length, total - 1) + 1;
  }
  return out;
}

}  // namespace tessera::app
