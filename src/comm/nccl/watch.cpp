#include "comm/nccl/watch.h"

#include <utility>

#include "base/error.h"

namespace piton::nccl {
namespace {

constexpr std::chrono::milliseconds kPause{50};

}  // namespace

Watch::Watch(const Library& library, Rendezvous& rendezvous,
             std::shared_ptr<cuda::KeptFailure> failure, double timeout_seconds)
    : library_(library),
      rendezvous_(rendezvous),
      device_failure_(std::move(failure)),
      timeout_(timeout_seconds) {
  rendezvous_.on_failure([this](const std::string& why) { fail(why); });
  thread_ = std::thread([this] { run(); });
}

Watch::~Watch() {
  rendezvous_.on_failure({});
  ends_ = true;
  thread_.join();
}

void Watch::add(Comm comm, const std::string& group) {
  const std::scoped_lock lock(mutex_);
  watched_[comm].group = group;
}

void Watch::destroy(Comm comm) {
  {
    const std::scoped_lock lock(mutex_);
    if (watched_.erase(comm) == 0) return;
  }
  library_.destroy(comm);
}

void Watch::expect(Comm comm, Operation operation) {
  const std::scoped_lock lock(mutex_);
  const auto found = watched_.find(comm);
  if (found != watched_.end()) found->second.operations.push_back(std::move(operation));
}

std::optional<std::string> Watch::look(Comm comm, Watched& watched) {
  Result result = Result::kSuccess;
  library_.async_error(comm, &result);
  if (result != Result::kSuccess && result != Result::kInProgress) {
    return fmt::format("NCCL: group {}: {}; look at the other ranks, the network and the GPUs",
                       watched.group, library_.error_text(result));
  }
  auto& operations = watched.operations;
  while (!operations.empty() && operations.front().done.complete()) {
    operations.pop_front();
    watched.since.reset();
  }
  if (operations.empty() || !operations.front().ready.complete()) return std::nullopt;
  const auto now = Clock::now();
  if (!watched.since) watched.since = now;
  const std::chrono::duration<double> waited = now - *watched.since;
  if (waited < timeout_) return std::nullopt;
  return fmt::format("{}: has waited {:.3g} s for the other ranks", operations.front().text,
                     waited.count());
}

void Watch::run() {
  while (!ends_) {
    std::this_thread::sleep_for(kPause);
    std::optional<std::string> why;
    try {
      const std::scoped_lock lock(mutex_);
      for (auto& [comm, watched] : watched_) {
        why = look(comm, watched);
        if (why) break;
      }
    } catch (const Error& error) {  // of the device
      why = error.what();
    }
    if (why) fail(*why);
  }
}

void Watch::fail(const std::string& why) {
  std::map<Comm, Watched> all;
  {
    const std::scoped_lock lock(mutex_);
    if (failure_) return;
    failure_ = why;
    all.swap(watched_);
  }
  // First the reason, so that nobody takes the results of aborted operations.
  device_failure_->keep(std::make_exception_ptr(Error(Fault::kPeer, "comm: {}", why)));
  for (const auto& [comm, watched] : all) library_.abort(comm);
}

std::optional<std::string> Watch::failure() const {
  const std::scoped_lock lock(mutex_);
  return failure_;
}

}  // namespace piton::nccl
