// Draws tokens without sorting a vocabulary: its ids are divided into bins by the distance from the
// largest logit, and only a bin in which something ends is sorted. Rows are divided among threads.
#include "kernels/sampling.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <vector>

#include "kernels/cpu/context.h"

namespace piton::cpu {
namespace {

constexpr float kNever = -std::numeric_limits<float>::infinity();

// A row of logits in parts.
struct PartedRow {
  const float* first;   // of part 0
  std::int64_t stride;  // from part to part
  std::int64_t columns;
  std::int64_t vocabulary;

  float at(std::int64_t id) const { return first[id / columns * stride + id % columns]; }
  // use(first id, logits, count) for each part.
  template <typename Use>
  void parts(const Use& use) const {
    for (std::int64_t begin = 0, part = 0; begin < vocabulary; begin += columns, ++part)
      use(begin, first + part * stride, std::min(columns, vocabulary - begin));
  }
};

// NaN if a logit is NaN or +infinity.
float largest_of(const PartedRow& row) {
  constexpr std::int64_t kLanes = 16;
  constexpr float kMost = std::numeric_limits<float>::max();
  std::array<float, kLanes> most;
  most.fill(kNever);
  std::array<bool, kLanes> bad{};
  row.parts([&](std::int64_t, const float* x, std::int64_t n) {
    std::int64_t i = 0;
    for (; i + kLanes <= n; i += kLanes) {
      for (std::int64_t lane = 0; lane < kLanes; ++lane) {
        const float value = x[i + lane];
        most[lane] = value > most[lane] ? value : most[lane];
        bad[lane] |= !(value <= kMost);
      }
    }
    for (; i < n; ++i) {
      most[0] = x[i] > most[0] ? x[i] : most[0];
      bad[0] |= !(x[i] <= kMost);
    }
  });
  if (std::ranges::find(bad, true) != bad.end()) return std::numeric_limits<float>::quiet_NaN();
  return *std::ranges::max_element(most);
}

// The order of a row (kernels/sampling.h), of which a beginning is kept.
class OrderedRow {
 public:
  struct Filters {
    double temperature;
    std::int64_t most;  // k
    double share;       // p
    double least;       // min_p
  };

  // `bins`: memory for one number an id. `largest`: of the row, finite.
  OrderedRow(const PartedRow& row, float largest, const Filters& filters, std::uint16_t* bins)
      : row_(row), largest_(largest), filters_(filters), bins_(bins) {
    count_ids();
    keep_first(filters.most);
    sum_weights();
    if (filters.share < 1)
      keep_until(
          [target = filters.share * sum_kept()](double reached) { return reached >= target; });
    drop_unlikely();
  }

  std::int64_t drawn(double u) {
    keep_until([mark = u * sum_kept()](double reached) { return reached > mark; });
    return sorted(last_)[static_cast<std::size_t>(of_last_ - 1)].id;
  }

 private:
  // A bin has the weights from exp(-bin / kParts) down; the last one all that are smaller.
  static constexpr int kBins = 4096;
  static constexpr double kParts = 64;
  static constexpr std::uint16_t kNoBin = kBins;

  struct Id {
    std::int64_t id;
    double weight;
  };

  double weight_of(float logit) const {
    return std::exp((static_cast<double>(logit) - largest_) / filters_.temperature);
  }

  void count_ids() {
    const double scale = std::min(kParts / filters_.temperature, 1e300);  // 0 times it is 0
    row_.parts([&](std::int64_t begin, const float* x, std::int64_t n) {
      for (std::int64_t i = 0; i < n; ++i) {
        const double distance = (static_cast<double>(largest_) - x[i]) * scale;
        const auto bin = static_cast<std::uint16_t>(std::min(distance, kBins - 1.0));
        bins_[begin + i] = x[i] == kNever ? kNoBin : bin;
      }
    });
    for (std::int64_t id = 0; id < row_.vocabulary; ++id) ++counts_[bins_[id]];
  }

  void keep_first(std::int64_t most) {
    std::int64_t count = 0;
    for (int bin = 0; bin < kBins; ++bin) {
      if (counts_[bin] == 0) continue;
      last_ = bin;
      of_last_ = std::min(counts_[bin], most - count);
      count += of_last_;
      if (count == most) return;
    }
  }

  void sum_weights() {
    row_.parts([&](std::int64_t begin, const float* x, std::int64_t n) {
      for (std::int64_t i = 0; i < n; ++i) {
        const std::uint16_t bin = bins_[begin + i];
        if (bin <= last_) sums_[bin] += weight_of(x[i]);
      }
    });
  }

  // The ids of a bin, in order.
  const std::vector<Id>& sorted(int bin) {
    if (sorted_bin_ == bin) return sorted_;
    sorted_.clear();
    for (std::int64_t id = 0; id < row_.vocabulary; ++id)
      if (bins_[id] == bin) sorted_.push_back({id, weight_of(row_.at(id))});
    std::ranges::sort(sorted_, [&](const Id& a, const Id& b) {
      const float x = row_.at(a.id);
      const float y = row_.at(b.id);
      return x != y ? x > y : a.id < b.id;
    });
    sorted_bin_ = bin;
    return sorted_;
  }

  double sum_kept() {
    double sum = 0;
    for (int bin = 0; bin < last_; ++bin) sum += sums_[bin];
    if (of_last_ == counts_[last_]) return sum + sums_[last_];
    const std::vector<Id>& ids = sorted(last_);
    for (std::int64_t i = 0; i < of_last_; ++i) sum += ids[static_cast<std::size_t>(i)].weight;
    return sum;
  }

  // Keeps the fewest ids whose weights are enough; all, if those are not.
  template <typename Enough>
  void keep_until(const Enough& enough) {
    double reached = 0;
    for (int bin = 0; bin <= last_; ++bin) {
      if (counts_[bin] == 0) continue;
      if (bin < last_ && !enough(reached + sums_[bin])) {
        reached += sums_[bin];
        continue;
      }
      const std::vector<Id>& ids = sorted(bin);
      const std::int64_t count = bin < last_ ? counts_[bin] : of_last_;
      for (std::int64_t i = 0; i < count; ++i) {
        reached += ids[static_cast<std::size_t>(i)].weight;
        if (!enough(reached)) continue;
        last_ = bin;
        of_last_ = i + 1;
        return;
      }
    }
  }

  void drop_unlikely() {
    // The first id has the weight 1.
    const auto is_dropped = [&](double weight) { return weight < filters_.least || weight == 0; };
    const auto is_first = [&] { return last_ == 0 && of_last_ == 1; };
    while (!is_first()) {
      // A little more than the largest weight of the bin.
      const bool whole = last_ > 0 && std::exp(-(last_ - 1e-6) / kParts) < filters_.least;
      if (!whole) {
        const std::vector<Id>& ids = sorted(last_);
        while (of_last_ > 0 && !is_first() &&
               is_dropped(ids[static_cast<std::size_t>(of_last_ - 1)].weight))
          --of_last_;
        if (of_last_ > 0) return;
      }
      for (--last_; counts_[last_] == 0; --last_) continue;
      of_last_ = counts_[last_];
    }
  }

  PartedRow row_;
  float largest_;
  Filters filters_;
  std::uint16_t* bins_;
  std::array<std::int64_t, kBins + 1> counts_{};
  std::array<double, kBins> sums_{};
  // Kept: all bins before `last_`, and the first ids of that one.
  int last_ = 0;
  std::int64_t of_last_ = 0;
  int sorted_bin_ = -1;
  std::vector<Id> sorted_;
};

std::int64_t drawn_id(const PartedRow& row, const OrderedRow::Filters& filters, double u,
                      std::uint16_t* bins) {
  const float largest = largest_of(row);
  if (!(largest > kNever)) return -1;
  if (filters.most > 1) return OrderedRow(row, largest, filters, bins).drawn(u);
  std::int64_t id = 0;
  while (row.at(id) != largest) ++id;
  return id;
}

}  // namespace

void execute(CpuContext& context, const ChangeLogits& call) {
  const std::int64_t n = call.logits.dim(1);
  const std::int64_t columns = call.logits.dim(2);
  const auto logit = [&](std::int64_t row, std::int64_t id) {
    return call.logits.data<float>() + (id / columns * n + row) * columns + id % columns;
  };
  const std::int64_t seen = call.seen.defined() ? call.seen.dim(0) : 0;
  for (std::int64_t i = 0; i < seen; ++i) {
    const std::int32_t* one = call.seen.data<std::int32_t>() + 3 * i;
    const double* penalty = call.penalties.data<double>() + 3 * one[0];
    float* place = logit(one[0], one[1]);
    double x = *place;
    x = x < 0 ? x * penalty[0] : x / penalty[0];
    x -= one[2] * penalty[1];
    if (one[2] > 0) x -= penalty[2];
    *place = static_cast<float>(x);
  }
  if (!call.allowed.defined()) return;
  context.ranges(n, 1, [&](std::int64_t row, std::int64_t) {
    const std::uint8_t* allowed = call.allowed.data<std::uint8_t>() + row * call.allowed.dim(1);
    for (std::int64_t id = 0; id < call.vocabulary; ++id)
      if ((allowed[id / 8] >> (id % 8) & 1) == 0) *logit(row, id) = kNever;
  });
}

void execute(CpuContext& context, const DrawTokens& call) {
  const std::int64_t n = call.logits.dim(1);
  const std::int64_t columns = call.logits.dim(2);
  context.ranges(n, 1, [&](std::int64_t row, std::int64_t) {
    const double* filters = call.filters.data<double>() + 4 * row;
    const auto bytes = call.vocabulary * static_cast<std::int64_t>(sizeof(std::uint16_t));
    call.ids.data<std::int32_t>()[row] = static_cast<std::int32_t>(
        drawn_id({.first = call.logits.data<float>() + row * columns,
                  .stride = n * columns,
                  .columns = columns,
                  .vocabulary = call.vocabulary},
                 {.temperature = filters[0],
                  .most = static_cast<std::int64_t>(filters[1]),
                  .share = filters[2],
                  .least = filters[3]},
                 drawn_share(call.places.data<std::int32_t>() + 5 * row),
                 reinterpret_cast<std::uint16_t*>(context.scratch.own(bytes))));
  });
}

}  // namespace piton::cpu
