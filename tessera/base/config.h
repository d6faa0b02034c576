// SPDX-License-Identifier: Apache-2.0
// Environment variables with a type: read where they are used, and an ArgumentError that names the variable, its text
// and what was expected when the text is something else. An empty variable is one that is not set.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>

namespace tessera::config {

std::optional<std::string> text(const char* name);
/// 1, true, yes, on / 0, false, no, off; `otherwise` when not set.
bool flag(const char* name, bool otherwise);
/// A whole number in [low, high].
std::optional<std::int64_t> integer(const char* name, std::int64_t low, std::int64_t high);
/// Bytes: "1048576", "512M", "1.5G"; K, M, G and T are powers of 1024, and may be followed by B or iB.
std::optional<std::uint64_t> bytes(const char* name);
/// The position in `choices` of the variable's text.
std::optional<std::size_t> choice(const char* name, std::initializer_list<std::string_view> choices);

/// That TESSERA_THREADS may ask for.
inline constexpr std::int64_t most_threads = 4096;

/// The bytes that a text as above says; nothing if it is none.
std::optional<std::uint64_t> parse_bytes(std::string_view text);
/// "1.5 GiB", "312 bytes": for people.
std::string format_bytes(std::uint64_t bytes);

}  // namespace tessera::config
