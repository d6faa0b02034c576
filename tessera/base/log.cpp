// SPDX-License-Identifier: Apache-2.0
#include "tessera/base/log.h"

#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <atomic>
#include <memory>
#include <string>

#include "tessera/base/config.h"
#include "tessera/base/error.h"
#include "tessera/base/os/fork.h"
#include "tessera/base/printable.h"

namespace tessera::logging {
namespace {

spdlog::level::level_enum to_spdlog(Level level) {
  switch (level) {
    case Level::trace: return spdlog::level::trace;
    case Level::debug: return spdlog::level::debug;
    case Level::info: return spdlog::level::info;
    case Level::warn: return spdlog::level::warn;
    case Level::error: return spdlog::level::err;
    case Level::off: break;
  }
  return spdlog::level::off;
}

/// Returns the level set by TESSERA_LOG.
Level level_asked_for() {
  const auto at = config::choice("TESSERA_LOG", {"trace", "debug", "info", "warn", "error", "off"});
  return at ? static_cast<Level>(*at) : Level::warn;
}

struct Logger {
  std::shared_ptr<spdlog::logger> out;
  std::atomic<Level> level = Level::warn;

  explicit Logger(const Logger* parents) {
    // Not registered with spdlog, so that the registry of the calling program is not changed.
    out = std::make_shared<spdlog::logger>("tessera", std::make_shared<spdlog::sinks::stderr_sink_mt>());
    out->set_pattern("tessera: %v");
    out->set_level(spdlog::level::trace);
    out->set_error_handler([](const std::string&) {});  // ignore errors if standard error is closed
    if (parents != nullptr) {
      level = parents->level.load(std::memory_order_relaxed);
      return;
    }
    try {
      level = level_asked_for();
    } catch (const Error&) {  // reported by check_setting(), which may throw
    }
  }
};

constinit os::PerProcess<Logger> the_logger;
Logger& logger() { return the_logger.get(); }

void write(Level at, std::string_view text) {
  Logger& l = logger();
  if (at < l.level.load(std::memory_order_relaxed)) return;
  const os::ForkGuard whole;  // all loggers of spdlog share one lock
  l.out->log(to_spdlog(at), "{}", printable_text(text));
}

}  // namespace

void set_level(Level level) { logger().level = level; }
void check_setting() { static_cast<void>(level_asked_for()); }
Level level() { return logger().level.load(std::memory_order_relaxed); }
void trace(std::string_view text) { write(Level::trace, text); }
void debug(std::string_view text) { write(Level::debug, text); }
void info(std::string_view text) { write(Level::info, text); }
void warn(std::string_view text) {
  if (enabled(Level::warn)) write(Level::warn, "warning: " + std::string(text));
}
void print(std::string_view text) {
  const os::ForkGuard whole;
  logger().out->log(spdlog::level::info, "{}", text);
}

}  // namespace tessera::logging
