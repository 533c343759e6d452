#include "comm/mpi/hierarchical_runner.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "comm/mpi/mpi_call.h"
#include "comm/mpi/sum.h"

namespace piton {

namespace {

// As in MessageRunner: the latency of a chain is small next to the time of its messages.
constexpr std::int64_t kRoundBytes = 4 << 20;
constexpr int kHostTag = 2;  // MessageRunner has 1

std::int64_t whole_lines(std::int64_t elements) { return (elements + 15) / 16 * 16; }

// fp32 of bf16 or fp16.
void widen(DType dtype, const std::byte* from, std::int64_t elements, std::byte* to) {
  auto* wide = reinterpret_cast<float*>(to);
  if (dtype == DType::kBF16) {
    const auto* narrow = reinterpret_cast<const BFloat16*>(from);
    for (std::int64_t i = 0; i < elements; ++i) wide[i] = to_float(narrow[i]);
  } else {
    const auto* narrow = reinterpret_cast<const Float16*>(from);
    for (std::int64_t i = 0; i < elements; ++i) wide[i] = to_float(narrow[i]);
  }
}

void round_to(DType dtype, const std::byte* from, std::int64_t elements, std::byte* to) {
  const auto* wide = reinterpret_cast<const float*>(from);
  if (dtype == DType::kBF16) {
    auto* narrow = reinterpret_cast<BFloat16*>(to);
    for (std::int64_t i = 0; i < elements; ++i) narrow[i] = to_bfloat16(wide[i]);
  } else {
    auto* narrow = reinterpret_cast<Float16*>(to);
    for (std::int64_t i = 0; i < elements; ++i) narrow[i] = to_float16(wide[i]);
  }
}

}  // namespace

HierarchicalRunner::HierarchicalRunner(MPI_Comm comm, std::vector<int> world_ranks, Parts parts,
                                       HostTraffic traffic)
    : comm_(comm),
      world_ranks_(std::move(world_ranks)),
      blocks_(parts.blocks),
      local_(std::move(parts.local)),
      flat_(std::move(parts.flat)),
      traffic_(std::move(traffic)) {
  check_mpi(MPI_Comm_rank(comm, &rank_), "MPI_Comm_rank");
  host_ = rank_ / blocks_.per_host;
  own_ = rank_ % blocks_.per_host;
}

void HierarchicalRunner::start(const Collective& collective) {
  now_ = collective;
  finished_ = false;
  stages_.clear();
  switch (now_.kind) {
    case CollectiveKind::kAllReduce:
    case CollectiveKind::kScatter:
      if (scatters() && flat_sends_less()) {
        flat_runs_ = true;
        return flat_->start(now_);
      }
      per_round_ = kRoundBytes / now_.element_bytes();
      if (scatters()) {
        per_round_ = std::max<std::int64_t>(16, per_round_ / std::ssize(world_ranks_));
      }
      return plan_sums(0);
    case CollectiveKind::kGather:
      return plan_gather();
    case CollectiveKind::kBroadcast:
      return plan_broadcast();
    case CollectiveKind::kExchange:
    case CollectiveKind::kBarrier:
      flat_runs_ = true;
      return flat_->start(now_);
  }
}

bool HierarchicalRunner::step() {
  if (finished_) return false;
  if (flat_runs_) {
    const bool moved = flat_->step();
    flat_runs_ = !flat_->finished();
    finished_ = !flat_runs_;
    return moved;
  }
  if (local_runs_) {
    const bool moved = local_->step();
    local_runs_ = !local_->finished();
    if (local_runs_) return moved;
  }
  if (!requests_.empty()) {
    int done = 0;
    check_mpi(MPI_Testall(static_cast<int>(requests_.size()), requests_.data(), &done,
                          MPI_STATUSES_IGNORE),
              "MPI_Testall");
    if (!done) return false;
    requests_.clear();
    waits_for_.clear();
  }
  if (stages_.empty()) {
    finished_ = late_.empty();
    requests_ = std::exchange(late_, {});
    waits_for_ = std::exchange(late_for_, {});
    return true;
  }
  const std::function<void()> stage = std::move(stages_.front());
  stages_.pop_front();
  stage();
  return true;
}

bool HierarchicalRunner::widens() const {
  return now_.reduction == Reduction::kSum &&
         (now_.dtype == DType::kBF16 || now_.dtype == DType::kF16);
}

// Of a reduce-scatter with running sums of another type, by the table.
bool HierarchicalRunner::flat_sends_less() const {
  return blocks_.per_host * blocks_.hosts < (widens() ? 2 : 1) * blocks_.hosts + 1;
}

std::byte* HierarchicalRunner::room(Bytes& buffer, std::int64_t bytes) {
  if (std::ssize(buffer) < bytes) buffer.resize(static_cast<std::size_t>(bytes));
  return buffer.data();
}

// The sums of elements [begin_, begin_ + count_) of the whole, or of each part.
void HierarchicalRunner::plan_sums(std::int64_t round) {
  const std::int64_t whole = scatters() ? now_.part_elements(rank_) : now_.elements;
  begin_ = round * per_round_;
  count_ = std::min(per_round_, whole - begin_);
  if (scatters()) {
    slice_ = mine_ = count_ * blocks_.hosts;
  } else {
    slice_ = whole_lines((count_ + blocks_.per_host - 1) / blocks_.per_host);
    mine_ = std::clamp<std::int64_t>(count_ - own_ * slice_, 0, slice_);
  }
  stages_ = {[this] { exchange(); }, [this] { receive_running_sum(); }, [this] { add_members(); },
             [this] { pass_on(); }};
  if (scatters()) {
    stages_.emplace_back([this] { give_parts(); });
  } else {
    stages_.emplace_back([this] { pass_back(); });
    stages_.emplace_back([this] { gather_sums(); });
  }
  if (begin_ + count_ < whole) stages_.emplace_back([this, round] { plan_sums(round + 1); });
}

// Number j of this host gets what it sums of every member of the host.
void HierarchicalRunner::exchange() {
  const std::int64_t size_of = now_.element_bytes();
  const int locals = blocks_.per_host;
  const std::byte* source = now_.source + begin_ * size_of;
  if (scatters()) {
    std::byte* to = room(packed_, locals * slice_ * size_of);
    for (int j = 0; j < locals; ++j) {
      for (int host = 0; host < blocks_.hosts; ++host) {
        const std::int64_t part = now_.begins[host * locals + j];
        if (count_ > 0) std::memcpy(to, source + part * size_of, count_ * size_of);
        to += count_ * size_of;
      }
    }
    source = packed_.data();
  } else if (count_ != slice_ * locals) {
    std::byte* to = room(packed_, locals * slice_ * size_of);
    if (count_ > 0) std::memcpy(to, source, count_ * size_of);
    source = to;
  }
  std::vector<std::int64_t> begins;
  for (int j = 0; j <= locals; ++j) begins.push_back(j * slice_);
  local({.kind = CollectiveKind::kExchange,
         .dtype = now_.dtype,
         .elements = locals * slice_,
         .begins = std::move(begins),
         .source = source,
         .target = room(staged_, locals * slice_ * size_of)});
}

void HierarchicalRunner::receive_running_sum() {
  std::byte* to = room(running_, mine_ * wide_bytes());
  if (host_ > 0) receive(to, mine_ * wide_bytes(), counterpart(host_ - 1));
}

void HierarchicalRunner::add_members() {
  if (mine_ == 0) return;
  const std::int64_t stride = slice_ * now_.element_bytes();
  std::byte* const target = running_.data();
  if (!widens()) {
    std::vector<const std::byte*> sources;
    if (host_ > 0) sources.push_back(target);
    for (int j = 0; j < blocks_.per_host; ++j) sources.push_back(staged_.data() + j * stride);
    return reduce(now_.dtype, now_.reduction, sources, mine_, {&target, 1});
  }
  for (int j = 0; j < blocks_.per_host; ++j) {
    const std::byte* from = staged_.data() + j * stride;
    if (host_ == 0 && j == 0) {
      widen(now_.dtype, from, mine_, target);
      continue;
    }
    std::byte* const wide = room(widened_, mine_ * 4);
    widen(now_.dtype, from, mine_, wide);
    const std::byte* const sources[] = {target, wide};
    reduce(DType::kF32, Reduction::kSum, sources, mine_, {&target, 1});
  }
}

// To the next host; the last one rounds. The sums of an all-reduce come back from there.
void HierarchicalRunner::pass_on() {
  std::byte* sums = room(sums_, slice_ * now_.element_bytes());
  if (host_ + 1 < blocks_.hosts) {
    send(running_.data(), mine_ * wide_bytes(), counterpart(host_ + 1));
    if (!scatters()) receive(sums, mine_ * now_.element_bytes(), counterpart(host_ + 1));
  } else if (widens()) {
    round_to(now_.dtype, running_.data(), mine_, sums);
  } else if (mine_ > 0) {
    std::memcpy(sums, running_.data(), mine_ * now_.element_bytes());
  }
}

void HierarchicalRunner::pass_back() {
  if (host_ > 0) send(sums_.data(), mine_ * now_.element_bytes(), counterpart(host_ - 1));
}

// The last host has the sums of all parts. The others receive theirs while they send the running
// sums of later rounds.
void HierarchicalRunner::give_parts() {
  const std::int64_t bytes = count_ * now_.element_bytes();
  std::byte* target = now_.target + begin_ * now_.element_bytes();
  const int last = blocks_.hosts - 1;
  if (host_ != last) {
    receive(target, bytes, counterpart(last));
    late_.insert(late_.end(), requests_.begin(), requests_.end());
    late_for_.insert(late_for_.end(), waits_for_.begin(), waits_for_.end());
    requests_.clear();
    return waits_for_.clear();
  }
  for (int host = 0; host < last; ++host) {
    send(sums_.data() + host * bytes, bytes, counterpart(host));
  }
  if (bytes > 0) std::memcpy(target, sums_.data() + last * bytes, bytes);
}

void HierarchicalRunner::gather_sums() {
  const std::int64_t size_of = now_.element_bytes();
  const std::int64_t padded = slice_ * blocks_.per_host;
  std::byte* const target = now_.target + begin_ * size_of;
  const bool fits = count_ == padded;
  std::vector<std::int64_t> begins;
  for (int j = 0; j <= blocks_.per_host; ++j) begins.push_back(j * slice_);
  local({.kind = CollectiveKind::kGather,
         .dtype = now_.dtype,
         .elements = padded,
         .begins = std::move(begins),
         .source = sums_.data(),
         .target = fits ? target : room(staged_, padded * size_of)});
  if (fits) return;
  stages_.emplace_front([this, target, size_of] {
    if (count_ > 0) std::memcpy(target, staged_.data(), count_ * size_of);
  });
}

// The parts of number own_ of all hosts go to all of these; then each host gathers those of every
// host, one after the other, because they are next to each other in the whole.
void HierarchicalRunner::plan_gather() {
  const std::int64_t size_of = now_.element_bytes();
  for (int host = 0; host < blocks_.hosts; ++host) {
    if (host == host_) continue;
    const int member = counterpart(host);
    receive(now_.target + now_.begins[member] * size_of, now_.part_elements(member) * size_of,
            member);
    send(now_.source, now_.part_elements(rank_) * size_of, member);
  }
  for (int host = 0; host < blocks_.hosts; ++host) {
    stages_.emplace_back([this, host, size_of] {
      const int first = host * blocks_.per_host;
      const std::int64_t from = now_.begins[first];
      std::vector<std::int64_t> begins;
      for (int j = 0; j <= blocks_.per_host; ++j) begins.push_back(now_.begins[first + j] - from);
      std::byte* target = now_.target + from * size_of;
      local({.kind = CollectiveKind::kGather,
             .dtype = now_.dtype,
             .elements = begins.back(),
             .begins = begins,
             .source = host == host_ ? now_.source : target + begins[own_] * size_of,
             .target = target});
    });
  }
}

void HierarchicalRunner::plan_broadcast() {
  const std::int64_t bytes = now_.elements * now_.element_bytes();
  const int root_host = now_.root / blocks_.per_host;
  const int root = now_.root % blocks_.per_host;
  if (now_.root == rank_) {
    for (int host = 0; host < blocks_.hosts; ++host) {
      if (host != root_host) send(now_.source, bytes, counterpart(host));
    }
  } else if (own_ == root && host_ != root_host) {
    receive(now_.target, bytes, now_.root);
  }
  stages_.emplace_back([this, root] {
    local({.kind = CollectiveKind::kBroadcast,
           .dtype = now_.dtype,
           .root = root,
           .elements = now_.elements,
           .source = now_.source,
           .target = now_.target});
  });
}

void HierarchicalRunner::local(Collective collective) {
  collective.number = locals_++;
  local_runs_ = true;
  local_->start(collective);
}

void HierarchicalRunner::send(const std::byte* data, std::int64_t bytes, int member) {
  traffic_.sent(bytes, member);
  for (std::int64_t at = 0; at < bytes; at += kMessageBytes) {
    check_mpi(MPI_Isend(data + at, static_cast<int>(std::min(kMessageBytes, bytes - at)), MPI_BYTE,
                        member, kHostTag, comm_, &requests_.emplace_back()),
              "MPI_Isend");
    waits_for_.push_back(member);
  }
}

void HierarchicalRunner::receive(std::byte* data, std::int64_t bytes, int member) {
  for (std::int64_t at = 0; at < bytes; at += kMessageBytes) {
    check_mpi(MPI_Irecv(data + at, static_cast<int>(std::min(kMessageBytes, bytes - at)), MPI_BYTE,
                        member, kHostTag, comm_, &requests_.emplace_back()),
              "MPI_Irecv");
    waits_for_.push_back(member);
  }
}

std::vector<Wait::Missing> HierarchicalRunner::missing() const {
  if (flat_runs_) return flat_->missing();
  if (local_runs_) return local_->missing();
  std::vector<int> members;
  for (std::size_t i = 0; i < requests_.size(); ++i) {
    int done = 0;
    MPI_Status status;
    MPI_Request_get_status(requests_[i], &done, &status);
    if (!done) members.push_back(waits_for_[i]);
  }
  std::ranges::sort(members);
  members.erase(std::unique(members.begin(), members.end()), members.end());
  std::vector<Wait::Missing> found;
  for (const int m : members) found.push_back({.world_rank = world_ranks_[m], .progress = ""});
  return found;
}

}  // namespace piton
