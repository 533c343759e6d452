// The backward of a norm: dx by rows, and in one pass with the sums of its gain and bias. Internal
// to this folder.
#pragma once

#include "kernels/cuda/held_row.cuh"

namespace piton::cuda {

// X: of x and its gradient, T: of the rest.
template <typename X, typename T>
struct NormGradient {
  X* dx;
  const T* dy;
  const X* dresidual;  // or nullptr
  const X* x;
  const T* gain;
  const Wide<T>* mean;  // nullptr: RMS norm
  const Wide<T>* rstd;
  const Wide<T>* products;  // of whole rows, of which x has a part; or nullptr
  Wide<T> width;            // of a whole row
  Wide<T> gain_offset;
  std::int64_t n;
  std::int64_t h;
  bool vectors;
};

// What dx of a row needs.
template <typename S>
struct RowValues {
  S center;
  S rstd;
  S mean_g;
  S mean_gn;
};

template <int kCount, typename X, typename T>
__device__ __forceinline__ void store_norm_gradient(const NormGradient<X, T>& rows,
                                                    std::int64_t row, std::int64_t column,
                                                    const Numbers<X, kCount>& x,
                                                    const Numbers<T, kCount>& dy,
                                                    const Numbers<X, kCount>& residual,
                                                    const RowValues<Wide<T>>& of) {
  using S = Wide<T>;
  const auto gain = load_part<kCount>(rows.gain, column, rows.h, rows.vectors);
  Numbers<S, kCount> result;
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    const S g = widen(dy.at[i]) * (widen(gain.at[i]) + rows.gain_offset);
    const S normalized = (widen(x.at[i]) - of.center) * of.rstd;
    const S after = rows.dresidual != nullptr ? widen(residual.at[i]) : S{0};
    result.at[i] = of.rstd * (g - of.mean_g - normalized * of.mean_gn) + after;
  }
  store_part(rows.dx + row * rows.h, column, rows.h, rows.vectors, result);
}

template <typename Rows, typename X, typename T>
__global__ void __launch_bounds__(kThreads, kBlocks) norm_gradient_rows(NormGradient<X, T> rows) {
  using S = Wide<T>;
  constexpr int kCount = kVectorOf<X, T>;
  constexpr int kTeam = Rows::kTeam;
  using Team = RowTeam<kTeam, Rows::kHeld, kCount>;
  S* parts = shared_array<S>();
  const std::int64_t row = row_of_team<kTeam>();
  if (row >= rows.n) return;
  const Team team{rows.h, rows.vectors};
  const X* x = rows.x + row * rows.h;
  const T* dy = rows.dy + row * rows.h;
  Numbers<X, kCount> held[Rows::kHeld];
  Numbers<T, kCount> gradient[Rows::kHeld];
  team.load(x, 0, held);
  team.load(dy, 0, gradient);
  const S size = static_cast<S>(rows.h);
  const S center = rows.mean != nullptr ? rows.mean[row] : S{0};
  const S rstd = rows.rstd[row];
  S sum_g = 0;
  S sum_gn = 0;
  for (std::int64_t strip = 0; strip < rows.h; strip += Team::kStrip) {
    if (strip > 0) team.load(x, strip, held);
    if (strip > 0) team.load(dy, strip, gradient);
    team.each(strip, [&](int v, std::int64_t column) {
      const auto gain = load_part<kCount>(rows.gain, column, rows.h, rows.vectors);
#pragma unroll
      for (int i = 0; i < kCount; ++i) {  // past the end of the row dy is zero
        const S g = widen(gradient[v].at[i]) * (widen(gain.at[i]) + rows.gain_offset);
        sum_g += g;
        sum_gn += g * ((widen(held[v].at[i]) - center) * rstd);
      }
    });
  }
  const S mean_g = rows.mean != nullptr ? team_sum<kTeam>(sum_g, parts) / size : S{0};
  const S own = team_sum<kTeam>(sum_gn, parts);
  const S mean_gn = (rows.products != nullptr ? rows.products[row] : own) / rows.width;
  for (std::int64_t strip = 0; strip < rows.h; strip += Team::kStrip) {
    if (!team.holds_all()) team.load(x, strip, held);
    if (!team.holds_all()) team.load(dy, strip, gradient);
    team.each(strip, [&](int v, std::int64_t column) {
      Numbers<X, kCount> residual = {};
      if (rows.dresidual != nullptr) {
        residual = load_part<kCount>(rows.dresidual + row * rows.h, column, rows.h, rows.vectors);
      }
      store_norm_gradient<kCount>(rows, row, column, held[v], gradient[v], residual,
                                  {center, rstd, mean_g, mean_gn});
    });
  }
}

// How the one pass of the backward divides its rows: teams of kTeam threads, with kHeld vectors of
// each.
template <int kThreadsOfTeam, int kVectorsOfThread>
struct PassShape {
  static constexpr int kTeam = kThreadsOfTeam;
  static constexpr int kHeld = kVectorsOfThread;
  static constexpr int kTeams = kThreads / kTeam;
};

// Both sums over the team. All threads of a block come here, with `parts` [2, kWarps] that the call
// before this one did not have: so one barrier is enough.
template <int kTeam, typename S>
__device__ __forceinline__ void sum_in_team(S& one, S& other, S* parts) {
  for (int distance = kWarp / 2; distance > 0; distance /= 2) {
    one += __shfl_xor_sync(kAllLanes, one, distance);
    other += __shfl_xor_sync(kAllLanes, other, distance);
  }
  if constexpr (kTeam == kWarp) return;
  if (threadIdx.x % kWarp == 0) {
    parts[threadIdx.x / kWarp] = one;
    parts[kWarps + threadIdx.x / kWarp] = other;
  }
  __syncthreads();
  const int first = static_cast<int>(threadIdx.x) / kTeam * (kTeam / kWarp);
  one = parts[first];
  other = parts[kWarps + first];
  for (int warp = 1; warp < kTeam / kWarp; ++warp) {
    one += parts[first + warp];
    other += parts[kWarps + first + warp];
  }
}

template <typename X, typename T>
struct NormPass {
  NormGradient<X, T> rows;
  Wide<T>* partial;  // [chunks, kSums, h]
  std::int64_t chunk_rows;
};

// What a thread has of a row.
template <typename X, typename T, int kCount, int kHeld>
struct PassRow {
  using S = Wide<T>;
  Numbers<X, kCount> x[kHeld] = {};
  Numbers<T, kCount> dy[kHeld] = {};
  Numbers<X, kCount> residual[kHeld] = {};
  S center = 0;
  S rstd = 0;

  template <typename Team>
  __device__ __forceinline__ void load(const NormGradient<X, T>& rows, const Team& team,
                                       std::int64_t row) {
    team.load(rows.x + row * rows.h, 0, x);
    team.load(rows.dy + row * rows.h, 0, dy);
    if (rows.dresidual != nullptr) team.load(rows.dresidual + row * rows.h, 0, residual);
    if (rows.mean != nullptr) center = rows.mean[row];
    rstd = rows.rstd[row];
  }
};

// The sums of a chunk, from those that the threads of its teams have.
template <typename Shape, int kSums, typename T, typename Team, typename Sums>
__device__ __forceinline__ void store_chunk(Wide<T>* to, const Team& team, const Sums& sums,
                                            Wide<T>* of_teams) {
  using S = Wide<T>;
  constexpr std::int64_t kWidth = Team::kStrip;
  const std::int64_t of_block = threadIdx.x / Shape::kTeam;
  if constexpr (Shape::kTeams == 1) {
#pragma unroll
    for (int which = 0; which < kSums; ++which) {
      team.each(0, [&](int v, std::int64_t column) {
        store_part(to + which * team.h, column, team.h, false, sums[which][v]);
      });
    }
  } else {
#pragma unroll
    for (int which = 0; which < kSums; ++which) {
      team.each(0, [&](int v, std::int64_t column) {
        store_part(of_teams + (of_block * kSums + which) * kWidth, column, team.h, false,
                   sums[which][v]);
      });
    }
    __syncthreads();
    for (std::int64_t i = threadIdx.x; i < kSums * team.h; i += kThreads) {
      const std::int64_t which = i / team.h;
      const std::int64_t at = which * kWidth + i % team.h;
      S sum = of_teams[at];
      for (int other = 1; other < Shape::kTeams; ++other) {
        sum += of_teams[other * kSums * kWidth + at];
      }
      to[i] = sum;
    }
  }
}

// dx of a chunk of rows, and its sums for the gain, and with kSums = 2 for the bias: a thread has
// those of its columns in registers. Then the teams are added in order.
template <typename Shape, int kSums, typename X, typename T>
__global__ void __launch_bounds__(kThreads, kBlocks) norm_gradient_pass(NormPass<X, T> all) {
  using S = Wide<T>;
  constexpr int kCount = kVectorOf<X, T>;
  constexpr int kTeam = Shape::kTeam;
  constexpr int kHeld = Shape::kHeld;
  using Team = RowTeam<kTeam, kHeld, kCount>;
  // [2, 2, kWarps], then [kTeams, kSums, Team::kStrip] if there are more
  S* parts = shared_array<S>();
  const NormGradient<X, T>& rows = all.rows;
  const Team team{rows.h, rows.vectors};
  const std::int64_t of_block = threadIdx.x / kTeam;
  const std::int64_t begin = std::int64_t{blockIdx.x} * all.chunk_rows;
  const std::int64_t end = begin + all.chunk_rows < rows.n ? begin + all.chunk_rows : rows.n;
  const S size = static_cast<S>(rows.h);
  Numbers<S, kCount> sums[kSums][kHeld] = {};
  // The next row is loaded while this one is summed: one row at a time has too few bytes in flight.
  constexpr bool kAhead = kHeld == 1;  // else there are no registers for it
  PassRow<X, T, kCount, kHeld> next;
  if (kAhead && begin + of_block < end) next.load(rows, team, begin + of_block);
  for (std::int64_t first = begin; first < end; first += Shape::kTeams) {
    const std::int64_t row = first + of_block;
    const bool is_row = row < end;
    if (!kAhead) {
      next = {};
      if (is_row) next.load(rows, team, row);
    }
    const PassRow<X, T, kCount, kHeld> own = next;
    if (kAhead && row + Shape::kTeams < end) next.load(rows, team, row + Shape::kTeams);
    S sum_g = 0;
    S sum_gn = 0;
    if (is_row) {
      team.each(0, [&](int v, std::int64_t column) {
        const auto gain = load_part<kCount>(rows.gain, column, rows.h, rows.vectors);
#pragma unroll
        for (int i = 0; i < kCount; ++i) {  // past the end of the row dy is zero
          const S dy = widen(own.dy[v].at[i]);
          const S normalized = (widen(own.x[v].at[i]) - own.center) * own.rstd;
          const S g = dy * (widen(gain.at[i]) + rows.gain_offset);
          sum_g += g;
          sum_gn += g * normalized;
          sums[0][v].at[i] += dy * normalized;
          if (kSums == 2) sums[kSums - 1][v].at[i] += dy;
        }
      });
    }
    sum_in_team<kTeam>(sum_g, sum_gn, parts + (first - begin) / Shape::kTeams % 2 * 2 * kWarps);
    if (!is_row) continue;
    const S mean_g = rows.mean != nullptr ? sum_g / size : S{0};
    const S mean_gn = (rows.products != nullptr ? rows.products[row] : sum_gn) / rows.width;
    team.each(0, [&](int v, std::int64_t column) {
      store_norm_gradient<kCount>(rows, row, column, own.x[v], own.dy[v], own.residual[v],
                                  {own.center, own.rstd, mean_g, mean_gn});
    });
  }
  store_chunk<Shape, kSums, T>(all.partial + std::int64_t{blockIdx.x} * kSums * rows.h, team, sums,
                               parts + 4 * kWarps);
}

}  // namespace piton::cuda
