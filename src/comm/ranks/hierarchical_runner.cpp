#include "comm/ranks/hierarchical_runner.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "comm/ranks/sum.h"

namespace piton {

namespace {

// Of each tensor. Large next to latency, and several rounds fit into a third-level cache.
constexpr std::int64_t kRoundBytes = 1 << 20;
constexpr int kMostSlots = 16;
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

HierarchicalRunner::HierarchicalRunner(std::shared_ptr<RankChannel> channel,
                                       std::vector<int> world_ranks, Parts parts,
                                       HostTraffic traffic)
    : channel_(std::move(channel)),
      world_ranks_(std::move(world_ranks)),
      blocks_(parts.blocks),
      local_(std::move(parts.local)),
      flat_(std::move(parts.flat)),
      traffic_(std::move(traffic)),
      rank_(channel_->rank()),
      host_(rank_ / blocks_.per_host),
      own_(rank_ % blocks_.per_host) {}

void HierarchicalRunner::start(const Collective& collective) {
  now_ = collective;
  finished_ = false;
  exchanged_ = gathered_ = added_ = returned_ = 0;
  switch (now_.kind) {
    case CollectiveKind::kAllReduce:
    case CollectiveKind::kScatter:
      if (scatters() && flat_sends_less()) break;
      return start_sums();
    case CollectiveKind::kGather:
      return start_gather();
    case CollectiveKind::kBroadcast:
      return start_broadcast();
    case CollectiveKind::kExchange:
    case CollectiveKind::kBarrier:
      break;
  }
  flat_runs_ = true;
  flat_->start(now_);
}

bool HierarchicalRunner::step() {
  if (flat_runs_) {
    const bool moved = flat_->step();
    flat_runs_ = !flat_->finished();
    finished_ = !flat_runs_;
    return moved;
  }
  bool moved = false;
  if (local_runs_) {
    moved |= local_->step();
    if (local_->finished()) {
      local_runs_ = false;
      end_local();
    }
  }
  if (sums()) {
    const std::int64_t oldest = std::max<std::int64_t>(0, exchanged_ - std::ssize(slots_));
    for (std::int64_t round = oldest; round < exchanged_; ++round) moved |= advance(slot(round));
  } else {
    sent_.done();  // MPI moves messages in such calls alone
    if (exchanged_ < rounds_) part(exchanged_).done();
  }
  if (!local_runs_) moved |= start_local();
  if (!local_runs_ && all_done()) finished_ = moved = true;
  return moved;
}

bool HierarchicalRunner::polls() const {
  if (flat_runs_) return flat_->polls();
  const auto open = [](const Transfers& one) { return one.open(); };
  return !finished_ && (open(sent_) || std::ranges::any_of(parts_, open) ||
                        std::ranges::any_of(slots_, [&](const Round& round) {
                          return open(round.arrives) || open(round.returns) || open(round.leaves);
                        }));
}

bool HierarchicalRunner::start_local() {
  if (sums()) return start_round_local();
  if (exchanged_ == rounds_) return false;
  return now_.kind == CollectiveKind::kGather ? start_gather_local() : start_broadcast_local();
}

// Whether no local collective and no message is left.
bool HierarchicalRunner::all_done() {
  if (exchanged_ < rounds_) return false;
  if (!sums()) return sent_.done();
  return std::ranges::all_of(slots_,
                             [](const Round& round) { return round.stage == Stage::kFree; });
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

void HierarchicalRunner::start_sums() {
  // The first part is as long as any other one.
  const std::int64_t whole = scatters() ? now_.part_elements(rank_) : now_.elements;
  per_round_ = kRoundBytes / now_.element_bytes();
  if (scatters()) {
    per_round_ = std::max<std::int64_t>(16, per_round_ / std::ssize(world_ranks_));
  }
  rounds_ = std::max<std::int64_t>(1, (whole + per_round_ - 1) / per_round_);
  slots_.resize(static_cast<std::size_t>(std::min(2 * blocks_.hosts, kMostSlots)));
}

// Exchanges as far ahead as there are slots, and then a gather and an exchange by turns.
bool HierarchicalRunner::start_round_local() {
  if (exchanged_ < rounds_ && (scatters() || exchanged_ < gathered_ + std::ssize(slots_))) {
    Round& round = slot(exchanged_);
    if (round.stage != Stage::kFree) return false;
    round.number = exchanged_++;
    exchange(round);
    return true;
  }
  if (scatters() || gathered_ == rounds_) return false;
  Round& round = slot(gathered_);
  if (round.stage != Stage::kGathers) return false;
  ++gathered_;
  gather_sums(round);
  return true;
}

void HierarchicalRunner::end_local() {
  if (!sums()) return;
  Round& round = *local_round_;
  if (round.stage == Stage::kExchanges) {
    round.stage = Stage::kReceives;
  } else {
    take_sums(round);
    round.stage = Stage::kLeaves;
  }
}

// Messages of rounds go in the order of rounds.
bool HierarchicalRunner::advance(Round& round) {
  switch (round.stage) {
    case Stage::kFree:
    case Stage::kExchanges:
    case Stage::kGathers:
      return false;
    case Stage::kReceives:
      if (added_ != round.number || !round.arrives.done()) return false;
      ++added_;
      add_members(round);
      pass_on(round);
      round.stage = Stage::kReturns;
      return true;
    case Stage::kReturns:
      if (returned_ != round.number || !round.returns.done()) return false;
      ++returned_;
      round.stage = Stage::kLeaves;
      if (scatters()) return true;
      if (host_ > 0) {
        send(round.sums.data(), round.mine * now_.element_bytes(), counterpart(host_ - 1),
             round.leaves);
      }
      round.stage = Stage::kGathers;
      return true;
    case Stage::kLeaves:
      if (!round.leaves.done()) return false;
      round.stage = Stage::kFree;
      return true;
  }
  return false;
}

// Number j of this host gets what it sums of every member of the host. Receives what comes from
// other hosts.
void HierarchicalRunner::exchange(Round& round) {
  const std::int64_t size_of = now_.element_bytes();
  const int locals = blocks_.per_host;
  const int last = blocks_.hosts - 1;
  const std::int64_t whole = scatters() ? now_.part_elements(rank_) : now_.elements;
  round.begin = round.number * per_round_;
  round.count = std::min(per_round_, whole - round.begin);
  const std::byte* source = now_.source + round.begin * size_of;
  if (scatters()) {
    round.slice = round.mine = round.count * blocks_.hosts;
    std::byte* to = room(round.packed, locals * round.slice * size_of);
    for (int j = 0; j < locals; ++j) {
      for (int host = 0; host < blocks_.hosts; ++host) {
        const std::int64_t part = now_.begins[host * locals + j];
        if (round.count > 0) std::memcpy(to, source + part * size_of, round.count * size_of);
        to += round.count * size_of;
      }
    }
    source = round.packed.data();
  } else {
    round.slice = whole_lines((round.count + locals - 1) / locals);
    round.mine = std::clamp<std::int64_t>(round.count - own_ * round.slice, 0, round.slice);
    if (round.count != round.slice * locals) {
      std::byte* to = room(round.packed, locals * round.slice * size_of);
      if (round.count > 0) std::memcpy(to, source, round.count * size_of);
      source = to;
    }
  }
  std::byte* running = room(round.running, round.mine * wide_bytes());
  std::byte* sums = room(round.sums, round.slice * size_of);
  if (host_ > 0) receive(running, round.mine * wide_bytes(), counterpart(host_ - 1), round.arrives);
  if (host_ < last && scatters()) {
    receive(now_.target + round.begin * size_of, round.count * size_of, counterpart(last),
            round.returns);
  } else if (host_ < last) {
    receive(sums, round.mine * size_of, counterpart(host_ + 1), round.returns);
  }
  std::vector<std::int64_t> begins;
  for (int j = 0; j <= locals; ++j) begins.push_back(j * round.slice);
  round.stage = Stage::kExchanges;
  local_round_ = &round;
  local({.kind = CollectiveKind::kExchange,
         .dtype = now_.dtype,
         .elements = locals * round.slice,
         .begins = std::move(begins),
         .source = source,
         .target = room(round.staged, locals * round.slice * size_of)});
}

void HierarchicalRunner::add_members(Round& round) {
  if (round.mine == 0) return;
  const std::int64_t stride = round.slice * now_.element_bytes();
  std::byte* const target = round.running.data();
  if (!widens()) {
    std::vector<const std::byte*> sources;
    if (host_ > 0) sources.push_back(target);
    for (int j = 0; j < blocks_.per_host; ++j) sources.push_back(round.staged.data() + j * stride);
    return reduce(now_.dtype, now_.reduction, sources, round.mine, {&target, 1});
  }
  for (int j = 0; j < blocks_.per_host; ++j) {
    const std::byte* from = round.staged.data() + j * stride;
    if (host_ == 0 && j == 0) {
      widen(now_.dtype, from, round.mine, target);
      continue;
    }
    std::byte* const wide = room(widened_, round.mine * 4);
    widen(now_.dtype, from, round.mine, wide);
    const std::byte* const sources[] = {target, wide};
    reduce(DType::kF32, Reduction::kSum, sources, round.mine, {&target, 1});
  }
}

// To the next host; the last one rounds. The sums of an all-reduce come back from there, and the
// parts of a reduce-scatter go to their owners.
void HierarchicalRunner::pass_on(Round& round) {
  if (host_ + 1 < blocks_.hosts) {
    return send(round.running.data(), round.mine * wide_bytes(), counterpart(host_ + 1),
                round.leaves);
  }
  if (widens()) {
    round_to(now_.dtype, round.running.data(), round.mine, round.sums.data());
  } else if (round.mine > 0) {
    std::memcpy(round.sums.data(), round.running.data(), round.mine * now_.element_bytes());
  }
  if (scatters()) give_parts(round);
}

void HierarchicalRunner::give_parts(Round& round) {
  const std::int64_t bytes = round.count * now_.element_bytes();
  const int last = blocks_.hosts - 1;
  for (int host = 0; host < last; ++host) {
    send(round.sums.data() + host * bytes, bytes, counterpart(host), round.leaves);
  }
  std::byte* target = now_.target + round.begin * now_.element_bytes();
  if (bytes > 0) std::memcpy(target, round.sums.data() + last * bytes, bytes);
}

void HierarchicalRunner::gather_sums(Round& round) {
  const std::int64_t size_of = now_.element_bytes();
  const std::int64_t padded = round.slice * blocks_.per_host;
  std::vector<std::int64_t> begins;
  for (int j = 0; j <= blocks_.per_host; ++j) begins.push_back(j * round.slice);
  local_round_ = &round;
  local({.kind = CollectiveKind::kGather,
         .dtype = now_.dtype,
         .elements = padded,
         .begins = std::move(begins),
         .source = round.sums.data(),
         .target = round.count == padded ? now_.target + round.begin * size_of
                                         : room(round.staged, padded * size_of)});
}

// What did not fit into its place.
void HierarchicalRunner::take_sums(Round& round) {
  if (round.count == round.slice * blocks_.per_host || round.count == 0) return;
  const std::int64_t size_of = now_.element_bytes();
  std::memcpy(now_.target + round.begin * size_of, round.staged.data(), round.count * size_of);
}

// The parts of number own_ of all hosts go to all of these; each host gathers those of every host,
// one after the other, because they are next to each other in the whole. Its own come first.
void HierarchicalRunner::start_gather() {
  const std::int64_t size_of = now_.element_bytes();
  rounds_ = blocks_.hosts;
  parts_ = std::vector<Transfers>(static_cast<std::size_t>(rounds_));
  for (std::int64_t i = 1; i < rounds_; ++i) {
    const int member = counterpart(host_of(i));
    receive(now_.target + now_.begins[member] * size_of, now_.part_elements(member) * size_of,
            member, part(i));
    send(now_.source, now_.part_elements(rank_) * size_of, member, sent_);
  }
}

int HierarchicalRunner::host_of(std::int64_t gather) const {
  return static_cast<int>(gather == 0 ? host_ : gather <= host_ ? gather - 1 : gather);
}

bool HierarchicalRunner::start_gather_local() {
  if (!part(exchanged_).done()) return false;
  const int host = host_of(exchanged_++);
  const int first = host * blocks_.per_host;
  const std::int64_t from = now_.begins[first];
  std::vector<std::int64_t> begins;
  for (int j = 0; j <= blocks_.per_host; ++j) begins.push_back(now_.begins[first + j] - from);
  std::byte* target = now_.target + from * now_.element_bytes();
  local({.kind = CollectiveKind::kGather,
         .dtype = now_.dtype,
         .elements = begins.back(),
         .begins = begins,
         .source = host == host_ ? now_.source : target + begins[own_] * now_.element_bytes(),
         .target = target});
  return true;
}

void HierarchicalRunner::start_broadcast() {
  const std::int64_t bytes = now_.elements * now_.element_bytes();
  const int root_host = now_.root / blocks_.per_host;
  rounds_ = 1;
  parts_ = std::vector<Transfers>(1);
  if (now_.root == rank_) {
    for (int host = 0; host < blocks_.hosts; ++host) {
      if (host != root_host) send(now_.source, bytes, counterpart(host), sent_);
    }
  } else if (own_ == now_.root % blocks_.per_host && host_ != root_host) {
    receive(now_.target, bytes, now_.root, part(0));
  }
}

bool HierarchicalRunner::start_broadcast_local() {
  if (!part(exchanged_).done()) return false;
  ++exchanged_;
  local({.kind = CollectiveKind::kBroadcast,
         .dtype = now_.dtype,
         .root = now_.root % blocks_.per_host,
         .elements = now_.elements,
         .source = now_.source,
         .target = now_.target});
  return true;
}

void HierarchicalRunner::local(Collective collective) {
  collective.number = locals_++;
  local_runs_ = true;
  local_->start(collective);
}

void HierarchicalRunner::send(const std::byte* data, std::int64_t bytes, int member,
                              Transfers& to) {
  traffic_.sent(bytes, member);
  if (bytes > 0) to.add(channel_->send(data, bytes, member, kHostTag), member);
}

void HierarchicalRunner::receive(std::byte* data, std::int64_t bytes, int member, Transfers& from) {
  if (bytes > 0) from.add(channel_->receive(data, bytes, member, kHostTag), member);
}

// A round waits for the messages of its stage; later ones cannot be there yet.
std::vector<Wait::Missing> HierarchicalRunner::missing() const {
  if (flat_runs_) return flat_->missing();
  if (local_runs_) return local_->missing();
  std::vector<int> members;
  const auto add = [&](const Transfers& transfers) { transfers.add_missing(members); };
  if (sums()) {
    for (const Round& round : slots_) {
      if (round.stage == Stage::kReceives) add(round.arrives);
      if (round.stage == Stage::kReturns) add(round.returns);
      add(round.leaves);
    }
  } else {
    for (const Transfers& part : parts_) add(part);
    add(sent_);
  }
  std::ranges::sort(members);
  members.erase(std::unique(members.begin(), members.end()), members.end());
  std::vector<Wait::Missing> found;
  for (const int m : members) found.push_back({.world_rank = world_ranks_[m], .progress = ""});
  return found;
}

}  // namespace piton
