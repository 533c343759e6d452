#include "comm/ranks/message_runner.h"

#include <algorithm>
#include <cstring>

#include "comm/ranks/sum.h"

namespace piton {

namespace {

// A chunk costs two rounds of messages. With 4 MiB at 1 GB/s, their latency (2 x 20 us) is 1% of
// the time.
constexpr std::int64_t kChunkBytes = 4 << 20;
constexpr int kTag = 1;

}  // namespace

MessageRunner::MessageRunner(std::shared_ptr<RankChannel> channel, std::vector<int> world_ranks,
                             HostTraffic traffic)
    : channel_(std::move(channel)),
      world_ranks_(std::move(world_ranks)),
      traffic_(std::move(traffic)),
      rank_(channel_->rank()) {}

void MessageRunner::start(const Collective& collective) {
  now_ = collective;
  finished_ = false;
  round_ = 0;
  phase_ = Phase::kStart;
  std::int64_t whole = now_.elements;
  per_round_ = kChunkBytes / now_.element_bytes();
  if (now_.kind == CollectiveKind::kScatter) {
    whole = 0;
    for (int m = 0; m < size(); ++m) whole = std::max(whole, now_.part_elements(m));
    per_round_ = std::max<std::int64_t>(1, per_round_ / size());
  }
  rounds_ = std::max<std::int64_t>(1, (whole + per_round_ - 1) / per_round_);
  next_phase();
}

bool MessageRunner::step() {
  if (finished_ || !transfers_.done()) return false;
  next_phase();
  return true;
}

void MessageRunner::next_phase() {
  switch (phase_) {
    case Phase::kStart:
      phase_ = Phase::kLast;
      if (now_.kind == CollectiveKind::kGather || now_.kind == CollectiveKind::kExchange)
        return move_parts();
      if (now_.kind == CollectiveKind::kBroadcast) return broadcast();
      if (now_.kind == CollectiveKind::kBarrier) {
        for (int m = 0; m < size(); ++m) {
          if (m == rank_) continue;
          receive(nullptr, 0, m);
          send(nullptr, 0, m);
        }
        return;
      }
      phase_ = Phase::kPieces;
      return exchange_pieces(round_);
    case Phase::kPieces:
      sum_pieces(round_);
      if (now_.kind == CollectiveKind::kAllReduce) {
        phase_ = Phase::kSums;
        return share_sums(round_);
      }
      [[fallthrough]];
    case Phase::kSums:
      if (++round_ < rounds_) {
        phase_ = Phase::kPieces;
        return exchange_pieces(round_);
      }
      [[fallthrough]];
    case Phase::kLast:
      finished_ = true;
  }
}

MessageRunner::Piece MessageRunner::piece(std::int64_t round, int owner) const {
  const std::int64_t begin = round * per_round_;
  if (now_.kind == CollectiveKind::kScatter) {
    const std::int64_t end = std::min(begin + per_round_, now_.part_elements(owner));
    return {now_.begins[owner] + std::min(begin, end), now_.begins[owner] + end};
  }
  const std::int64_t count = std::min(per_round_, now_.elements - begin);
  return {begin + slice_begin(count, size(), owner), begin + slice_begin(count, size(), owner + 1)};
}

void MessageRunner::exchange_pieces(std::int64_t round) {
  const std::int64_t size_of = now_.element_bytes();
  const Piece mine = piece(round, rank_);
  staging_stride_ = (mine.end - mine.begin) * size_of;
  staging_.resize(std::max(staging_.size(), static_cast<std::size_t>(staging_stride_ * size())));
  for (int m = 0; m < size(); ++m) {
    if (m != rank_) receive(staging_.data() + m * staging_stride_, mine.end - mine.begin, m);
  }
  for (int m = 0; m < size(); ++m) {
    const Piece its = piece(round, m);
    if (m != rank_) send(now_.source + its.begin * size_of, its.end - its.begin, m);
  }
}

void MessageRunner::sum_pieces(std::int64_t round) {
  const Piece mine = piece(round, rank_);
  if (mine.begin == mine.end) return;
  const std::int64_t size_of = now_.element_bytes();
  std::vector<const std::byte*> sources;
  for (int m = 0; m < size(); ++m) {
    sources.push_back(m == rank_ ? now_.source + mine.begin * size_of
                                 : staging_.data() + m * staging_stride_);
  }
  std::byte* target = now_.kind == CollectiveKind::kScatter
                          ? now_.target + (mine.begin - now_.begins[rank_]) * size_of
                          : now_.target + mine.begin * size_of;
  reduce(now_.dtype, now_.reduction, sources, mine.end - mine.begin, std::span(&target, 1));
}

void MessageRunner::share_sums(std::int64_t round) {
  const std::int64_t size_of = now_.element_bytes();
  const Piece mine = piece(round, rank_);
  for (int m = 0; m < size(); ++m) {
    const Piece its = piece(round, m);
    if (m != rank_) receive(now_.target + its.begin * size_of, its.end - its.begin, m);
  }
  for (int m = 0; m < size(); ++m) {
    if (m != rank_) send(now_.target + mine.begin * size_of, mine.end - mine.begin, m);
  }
}

// Part m of the target comes from member m; all get the whole source, or each its part of it.
void MessageRunner::move_parts() {
  const std::int64_t size_of = now_.element_bytes();
  const bool exchanges = now_.kind == CollectiveKind::kExchange;
  const auto source_of = [&](int member) {
    return now_.source + (exchanges ? now_.source_begin(member) * size_of : 0);
  };
  std::byte* own = now_.target + now_.begins[rank_] * size_of;
  const std::int64_t own_elements = now_.part_elements(rank_);
  for (int m = 0; m < size(); ++m) {
    if (m == rank_) continue;
    receive(now_.target + now_.begins[m] * size_of, now_.part_elements(m), m);
    send(source_of(m), exchanges ? now_.source_elements(m) : own_elements, m);
  }
  if (own != source_of(rank_) && own_elements > 0) {
    std::memcpy(own, source_of(rank_), own_elements * size_of);
  }
}

void MessageRunner::broadcast() {
  if (now_.root != rank_) return receive(now_.target, now_.elements, now_.root);
  for (int m = 0; m < size(); ++m) {
    if (m != rank_) send(now_.source, now_.elements, m);
  }
}

void MessageRunner::send(const std::byte* data, std::int64_t elements, int member) {
  const std::int64_t bytes = elements * now_.element_bytes();
  if (bytes == 0 && now_.kind != CollectiveKind::kBarrier) return;
  traffic_.sent(bytes, member);
  transfers_.add(channel_->send(data, bytes, member, kTag), member);
}

void MessageRunner::receive(std::byte* data, std::int64_t elements, int member) {
  const std::int64_t bytes = elements * now_.element_bytes();
  if (bytes == 0 && now_.kind != CollectiveKind::kBarrier) return;
  transfers_.add(channel_->receive(data, bytes, member, kTag), member);
}

std::vector<Wait::Missing> MessageRunner::missing() const {
  std::vector<int> members;
  transfers_.add_missing(members);
  std::sort(members.begin(), members.end());
  members.erase(std::unique(members.begin(), members.end()), members.end());
  std::vector<Wait::Missing> found;
  for (int m : members) found.push_back({.world_rank = world_ranks_[m], .progress = ""});
  return found;
}

}  // namespace piton
