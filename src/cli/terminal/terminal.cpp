#include "cli/terminal/terminal.h"

#include <spdlog/logger.h>
#include <spdlog/sinks/stdout_color_sinks.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <mutex>
#include <string>

#include "base/amounts.h"
#include "base/error.h"
#include "base/printable.h"
#include "cli/terminal/descriptors.h"

namespace piton::cli {
namespace {

using Clock = std::chrono::steady_clock;

// Time between two lines if nobody watches live: some 17000 lines per day.
constexpr std::chrono::seconds kLineInterval{5};
constexpr std::chrono::milliseconds kRedrawInterval{100};

int terminal_width() {
  struct winsize size {};
  return ::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

std::string clock_text(double seconds) {
  const auto whole = static_cast<std::int64_t>(std::llround(seconds));
  if (whole >= 3600) return hours_text(whole);
  return fmt::format("{}:{:02}", whole / 60, whole % 60);
}

spdlog::level::level_enum level_of(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug:
      return spdlog::level::debug;
    case LogLevel::kInfo:
      return spdlog::level::info;
    case LogLevel::kWarning:
      return spdlog::level::warn;
    case LogLevel::kError:
      return spdlog::level::err;
  }
  PITON_ASSERT(false, "log level {}", static_cast<int>(level));
}

}  // namespace

std::string progress_line(const ProgressState& state, int width) {
  std::string text;
  if (state.total > 0) {
    const double share =
        std::min(1.0, static_cast<double>(state.done) / static_cast<double>(state.total));
    constexpr int kBar = 20;
    const int filled = static_cast<int>(share * kBar);
    const std::string bar =
        std::string(static_cast<std::size_t>(filled), '=') + (filled < kBar ? ">" : "") +
        std::string(static_cast<std::size_t>(std::max(0, kBar - filled - 1)), ' ');
    text = fmt::format("[{}] {:3}%  {}/{}", bar, static_cast<int>(share * 100), state.done,
                       state.total);
  } else {
    text = fmt::format("{} done", state.done);
  }
  if (!state.note.empty()) text += "  " + printable(state.note);
  if (state.total > 0 && state.done > 0 && state.done < state.total) {
    const double left = state.seconds / static_cast<double>(state.done) *
                        static_cast<double>(state.total - state.done);
    text += fmt::format("  {} left", clock_text(left));
  } else {
    text += fmt::format("  {}", clock_text(state.seconds));
  }
  if (static_cast<int>(text.size()) > width)
    text.resize(static_cast<std::size_t>(std::max(0, width)));
  return text;
}

struct Terminal::State {
  std::mutex mutex;
  spdlog::logger logger{"piton", std::make_shared<spdlog::sinks::stderr_color_sink_st>()};
  const bool live = ::isatty(STDERR_FILENO) == 1;
  bool to_stdout = false;
  bool quiet = false;
  bool shows_progress = true;
  std::string shown;  // the live line on the screen; "" for none
  ProgressState last;
  bool pending = false;  // `last` is newer than what was shown
  Clock::time_point next{};

  void erase() {
    if (!shown.empty()) std::fputs("\r\x1b[K", stderr);
  }
  void draw(const ProgressState& state) {
    if (live) {
      // One column less: a full line would wrap.
      shown = progress_line(state, terminal_width() - 1);
      std::fprintf(stderr, "\r%s\x1b[K", shown.c_str());
      std::fflush(stderr);
    } else {
      logger.info(progress_line(state, 1000));
    }
    pending = false;
  }
};

Terminal::Terminal() : state_(std::make_unique<State>()) {
  state_->logger.set_pattern("[%Y-%m-%d %H:%M:%S] %^%v%$");
  state_->logger.set_level(spdlog::level::info);
}

Terminal::~Terminal() { finish(); }

void Terminal::be_quiet() {
  const std::lock_guard lock(state_->mutex);
  state_->quiet = true;
  state_->logger.set_level(spdlog::level::warn);
}

void Terminal::show_no_progress() {
  const std::lock_guard lock(state_->mutex);
  state_->shows_progress = false;
}

bool Terminal::log_to_stdout(bool launched) {
  const std::lock_guard lock(state_->mutex);
  const bool by_eye = !launched && ::isatty(STDOUT_FILENO) == 1;
  state_->to_stdout = true;
  std::signal(SIGPIPE, SIG_IGN);
  state_->logger.sinks() = {std::make_shared<spdlog::sinks::stdout_color_sink_st>(
      by_eye ? spdlog::color_mode::automatic : spdlog::color_mode::never)};
  state_->logger.set_pattern("[%Y-%m-%d %H:%M:%S] %^%v%$");
  return by_eye;
}

void Terminal::write(LogLevel level, std::string_view line) {
  State& state = *state_;
  const std::lock_guard lock(state.mutex);
  if (!state.logger.should_log(level_of(level))) return;
  state.erase();
  std::string text = printable(line);
  if (level == LogLevel::kWarning) text.insert(0, "warning: ");
  if (level == LogLevel::kError) text.insert(0, "error: ");
  state.logger.log(level_of(level), spdlog::string_view_t(text.data(), text.size()));
  state.logger.flush();
  if (state.to_stdout && replace_unread_output()) {
    std::fputs("piton: nobody reads the output any more: the log ends, the work continues\n",
               stderr);
  }
  if (!state.shown.empty()) {
    std::fputs(state.shown.c_str(), stderr);
    std::fflush(stderr);
  }
}

void Terminal::update(const ProgressState& progress) {
  State& state = *state_;
  const std::lock_guard lock(state.mutex);
  if (state.quiet || !state.shows_progress || (state.to_stdout && !state.live)) return;
  state.last = progress;
  state.pending = true;
  const auto now = Clock::now();
  if (state.next == Clock::time_point{} && !state.live) state.next = now + kLineInterval;
  if (now < state.next) return;
  state.draw(progress);
  state.next =
      now + (state.live ? Clock::duration(kRedrawInterval) : Clock::duration(kLineInterval));
}

void Terminal::finish() {
  State& state = *state_;
  const std::lock_guard lock(state.mutex);
  if (state.pending) state.draw(state.last);
  if (!state.shown.empty()) {
    std::fputs("\n", stderr);
    std::fflush(stderr);
    state.shown.clear();
  }
  state.next = {};
}

}  // namespace piton::cli
