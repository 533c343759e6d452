// Draws tokens without sorting a vocabulary: its ids are divided into bins by the distance from the
// largest logit, and only a bin in which something ends is sorted. Rows are divided among threads.
#include "kernels/sampling.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <utility>
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

// The number of logits that are not below the largest by more than `sigma` deviations of all.
std::int64_t within_deviations(const PartedRow& row, float largest, double sigma) {
  double sum = 0;
  std::int64_t count = 0;
  const auto each = [&row](const auto& use) {
    row.parts([&](std::int64_t, const float* x, std::int64_t n) {
      for (std::int64_t i = 0; i < n; ++i)
        if (x[i] != kNever) use(static_cast<double>(x[i]));
    });
  };
  each([&](double x) {
    sum += x;
    ++count;
  });
  const double mean = sum / static_cast<double>(count);
  double squares = 0;
  each([&](double x) { squares += (x - mean) * (x - mean); });
  const double least =
      static_cast<double>(largest) - sigma * std::sqrt(squares / static_cast<double>(count));
  std::int64_t within = 0;
  each([&](double x) { within += x >= least ? 1 : 0; });
  return std::max<std::int64_t>(within, 1);
}

// T of a row, from the entropy of its logits if it follows it.
double temperature_of(const PartedRow& row, float largest, const DrawFilters& filters) {
  if (filters.temperature_range == 0) return filters.temperature;
  double sum = 0;
  double product = 0;
  std::int64_t count = 0;
  row.parts([&](std::int64_t, const float* x, std::int64_t n) {
    for (std::int64_t i = 0; i < n; ++i) {
      if (x[i] == kNever) continue;
      const double distance = static_cast<double>(x[i]) - largest;
      const double weight = std::exp(distance);
      sum += weight;
      product += distance * weight;
      ++count;
    }
  });
  return followed_temperature(filters, static_cast<double>(count), sum, product);
}

struct Drawn {
  std::int64_t id = -1;
  double share = 0;
};

// The order of a row (kernels/sampling.h), of which a stretch is kept.
class OrderedRow {
 public:
  // `bins`: memory for one number an id. `largest`: of the row, finite.
  OrderedRow(const PartedRow& row, float largest, const DrawFilters& filters, std::uint16_t* bins)
      : row_(row),
        largest_(largest),
        temperature_(temperature_of(row, largest, filters)),
        filters_(filters),
        bins_(bins) {
    count_ids();
    std::int64_t most = filters.most;
    if (filters.sigma > 0) most = std::min(most, within_deviations(row, largest, filters.sigma));
    keep_first(most);
    sum_weights();
    if (filters.share < 1)
      keep_until(
          [target = filters.share * sum_kept()](double reached) { return reached >= target; });
    drop_unlikely(filters.least);
    if (filters.least_share > 0) drop_unlikely(filters.least_share * sum_kept());
    if (filters.typical < 1) keep_typical();
  }

  // Drops the first ids but the last of those whose share is large.
  void drop_top_choices() {
    const double least = filters_.xtc_threshold * (sum_kept() - sum_skipped());
    std::int64_t before = 0;  // of earlier bins
    std::int64_t likely = 0;  // the number of ids before the first one that is not likely
    for (int bin = 0; bin <= last_; before += counts_[bin++]) {
      if (counts_[bin] == 0 || before + counts_[bin] <= skipped_) continue;
      const std::vector<Id>& ids = sorted(bin);
      const std::int64_t count = bin < last_ ? counts_[bin] : of_last_;
      std::int64_t i = std::max<std::int64_t>(skipped_ - before, 0);
      while (i < count && ids[static_cast<std::size_t>(i)].weight >= least) likely = before + ++i;
      if (i < count) break;
    }
    skipped_ = std::max(skipped_, likely - 1);
  }

  Drawn drawn(double u) {
    const double skipped = sum_skipped();
    const double sum = sum_kept() - skipped;
    keep_until([mark = skipped + u * sum](double reached) { return reached > mark; });
    const Id& last = sorted(last_)[static_cast<std::size_t>(of_last_ - 1)];
    return {.id = last.id, .share = last.weight / sum};
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

  double scaled(float logit) const {
    return (static_cast<double>(logit) - largest_) / temperature_;
  }
  double weight_of(float logit) const { return std::exp(scaled(logit)); }

  void count_ids() {
    const double scale = std::min(kParts / temperature_, 1e300);  // 0 times it is 0
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

  // Of the ids that are skipped, with the additions of keep_until().
  double sum_skipped() {
    double sum = 0;
    std::int64_t left = skipped_;
    for (int bin = 0; left > 0; left -= counts_[bin++]) {
      if (left >= counts_[bin]) {
        sum += sums_[bin];
        continue;
      }
      const std::vector<Id>& ids = sorted(bin);
      for (std::int64_t i = 0; i < left; ++i) sum += ids[static_cast<std::size_t>(i)].weight;
    }
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

  void drop_unlikely(double least) {
    // The first id has the weight 1.
    const auto is_dropped = [&](double weight) { return weight < least || weight == 0; };
    const auto is_first = [&] { return last_ == 0 && of_last_ == 1; };
    while (!is_first()) {
      // A little more than the largest weight of the bin.
      const bool whole = last_ > 0 && std::exp(-(last_ - 1e-6) / kParts) < least;
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

  // The smallest distance within which the weights reach `target`. Each round leaves about half of
  // `ids`, pairs of a distance and a weight.
  static double reaching_distance(std::vector<std::pair<double, double>>& ids, double target) {
    auto begin = ids.begin();
    auto end = ids.end();
    double before = 0;
    while (end - begin > 1) {
      const auto middle = begin + (end - begin) / 2;
      std::nth_element(begin, middle, end);
      double sum = before;
      for (auto i = begin; i < middle; ++i) sum += i->second;
      if (sum >= target) {
        end = middle;
      } else {
        before = sum;
        begin = middle;
      }
    }
    return begin->first;
  }

  void keep_typical() {
    std::vector<std::pair<double, double>> ids;  // (x - max x) / T, weight
    const auto add = [&](float x) { ids.emplace_back(scaled(x), weight_of(x)); };
    for (std::int64_t id = 0; id < row_.vocabulary; ++id)
      if (bins_[id] < last_) add(row_.at(id));
    const std::vector<Id>& of_last = sorted(last_);
    for (std::int64_t i = 0; i < of_last_; ++i)
      add(row_.at(of_last[static_cast<std::size_t>(i)].id));
    double sum = 0;
    double mean = 0;
    for (const auto& [x, weight] : ids) {
      sum += weight;
      mean += x * weight;
    }
    mean /= sum;
    std::vector<std::pair<double, double>> distances;
    for (const auto& [x, weight] : ids) distances.emplace_back(std::abs(x - mean), weight);
    const double farthest = reaching_distance(distances, filters_.typical * sum);
    std::int64_t within = 0;
    for (const auto& [x, weight] : ids) {
      if (std::abs(x - mean) <= farthest) ++within;
      if (x - mean > farthest) ++skipped_;
    }
    keep_first(skipped_ + within);
  }

  PartedRow row_;
  float largest_;
  double temperature_;
  DrawFilters filters_;
  std::uint16_t* bins_;
  std::array<std::int64_t, kBins + 1> counts_{};
  std::array<double, kBins> sums_{};
  // Kept: all bins before `last_`, and the first ids of that one, without the first of all.
  std::int64_t skipped_ = 0;
  int last_ = 0;
  std::int64_t of_last_ = 0;
  int sorted_bin_ = -1;
  std::vector<Id> sorted_;
};

Drawn drawn_id(const PartedRow& row, const DrawFilters& filters, const DrawnShares& shares,
               std::uint16_t* bins) {
  const float largest = largest_of(row);
  if (!(largest > kNever)) return {};
  if (filters.most > 1) {
    OrderedRow order(row, largest, filters, bins);
    if (shares.v < filters.xtc_probability) order.drop_top_choices();
    return order.drawn(shares.u);
  }
  std::int64_t id = 0;
  while (row.at(id) != largest) ++id;
  return {.id = id, .share = 1};
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
    const auto bytes = call.vocabulary * static_cast<std::int64_t>(sizeof(std::uint16_t));
    const Drawn one = drawn_id({.first = call.logits.data<float>() + row * columns,
                                .stride = n * columns,
                                .columns = columns,
                                .vocabulary = call.vocabulary},
                               draw_filters(call.filters.data<double>() + kDrawFilters * row),
                               drawn_shares(call.places.data<std::int32_t>() + 5 * row),
                               reinterpret_cast<std::uint16_t*>(context.scratch.own(bytes)));
    call.ids.data<std::int32_t>()[row] = static_cast<std::int32_t>(one.id);
    call.shares.data<double>()[row] = one.share;
  });
}

}  // namespace piton::cpu
