#include "comm/ranks/shared_runner.h"

#include <algorithm>
#include <cstring>
#include <new>

#include "base/hash.h"
#include "comm/ranks/sum.h"

namespace piton {

namespace {

// A round of n ranks touches n slots. With two ranks, both slots of both ranks fit into a
// second-level cache of 2 MiB. Chosen by measurement: docs/benchmarks.md.
constexpr std::int64_t kSlotBytes = 512 << 10;
constexpr std::int64_t kLineBytes = 4096;

// Up to this size every member sums everything: n times the additions, but one synchronization
// instead of two. A synchronization takes about 10 us; one core sums about 32 KiB in that time.
constexpr std::int64_t kSmallBytes = 16 << 10;

// Bytes summed in place per step, before the other activities get their turn.
constexpr std::int64_t kPieceOfSum = 1 << 20;

}  // namespace

SharedRunner::SharedRunner(RankChannel& group, HostBoard& board, std::vector<int> members)
    : board_(&board),
      members_(std::move(members)),
      rank_(group.rank()),
      window_(group.share(kLineBytes + 2 * kSlotBytes)) {
  static_assert(sizeof(Line) <= kLineBytes);
  new (window_->segment(rank_)) Line{};
  group.barrier();
}

void SharedRunner::add_symmetric(std::shared_ptr<SharedWindow> window) {
  symmetric_.push_back({++symmetric_made_, std::move(window)});
}

void SharedRunner::remove_symmetric(const SharedWindow* window) {
  std::erase_if(symmetric_, [&](const Symmetric& s) { return s.window.get() == window; });
}

std::byte* SharedRunner::slot(int member, std::int64_t round) const {
  return window_->segment(member) + kLineBytes +
         static_cast<std::int64_t>((base_ + round) % 2) * kSlotBytes;
}

std::uint64_t SharedRunner::least(Counter counter) const {
  std::uint64_t value = ~std::uint64_t{0};
  for (int member = 0; member < size(); ++member) {
    value = std::min(value, (line(member).*counter).load(std::memory_order_seq_cst));
  }
  return value;
}

void SharedRunner::ring_others() {
  for (int member = 0; member < size(); ++member) {
    if (member != rank_) board_->bell(members_[member]).ring();
  }
}

// Everyone waits for all members, so only the member that completes the condition needs to wake the
// others. If two write at the same time, at least one of them sees it complete, because the order
// is sequentially consistent.
void SharedRunner::publish(Counter counter, std::uint64_t value) {
  (line(rank_).*counter).store(value, std::memory_order_seq_cst);
  if (least(counter) >= value) ring_others();
}

void SharedRunner::start(const Collective& collective) {
  now_ = collective;
  base_ += static_cast<std::uint64_t>(rounds_);
  filled_ = summed_ = taken_ = done_elements_ = 0;
  checked_ = false;
  std::int64_t whole = now_.elements;
  std::int64_t room = kSlotBytes / now_.element_bytes();
  two_steps_ = false;
  switch (now_.kind) {
    case CollectiveKind::kAllReduce:
      // With two members, summing everything costs as much as summing half and copying half.
      two_steps_ = size() > 2 && now_.elements * now_.element_bytes() > kSmallBytes;
      break;
    case CollectiveKind::kBroadcast:
    case CollectiveKind::kBarrier:
      break;
    case CollectiveKind::kGather:
    case CollectiveKind::kScatter:
    case CollectiveKind::kExchange:
      whole = now_.longest_part();
      if (now_.kind != CollectiveKind::kGather) room = room / size() / 16 * 16;
      PITON_ASSERT(room > 0, "a group of {} ranks on one host", size());
      break;
  }
  per_round_ = room;
  rounds_ = std::max<std::int64_t>(1, (whole + room - 1) / room);

  const std::vector<std::int64_t>& parts = now_.pairs.empty() ? now_.begins : now_.pairs;
  Header& header = line(rank_).headers[now_.number % 2];
  header = {.asked = {.kind = now_.kind,
                      .dtype = now_.dtype,
                      .reduction = now_.reduction,
                      .root = now_.root,
                      .elements = now_.elements,
                      .parts = hash64({reinterpret_cast<const char*>(parts.data()),
                                       parts.size() * sizeof(parts[0])})},
            .symmetric = 0,
            .symmetric_offset = 0};
  if (now_.kind == CollectiveKind::kAllReduce || now_.kind == CollectiveKind::kGather ||
      now_.kind == CollectiveKind::kScatter) {
    const std::int64_t source_bytes =
        now_.element_bytes() *
        (now_.kind == CollectiveKind::kGather ? now_.part_elements(rank_) : now_.elements);
    for (const Symmetric& s : symmetric_) {
      const std::byte* begin = s.window->segment(rank_);
      if (now_.source >= begin && now_.source + source_bytes <= begin + s.window->segment_bytes()) {
        header.symmetric = s.number;
        header.symmetric_offset = now_.source - begin;
      }
    }
  }
  if (header.symmetric != 0) {
    phase_ = Phase::kUndecided;
    publish(&Line::posted, static_cast<std::uint64_t>(now_.number) + 1);
  } else {
    phase_ = Phase::kSlots;  // `posted` is published together with the first round
  }
}

void SharedRunner::check_headers() {
  checked_ = true;
  const Asked& mine = line(rank_).headers[now_.number % 2].asked;
  for (int member = 0; member < size(); ++member) {
    const Asked& its = line(member).headers[now_.number % 2].asked;
    if (its == mine) continue;
    throw Error(
        Fault::kPeer,
        "comm: the ranks disagree on collective number {}: member {} asks for {} of {} [{}], "
        "member {} for {} of {} [{}], or with another sum, root or parts; do all ranks run "
        "the same program with the same options?",
        now_.number, rank_, name(mine.kind), name(mine.dtype), mine.elements, member,
        name(its.kind), name(its.dtype), its.elements);
  }
}

bool SharedRunner::step() {
  switch (phase_) {
    case Phase::kFinished:
      return false;
    case Phase::kUndecided: {
      if (least(&Line::posted) < static_cast<std::uint64_t>(now_.number) + 1) return false;
      check_headers();
      const std::int64_t number = line(rank_).headers[now_.number % 2].symmetric;
      bool all = true;
      for (int m = 0; m < size(); ++m) {
        all = all && line(m).headers[now_.number % 2].symmetric == number;
      }
      phase_ = all ? Phase::kInPlace : Phase::kSlots;
      if (all) rounds_ = 1;
      return true;
    }
    case Phase::kSlots:
      return step_slots();
    case Phase::kInPlace:
      return step_in_place();
  }
  return false;
}

bool SharedRunner::step_slots() {
  bool moved = false;
  if (filled_ < rounds_) {
    const std::uint64_t round = base_ + static_cast<std::uint64_t>(filled_);
    if (round < 2 || least(&Line::taken) >= round - 1) {
      fill(filled_);
      if (filled_ == 0) {
        line(rank_).posted.store(static_cast<std::uint64_t>(now_.number) + 1,
                                 std::memory_order_seq_cst);
      }
      ++filled_;
      line(rank_).filled.store(round + 1, std::memory_order_seq_cst);
      // Members that may work in place wait only for `posted`.
      if (least(&Line::filled) >= round + 1 ||
          (filled_ == 1 && least(&Line::posted) > static_cast<std::uint64_t>(now_.number))) {
        ring_others();
      }
      moved = true;
    }
  }
  if (two_steps_ && summed_ < filled_ &&
      least(&Line::filled) >= base_ + static_cast<std::uint64_t>(summed_) + 1) {
    if (!checked_) check_headers();
    sum(summed_);
    ++summed_;
    publish(&Line::summed, base_ + static_cast<std::uint64_t>(summed_));
    moved = true;
  }
  const std::int64_t takeable = two_steps_ ? summed_ : filled_;
  if (taken_ < takeable && least(two_steps_ ? &Line::summed : &Line::filled) >=
                               base_ + static_cast<std::uint64_t>(taken_) + 1) {
    if (!checked_) check_headers();
    take(taken_);
    ++taken_;
    const std::uint64_t rounds = base_ + static_cast<std::uint64_t>(taken_);
    if (!two_steps_) line(rank_).summed.store(rounds, std::memory_order_release);
    publish(&Line::taken, rounds);
    moved = true;
    if (taken_ == rounds_) phase_ = Phase::kFinished;
  }
  return moved;
}

void SharedRunner::fill(std::int64_t round) {
  const std::int64_t size_of = now_.element_bytes();
  const std::int64_t begin = round * per_round_;
  std::byte* to = slot(rank_, round);
  const auto copy = [&](const std::byte* from, std::int64_t elements) {
    if (elements > 0) std::memcpy(to, from, elements * size_of);
  };
  switch (now_.kind) {
    case CollectiveKind::kAllReduce:
      copy(now_.source + begin * size_of, std::min(per_round_, now_.elements - begin));
      break;
    case CollectiveKind::kBroadcast:
      if (now_.root == rank_) {
        copy(now_.source + begin * size_of, std::min(per_round_, now_.elements - begin));
      }
      break;
    case CollectiveKind::kGather:
      copy(now_.source + begin * size_of, std::min(per_round_, now_.part_elements(rank_) - begin));
      break;
    case CollectiveKind::kScatter:
    case CollectiveKind::kExchange:
      for (int m = 0; m < size(); ++m) {
        if (m == rank_ && now_.kind == CollectiveKind::kExchange) continue;
        to = slot(rank_, round) + m * per_round_ * size_of;
        copy(now_.source + (now_.source_begin(m) + begin) * size_of,
             std::min(per_round_, now_.source_elements(m) - begin));
      }
      break;
    case CollectiveKind::kBarrier:
      break;
  }
}

void SharedRunner::sum(std::int64_t round) {
  const std::int64_t count = std::min(per_round_, now_.elements - round * per_round_);
  const std::int64_t begin = slice_begin(count, size(), rank_);
  const std::int64_t end = slice_begin(count, size(), rank_ + 1);
  std::vector<const std::byte*> sources;
  for (int m = 0; m < size(); ++m) {
    sources.push_back(slot(m, round) + begin * now_.element_bytes());
  }
  std::byte* target = slot(rank_, round) + begin * now_.element_bytes();
  reduce(now_.dtype, now_.reduction, sources, end - begin, std::span(&target, 1));
}

void SharedRunner::take(std::int64_t round) {
  const std::int64_t size_of = now_.element_bytes();
  const std::int64_t begin = round * per_round_;
  const auto copy = [&](std::byte* to, const std::byte* from, std::int64_t elements) {
    if (elements > 0) std::memcpy(to, from, elements * size_of);
  };
  switch (now_.kind) {
    case CollectiveKind::kAllReduce: {
      const std::int64_t count = std::min(per_round_, now_.elements - begin);
      std::byte* to = now_.target + begin * size_of;
      if (two_steps_) {
        for (int m = 0; m < size(); ++m) {
          const std::int64_t first = slice_begin(count, size(), m);
          const std::int64_t last = slice_begin(count, size(), m + 1);
          copy(to + first * size_of, slot(m, round) + first * size_of, last - first);
        }
      } else {
        std::vector<const std::byte*> sources;
        for (int m = 0; m < size(); ++m) sources.push_back(m == rank_ ? to : slot(m, round));
        reduce(now_.dtype, now_.reduction, sources, count, std::span(&to, 1));
      }
      break;
    }
    case CollectiveKind::kBroadcast:
      if (now_.root != rank_) {
        copy(now_.target + begin * size_of, slot(now_.root, round),
             std::min(per_round_, now_.elements - begin));
      }
      break;
    case CollectiveKind::kGather:
      for (int m = 0; m < size(); ++m) {
        std::byte* to = now_.target + (now_.begins[m] + begin) * size_of;
        if (m == rank_ && to == now_.source + begin * size_of) continue;  // already at its target
        copy(to, slot(m, round), std::min(per_round_, now_.part_elements(m) - begin));
      }
      break;
    case CollectiveKind::kScatter: {
      std::vector<const std::byte*> sources;
      for (int m = 0; m < size(); ++m) {
        sources.push_back(slot(m, round) + rank_ * per_round_ * size_of);
      }
      std::byte* to = now_.target + begin * size_of;
      const std::int64_t count = std::min(per_round_, now_.part_elements(rank_) - begin);
      if (count > 0) reduce(now_.dtype, now_.reduction, sources, count, std::span(&to, 1));
      break;
    }
    case CollectiveKind::kExchange:
      for (int m = 0; m < size(); ++m) {
        if (m == rank_) {
          // May be longer than all parts that go through slots: a share of it in each round.
          const std::int64_t own = now_.part_elements(m);
          const std::int64_t first = own * round / rounds_;
          copy(now_.target + (now_.begins[m] + first) * size_of,
               now_.source + (now_.source_begin(m) + first) * size_of,
               own * (round + 1) / rounds_ - first);
          continue;
        }
        copy(now_.target + (now_.begins[m] + begin) * size_of,
             slot(m, round) + rank_ * per_round_ * size_of,
             std::min(per_round_, now_.part_elements(m) - begin));
      }
      break;
    case CollectiveKind::kBarrier:
      break;
  }
}

std::byte* SharedRunner::in_place(int member) const {
  const Header& header = line(member).headers[now_.number % 2];
  for (const Symmetric& s : symmetric_) {
    if (s.number == header.symmetric) return s.window->segment(member) + header.symmetric_offset;
  }
  PITON_ASSERT(false, "symmetric memory {} of this group is gone", header.symmetric);
  return nullptr;
}

bool SharedRunner::step_in_place() {
  const std::int64_t size_of = now_.element_bytes();
  const std::int64_t piece = kPieceOfSum / size_of;
  std::int64_t begin = 0;  // the elements that this member computes
  std::int64_t end = 0;
  switch (now_.kind) {
    case CollectiveKind::kAllReduce:
      begin = slice_begin(now_.elements, size(), rank_);
      end = slice_begin(now_.elements, size(), rank_ + 1);
      break;
    case CollectiveKind::kGather:
      end = now_.elements;
      break;
    case CollectiveKind::kScatter:
      end = now_.part_elements(rank_);
      break;
    case CollectiveKind::kExchange:
    case CollectiveKind::kBroadcast:
    case CollectiveKind::kBarrier:
      PITON_ASSERT(false, "never in place");
  }
  if (summed_ == 0) {
    const std::int64_t at = begin + done_elements_;
    const std::int64_t count = std::min(piece, end - at);
    if (count > 0) {
      std::vector<const std::byte*> sources;
      std::vector<std::byte*> targets;
      switch (now_.kind) {
        case CollectiveKind::kAllReduce:
          for (int m = 0; m < size(); ++m) {
            std::byte* there = in_place(m) + at * size_of;
            sources.push_back(there);
            targets.push_back(there);
          }
          reduce(now_.dtype, now_.reduction, sources, count, targets);
          break;
        case CollectiveKind::kScatter:
          for (int m = 0; m < size(); ++m) {
            sources.push_back(in_place(m) + (now_.begins[rank_] + at) * size_of);
          }
          targets.push_back(now_.target + at * size_of);
          reduce(now_.dtype, now_.reduction, sources, count, targets);
          break;
        case CollectiveKind::kGather:
          for (int m = 0; m < size(); ++m) {
            const std::int64_t from = std::max(at, now_.begins[m]);
            const std::int64_t to = std::min(at + count, now_.begins[m + 1]);
            if (from >= to) continue;
            const std::byte* there = in_place(m) + (from - now_.begins[m]) * size_of;
            std::byte* here = now_.target + from * size_of;
            if (here != there) std::memcpy(here, there, (to - from) * size_of);
          }
          break;
        case CollectiveKind::kExchange:
        case CollectiveKind::kBroadcast:
        case CollectiveKind::kBarrier:
          break;
      }
      done_elements_ += count;
      return true;
    }
    summed_ = 1;
    publish(&Line::summed, base_ + 1);
    return true;
  }
  // The others read (or write) this member's memory until they have summed too.
  if (least(&Line::summed) < base_ + 1) return false;
  line(rank_).filled.store(base_ + 1, std::memory_order_seq_cst);
  publish(&Line::taken, base_ + 1);
  phase_ = Phase::kFinished;
  return true;
}

std::vector<Wait::Missing> SharedRunner::missing() const {
  std::vector<Wait::Missing> found;
  const auto number = static_cast<std::uint64_t>(now_.number);
  for (int member = 0; member < size(); ++member) {
    const std::uint64_t posted = line(member).posted.load(std::memory_order_acquire);
    if (posted > number) continue;
    found.push_back({.world_rank = board_->world_rank(members_[member]),
                     .progress = posted == 0 ? "has joined none yet"
                                             : fmt::format("last joined number {}", posted - 1)});
  }
  if (!found.empty()) return found;
  // All have posted: find those that are late in a later round.
  for (int member = 0; member < size(); ++member) {
    const std::uint64_t taken = line(member).taken.load(std::memory_order_acquire);
    if (member != rank_ && taken <= line(rank_).taken.load(std::memory_order_acquire)) {
      found.push_back({.world_rank = board_->world_rank(members_[member]),
                       .progress = "joined, but stopped in the middle"});
    }
  }
  return found;
}

}  // namespace piton
