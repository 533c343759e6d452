#include "data/preprocess/duplicate_filter.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <queue>
#include <span>
#include <unordered_set>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/files/files.h"
#include "base/files/interrupted.h"
#include "base/hash.h"
#include "data/preprocess/sorted_run.h"

namespace piton {
namespace {

struct HashOfHash {
  std::size_t operator()(const ContentHash& hash) const { return hash.low; }
};

// This many runs are merged into one, because a lookup costs one search in each.
constexpr int kMostRuns = 8;

std::string run_name(const std::string& name, int number) {
  return fmt::format("{}.run-{}", name, number);
}

}  // namespace

void ContentHash::add(std::string_view text) {
  low = hash64(text, low + 0x9E3779B97F4A7C15U);
  high = hash64(text, high + 0xC2B2AE3D27D4EB4FU);
}

struct DuplicateFilter::State {
  std::string name;
  std::size_t memory_entries;
  std::unordered_set<ContentHash, HashOfHash> recent;
  std::vector<SortedRun> runs;
  int log = -1;
  std::int64_t size = 0;
  std::vector<ContentHash> unlogged;
  bool kept = false;

  bool known(const ContentHash& hash) const {
    if (recent.contains(hash)) return true;
    return std::any_of(runs.begin(), runs.end(),
                       [&](const SortedRun& run) { return run.contains(hash); });
  }

  void add_to_table(const ContentHash& hash) {
    recent.insert(hash);
    if (recent.size() >= memory_entries) spill();
  }

  template <typename Next>
  void write_run(const Next& next) {
    // The first free name: with the merged run there are never more than kMostRuns + 1.
    int number = 0;
    while (std::any_of(runs.begin(), runs.end(), [&](const SortedRun& run) {
      return run.path() == run_name(name, number);
    })) {
      ++number;
    }
    const std::string path = run_name(name, number);
    AtomicFile file(path);
    ContentHash hash;
    while (next(hash)) file.write(std::as_bytes(std::span(&hash, 1)));
    file.commit();
    runs.emplace_back(path);
  }

  void spill() {
    std::vector<ContentHash> sorted(recent.begin(), recent.end());
    std::sort(sorted.begin(), sorted.end());
    std::size_t at = 0;
    write_run([&](ContentHash& hash) {
      return at < sorted.size() ? (hash = sorted[at++], true) : false;
    });
    recent.clear();
    if (static_cast<int>(runs.size()) >= kMostRuns) join_runs();
  }

  void join_runs() {
    std::vector<SortedRun::Cursor> rest(runs.begin(), runs.end());
    using Head = std::pair<ContentHash, std::size_t>;
    std::priority_queue<Head, std::vector<Head>, std::greater<>> heads;
    const auto push = [&](std::size_t i) {
      if (const auto hash = rest[i].next()) heads.emplace(*hash, i);
    };
    for (std::size_t i = 0; i < rest.size(); ++i) push(i);
    const std::size_t before = runs.size();
    write_run([&](ContentHash& hash) {
      if (heads.empty()) return false;
      const auto [least, i] = heads.top();
      heads.pop();
      hash = least;
      push(i);
      return true;
    });
    std::vector<std::string> old;
    for (std::size_t i = 0; i < before; ++i) old.push_back(runs[i].path().string());
    runs.erase(runs.begin(), runs.begin() + static_cast<std::ptrdiff_t>(before));
    std::error_code ignored;
    for (const std::string& path : old) std::filesystem::remove(path, ignored);
  }

  void open_log(std::int64_t keep_entries) {
    const std::string path = name + ".log";
    log = until_uninterrupted(
        [&] { return ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0640); });
    if (log < 0) fail("cannot be created");
    if (until_uninterrupted([&] { return ::ftruncate(log, keep_entries * 16); }) != 0) {
      fail("cannot be cut back");
    }
    std::vector<ContentHash> piece(1 << 16);
    for (std::int64_t at = 0; at < keep_entries;) {
      const auto count =
          std::min<std::int64_t>(static_cast<std::int64_t>(piece.size()), keep_entries - at);
      const ssize_t got = ::pread(log, piece.data(), static_cast<std::size_t>(count) * 16, at * 16);
      if (got != count * 16) fail("cannot be read back");
      for (std::int64_t i = 0; i < count; ++i) add_to_table(piece[static_cast<std::size_t>(i)]);
      at += count;
    }
    if (::lseek(log, keep_entries * 16, SEEK_SET) < 0) fail("cannot be positioned");
    size = keep_entries;
  }

  void write_log() {
    auto bytes = std::as_bytes(std::span(std::as_const(unlogged)));
    while (!bytes.empty()) {
      const ssize_t done =
          until_uninterrupted([&] { return ::write(log, bytes.data(), bytes.size()); });
      if (done < 0) fail("cannot be written");
      bytes = bytes.subspan(static_cast<std::size_t>(done));
    }
    unlogged.clear();
  }

  [[noreturn]] void fail(const char* what) const {
    throw Error(Fault::kData, "{}.log: {}: {}", name, what, system_message(errno));
  }

  void remove_files() {
    std::error_code ignored;
    for (const std::string& file : DuplicateFilter::files(name)) {
      std::filesystem::remove(file, ignored);
    }
  }

  ~State() {
    if (log >= 0) ::close(log);
    if (!kept) remove_files();
  }
};

DuplicateFilter::DuplicateFilter(std::string name, std::int64_t kept, std::size_t memory_entries)
    : state_(std::make_unique<State>()) {
  state_->name = std::move(name);
  state_->memory_entries = memory_entries;
  const auto folder = std::filesystem::path(state_->name).parent_path();
  if (!folder.empty()) create_folders(folder);
  state_->open_log(kept);
}

DuplicateFilter::~DuplicateFilter() = default;

bool DuplicateFilter::insert(const ContentHash& hash) {
  if (state_->known(hash)) return false;
  state_->add_to_table(hash);
  state_->unlogged.push_back(hash);
  if (state_->unlogged.size() >= 1 << 14) state_->write_log();
  ++state_->size;
  return true;
}

std::int64_t DuplicateFilter::size() const { return state_->size; }

void DuplicateFilter::flush() {
  state_->write_log();
  if (until_uninterrupted([&] { return ::fdatasync(state_->log); }) != 0)
    state_->fail("cannot be flushed to the disk");
}

std::vector<std::string> DuplicateFilter::files(const std::string& name) {
  std::vector<std::string> names{name + ".log"};
  for (int number = 0; number <= kMostRuns; ++number) names.push_back(run_name(name, number));
  return names;
}

void DuplicateFilter::keep() { state_->kept = true; }

void DuplicateFilter::discard() {
  state_->runs.clear();
  state_->kept = false;
  state_->remove_files();
}

}  // namespace piton
