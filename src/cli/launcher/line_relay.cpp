#include "cli/launcher/line_relay.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>

namespace piton::cli {
namespace {

constexpr std::chrono::milliseconds kBegunLine{200};

bool write_all(int to, std::string_view text) {
  while (!text.empty()) {
    const ssize_t count = ::write(to, text.data(), text.size());
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return false;
    text.remove_prefix(static_cast<std::size_t>(count));
  }
  return true;
}

}  // namespace

LineRelay::~LineRelay() {
  for (const Output& output : outputs_) ::close(output.from);
  if (typed_to_ >= 0) ::close(typed_to_);
}

void LineRelay::add_output(int from, int to) {
  outputs_.push_back({.from = from, .to = to, .begun = {}, .since = Clock::now()});
}

// A background process that reads from its terminal would be stopped.
bool LineRelay::in_foreground() { return ::tcgetpgrp(STDIN_FILENO) == ::getpgrp(); }

void LineRelay::turn(int other, int milliseconds) {
  std::vector<pollfd> all;
  all.push_back({.fd = other, .events = POLLIN, .revents = 0});
  const bool types = typed_to_ >= 0 && in_foreground();
  all.push_back({.fd = types ? STDIN_FILENO : -1, .events = POLLIN, .revents = 0});
  const bool begun =
      std::ranges::any_of(outputs_, [](const Output& output) { return !output.begun.empty(); });
  for (const Output& output : outputs_) {
    all.push_back({.fd = output.from, .events = POLLIN, .revents = 0});
  }
  constexpr int kSoon = 50;
  if (begun && (milliseconds < 0 || milliseconds > kSoon)) milliseconds = kSoon;
  ::poll(all.data(), all.size(), milliseconds);
  if (all[1].revents != 0) read_input();
  for (std::size_t i = 0; i < outputs_.size(); ++i) {
    if (all[i + 2].revents != 0) read_output(outputs_[i]);
    if (Clock::now() - outputs_[i].since > kBegunLine) write_begun(outputs_[i]);
  }
  std::erase_if(outputs_, [](const Output& output) { return output.from < 0; });
}

void LineRelay::flush() {
  for (Output& output : outputs_) write_begun(output);
}

void LineRelay::read_output(Output& output) {
  std::array<char, 65536> bytes;
  const ssize_t count = ::read(output.from, bytes.data(), bytes.size());
  if (count < 0 && errno == EINTR) return;
  if (count > 0) return write_lines(output, {bytes.data(), static_cast<std::size_t>(count)});
  write_begun(output);
  ::close(output.from);
  output.from = -1;
}

void LineRelay::write_lines(Output& output, std::string_view text) {
  const std::size_t end = text.rfind('\n') + 1;  // 0: no end of a line
  if (output.begun.empty()) output.since = Clock::now();
  output.begun += text.substr(0, end);
  if (end > 0) {
    write_begun(output);
    output.since = Clock::now();
  }
  output.begun += text.substr(end);
}

void LineRelay::write_begun(Output& output) {
  bool& unread = unread_[output.to];
  // Ranks work on when the reader has ended.
  if (!output.begun.empty() && !unread) unread = !write_all(output.to, output.begun);
  output.begun.clear();
}

void LineRelay::read_input() {
  std::array<char, 4096> bytes;
  const ssize_t count = ::read(STDIN_FILENO, bytes.data(), bytes.size());
  if (count < 0 && errno == EINTR) return;
  if (count > 0 && write_all(typed_to_, {bytes.data(), static_cast<std::size_t>(count)})) return;
  ::close(typed_to_);
  typed_to_ = -1;
}

}  // namespace piton::cli
