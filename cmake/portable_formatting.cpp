// SPDX-License-Identifier: Apache-2.0
// fmt and spdlog for portable builds, because Debian has no static libraries of them. Compiled with
// -fkeep-inline-functions, which also emits functions of the headers that this file does not use.
#define FMT_HEADER_ONLY
#define SPDLOG_HEADER_ONLY
#define SPDLOG_FMT_EXTERNAL
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

template std::locale fmt::detail::locale_ref::get<std::locale>() const;
template class spdlog::sinks::stderr_sink<spdlog::details::console_mutex>;
