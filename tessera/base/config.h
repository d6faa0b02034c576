// SPDX-License-Identifier: Apache-2.0
// Typed access to environment variables. A malformed value throws ArgumentError with the variable's name, its value and
// the expected format. An empty variable counts as unset.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>

namespace tessera::config {

std::optional<std::string> text(const char* name);
/// Accepts 1, true, yes and on, or 0, false, no and off. Returns `otherwise` if the variable is unset.
bool flag(const char* name, bool otherwise);
/// Returns an integer in [low, high]; std::nullopt if the variable is unset.
std::optional<std::int64_t> integer(const char* name, std::int64_t low, std::int64_t high);
/// Returns a byte count: "1048576", "512M", "1.5G". K, M, G and T are powers of 1024 and may be followed by B or iB.
std::optional<std::uint64_t> bytes(const char* name);
/// Returns the index of the variable's value in `choices`.
std::optional<std::size_t> choice(const char* name, std::initializer_list<std::string_view> choices);

/// Maximum value of TESSERA_THREADS.
inline constexpr std::int64_t most_threads = 4096;

/// Parses a byte count in the same format as `bytes`. Returns std::nullopt if `text` is malformed.
std::optional<std::uint64_t> parse_bytes(std::string_view text);
/// Formats a size for users: "1.5 GiB", "312 bytes".
std::string format_bytes(std::uint64_t bytes);

}  // namespace tessera::config
