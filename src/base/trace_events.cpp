#include "base/trace_events.h"

#include <fmt/format.h>
#include <pthread.h>

#include <algorithm>

#include "base/json.h"

namespace piton {
namespace {

// The unit of the format is a microsecond.
double microseconds(TraceEvents::Clock::duration duration) {
  return std::chrono::duration<double, std::micro>(duration).count();
}

std::string quoted(const std::string& text) {
  return nlohmann::json(text).dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
}

}  // namespace

std::uint32_t TraceEvents::text(std::string_view text) {
  const auto [found, added] =
      text_index_.try_emplace(std::string(text), static_cast<std::uint32_t>(texts_.size()));
  if (added) texts_.emplace_back(text);
  return found->second;
}

int TraceEvents::row_of(const std::string& name) {
  const auto found = std::find(rows_.begin(), rows_.end(), name);
  if (found != rows_.end()) return static_cast<int>(found - rows_.begin());
  rows_.push_back(name);
  return static_cast<int>(rows_.size()) - 1;
}

int TraceEvents::row(std::string_view name) {
  const std::lock_guard lock(mutex_);
  return row_of(std::string(name));
}

int TraceEvents::row_of_this_thread() {
  const std::lock_guard lock(mutex_);
  const auto found = thread_rows_.find(std::this_thread::get_id());
  if (found != thread_rows_.end()) return found->second;
  std::string name = "main thread";
  if (!thread_rows_.empty()) {
    char known[32] = "";
    pthread_getname_np(pthread_self(), known, sizeof known);
    name = fmt::format("thread {}", known);
  }
  return thread_rows_[std::this_thread::get_id()] = row_of(name);
}

void TraceEvents::add(int row, const Label& label, Time begin, Time end, Kind kind) noexcept {
  const std::lock_guard lock(mutex_);
  try {
    if (events_.size() < limit_) {
      events_.push_back({text(label.name), text(label.detail),
                         static_cast<std::uint16_t>(text(label.category)),
                         static_cast<std::uint16_t>(row), kind, begin, end});
      return;
    }
  } catch (const std::bad_alloc&) {
    limit_ = events_.size();
  }
  ++dropped_;
}

std::size_t TraceEvents::size() const {
  const std::lock_guard lock(mutex_);
  return events_.size();
}

std::int64_t TraceEvents::dropped() const {
  const std::lock_guard lock(mutex_);
  return dropped_;
}

void TraceEvents::write_json(int process, const std::string& process_name, Time zero,
                             const std::function<void(std::string_view)>& write) const {
  const std::lock_guard lock(mutex_);
  const auto describe = [&](const char* what, int row, const std::string& value) {
    write(fmt::format(",\n{{\"name\":\"{}\",\"ph\":\"M\",\"pid\":{},\"tid\":{},\"args\":{{{}}}}}",
                      what, process, row, value));
  };
  describe("process_name", 0, "\"name\":" + quoted(process_name));
  describe("process_sort_index", 0, fmt::format("\"sort_index\":{}", process));
  for (std::size_t row = 0; row < rows_.size(); ++row) {
    describe("thread_name", static_cast<int>(row), "\"name\":" + quoted(rows_[row]));
    describe("thread_sort_index", static_cast<int>(row), fmt::format("\"sort_index\":{}", row));
  }
  std::vector<std::string> texts;
  for (const std::string& text : texts_) texts.push_back(quoted(text));
  std::int64_t number = 0;  // of an overlapping event
  for (const Event& event : events_) {
    const double begin = microseconds(event.begin - zero);
    const double length = std::max(microseconds(event.end - event.begin), 0.001);
    const std::string args = texts_[event.detail].empty()
                                 ? ""
                                 : fmt::format(",\"args\":{{\"detail\":{}}}", texts[event.detail]);
    const std::string what =
        fmt::format(",\n{{\"name\":{},\"cat\":{},\"pid\":{},\"tid\":{}", texts[event.name],
                    texts[event.category], process, event.row);
    if (event.kind == Kind::kNested) {
      write(fmt::format("{},\"ph\":\"X\",\"ts\":{:.3f},\"dur\":{:.3f}{}}}", what, begin, length,
                        args));
      continue;
    }
    const std::string id = fmt::format(",\"id\":\"{}.{}\"", process, number++);
    write(fmt::format("{},\"ph\":\"b\",\"ts\":{:.3f}{}{}}}", what, begin, id, args));
    write(fmt::format("{},\"ph\":\"e\",\"ts\":{:.3f}{}}}", what, begin + length, id));
  }
}

}  // namespace piton
