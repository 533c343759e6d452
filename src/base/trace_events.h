// What a process does when, for a trace in Chrome's format (Trace Event Format: "X" events, and "b"
// and "e" for those that overlap), which chrome://tracing and Perfetto open.
//
// A ROW is what they show as a thread: a thread of the host, a stream, a group of ranks. Memory is
// limited: an event takes 32 bytes, its texts are kept once, and what comes after the limit is only
// counted.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <unordered_map>
#include <vector>

namespace piton {

class TraceEvents {
 public:
  using Clock = std::chrono::steady_clock;
  using Time = Clock::time_point;

  explicit TraceEvents(std::size_t limit = 1'000'000) : limit_(limit) {}

  // Nobody should add events, or do work for them, while this is false, as it is at first.
  bool recording() const { return recording_.load(std::memory_order_relaxed); }
  void set_recording(bool on) { recording_.store(on, std::memory_order_relaxed); }

  // The row of that name; rows are shown in the order of their first use. Thread-safe.
  int row(std::string_view name);
  // The row of the calling thread: "main thread" for the first one, else the name that the system
  // knows. Thread-safe.
  int row_of_this_thread();

  enum class Kind : std::uint8_t { kNested, kOverlapping };  // with other events of its row
  struct Label {
    std::string_view category;
    std::string_view name;
    std::string_view detail;  // is shown with the event; may be empty
  };
  // Thread-safe.
  void add(int row, const Label& label, Time begin, Time end, Kind kind = Kind::kNested) noexcept;

  std::size_t size() const;
  std::int64_t dropped() const;  // events beyond the limit

  // Passes the events to `write` as JSON objects, each with ",\n" before it. `process`: number and
  // name of this process's rows. `zero`: the time 0 of the trace.
  void write_json(int process, const std::string& process_name, Time zero,
                  const std::function<void(std::string_view)>& write) const;

 private:
  struct Event {
    std::uint32_t name, detail;
    std::uint16_t category, row;
    Kind kind;
    Time begin, end;
  };
  std::uint32_t text(std::string_view text);
  int row_of(const std::string& name);

  std::size_t limit_;
  std::atomic<bool> recording_{false};
  mutable std::mutex mutex_;  // guards what follows
  std::vector<Event> events_;
  std::int64_t dropped_ = 0;
  std::vector<std::string> texts_;
  std::unordered_map<std::string, std::uint32_t> text_index_;
  std::vector<std::string> rows_;
  std::unordered_map<std::thread::id, int> thread_rows_;
};

}  // namespace piton
