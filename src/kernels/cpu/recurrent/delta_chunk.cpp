#include "kernels/cpu/recurrent/delta_chunk.h"

#include <algorithm>

#include "kernels/cpu/recurrent/delta_rows.h"

namespace piton::cpu {
namespace {

constexpr std::int64_t kBlock = 16;  // rows that a solution takes at once

// A product of keeps; 0 if it is so small that it changes nothing but takes subnormal numbers,
// which are slow, to the products.
float decayed(float before, float keep) {
  constexpr float kLeast = 1e-24F;
  const float product = before * keep;
  return product < kLeast ? 0 : product;
}

// y += factor x.
void add_scaled(float* y, const float* x, std::int64_t n, float factor) {
  for (std::int64_t i = 0; i < n; ++i) y[i] += factor * x[i];
}

}  // namespace

std::int64_t DeltaChunks::floats() const {
  DeltaChunks counted(*this);
  return counted.place(nullptr);
}

std::int64_t DeltaChunks::place(float* memory) {
  Stretches from;
  if (memory != nullptr) from.begin(reinterpret_cast<std::byte*>(memory));
  for (float** one : {&keeps_, &dscores_}) *one = from.take(kDeltaChunk * kDeltaChunk);
  if (corrects_) {
    for (float** one : {&key_scores_, &links_, &scores_, &dlinks_})
      *one = from.take(kDeltaChunk * kDeltaChunk);
  }
  near_ = from.take(kDeltaChunk);
  keys_turned_ = from.take(keys_ * kDeltaChunk);
  turned_ = from.take(columns_ * kDeltaChunk);
  for (float** one : {&updates_, &dd_}) *one = from.take(kDeltaChunk * columns_);
  rows_ = from.take(kDeltaChunk * std::max(keys_, columns_));
  state_turned_ = from.take(columns_ * keys_);
  return from.bytes() / 4;
}

void DeltaChunks::multiply(float* y, const float* x, std::int64_t m, std::int64_t k, const float* w,
                           std::int64_t n, bool adds) const {
  vector_.product(static_cast<int>(m), static_cast<int>(n), static_cast<int>(k), x, k, 1, w, n, y,
                  n, adds);
}

void DeltaChunks::read_keeps(const DeltaChunk& chunk) {
  wide_ = padded(chunk.rows, vector_.lanes);
  for (std::int64_t t = 0; t < chunk.rows; ++t) {
    float* row = keeps_ + t * kDeltaChunk;
    std::fill(row, row + kDeltaChunk, 0.0F);
    for (std::int64_t i = 0; i < t; ++i) row[i] = decayed(row[i - kDeltaChunk], chunk.keep[t]);
    row[t] = 1;
    near_[t] = decayed(t > 0 ? near_[t - 1] : 1, chunk.keep[t]);
  }
}

void DeltaChunks::turn_keys(const DeltaChunk& chunk) {
  wide_ = padded(chunk.rows, vector_.lanes);
  // Rows that do not exist have products of 0.
  if (chunk.rows < wide_) std::fill_n(keys_turned_, keys_ * kDeltaChunk, 0.0F);
  turn(keys_turned_, kDeltaChunk, chunk.k, chunk.rows, keys_);
}

void DeltaChunks::multiply_scores(const DeltaChunk& chunk) {
  turn_keys(chunk);
  multiply_by_turned(chunk.scores, chunk.q, keys_turned_, keys_, chunk.rows);
}

void DeltaChunks::multiply_keys(const DeltaChunk& chunk) {
  turn_keys(chunk);
  multiply_by_turned(key_scores_, chunk.k, keys_turned_, keys_, chunk.rows);
  for (std::int64_t t = 0; t < chunk.rows; ++t) {
    const float* keep = keeps_ + t * kDeltaChunk;
    const float* score = key_scores_ + t * kDeltaChunk;
    float* link = links_ + t * kDeltaChunk;
    for (std::int64_t i = 0; i < t; ++i) link[i] = -chunk.strength[t] * keep[i] * score[i];
    std::fill(link + t, link + wide_, 0.0F);
  }
}

void DeltaChunks::solve(float* d, std::int64_t rows) const {
  const auto add = [&](std::int64_t first, std::int64_t count, std::int64_t from,
                       std::int64_t before) {
    vector_.product(static_cast<int>(count), static_cast<int>(columns_), static_cast<int>(before),
                    links_ + first * kDeltaChunk + from, kDeltaChunk, 1, d + from * columns_,
                    columns_, d + first * columns_, columns_, true);
  };
  for (std::int64_t begin = 0; begin < rows; begin += kBlock) {
    const std::int64_t end = std::min(begin + kBlock, rows);
    if (begin > 0) add(begin, end - begin, 0, begin);
    for (std::int64_t t = begin + 1; t < end; ++t) add(t, 1, begin, t - begin);
  }
}

void DeltaChunks::solve_transposed(float* d, std::int64_t rows) const {
  const auto add = [&](std::int64_t first, std::int64_t count, std::int64_t from,
                       std::int64_t after) {
    vector_.product(static_cast<int>(count), static_cast<int>(columns_), static_cast<int>(after),
                    links_ + from * kDeltaChunk + first, 1, kDeltaChunk, d + from * columns_,
                    columns_, d + first * columns_, columns_, true);
  };
  for (std::int64_t begin = (rows - 1) / kBlock * kBlock; begin >= 0; begin -= kBlock) {
    const std::int64_t end = std::min(begin + kBlock, rows);
    if (end < rows) add(begin, end - begin, end, rows - end);
    for (std::int64_t t = end - 2; t >= begin; --t) add(t, 1, t + 1, end - t - 1);
  }
}

void DeltaChunks::forward(const DeltaChunk& chunk, float* next) {
  const bool corrects_state = corrects_ && chunk.state != nullptr;
  read_keeps(chunk);
  if (corrects_) multiply_keys(chunk);
  if (corrects_state) multiply(rows_, chunk.k, chunk.rows, keys_, chunk.state, columns_, false);
  for (std::int64_t t = 0; t < chunk.rows; ++t) {
    float* e = chunk.e + t * columns_;
    if (corrects_state) add_scaled(e, rows_ + t * columns_, columns_, -near_[t]);
    vector_.scale(chunk.d + t * columns_, e, Type::kF32, columns_, chunk.strength[t]);
  }
  if (corrects_) solve(chunk.d, chunk.rows);
  if (chunk.out != nullptr) write_output(chunk);
  if (next == nullptr) return;
  const std::int64_t last = chunk.rows - 1;
  if (chunk.state != nullptr)
    vector_.scale(next, chunk.state, Type::kF32, keys_ * columns_, near_[last]);
  scale_rows(updates_, chunk.d, keeps_ + last * kDeltaChunk, chunk.rows, 1);
  multiply_turned(next, chunk.k, keys_, keys_, chunk.rows, updates_, columns_,
                  chunk.state != nullptr);
}

// Each row by itself on the diagonal, so that what is not finite reaches no earlier row.
void DeltaChunks::write_output(const DeltaChunk& chunk) const {
  const auto add = [&](std::int64_t first, std::int64_t count, std::int64_t from,
                       std::int64_t before) {
    vector_.product(static_cast<int>(count), static_cast<int>(columns_), static_cast<int>(before),
                    dscores_ + first * kDeltaChunk + from, kDeltaChunk, 1,
                    chunk.d + from * columns_, columns_, chunk.out + first * columns_, columns_,
                    true);
  };
  weigh(dscores_, chunk.scores, chunk.rows);
  if (chunk.state != nullptr)
    multiply(rows_, chunk.q, chunk.rows, keys_, chunk.state, columns_, false);
  for (std::int64_t t = 0; t < chunk.rows; ++t) {
    float* out = chunk.out + t * columns_;
    vector_.scale(out, chunk.e + t * columns_, Type::kF32, columns_, chunk.skip);
    if (chunk.state != nullptr) add_scaled(out, rows_ + t * columns_, columns_, near_[t]);
  }
  for (std::int64_t begin = 0; begin < chunk.rows; begin += kBlock) {
    const std::int64_t end = std::min(begin + kBlock, chunk.rows);
    if (begin > 0) add(begin, end - begin, 0, begin);
    for (std::int64_t t = begin; t < end; ++t) add(t, 1, begin, t - begin + 1);
  }
}

void DeltaChunks::backward(const DeltaChunk& chunk) {
  read_keeps(chunk);
  if (corrects_) multiply_keys(chunk);
  std::fill_n(of_log_, kDeltaChunk, 0.0);
  read_output(chunk);
  read_scores(chunk);
  add_to_rows(chunk);
  if (chunk.state != nullptr) step_back(chunk);
  // A keep is a factor of what its row and later ones have of the state before, and of earlier
  // rows.
  double sum = of_last_;
  for (std::int64_t t = chunk.rows - 1; t >= 0; --t) {
    sum += of_log_[t];
    // A keep of 0 has a gradient of 0, unless that of the state is not finite.
    if (chunk.keep[t] == 0)
      sum = 0 * (sum + dot(chunk.dv + t * columns_, chunk.e + t * columns_, columns_));
    chunk.dlog_keep[t] = static_cast<float>(sum);
  }
  if (corrects_) return;
  for (std::int64_t t = 0; t < chunk.rows; ++t)
    add_scaled(chunk.dv + t * columns_, chunk.dout + t * columns_, columns_, chunk.skip);
}

void DeltaChunks::weigh(float* y, const float* scores, std::int64_t rows) const {
  for (std::int64_t t = 0; t < rows; ++t) {
    for (std::int64_t i = 0; i < wide_; ++i)
      y[t * kDeltaChunk + i] = keeps_[t * kDeltaChunk + i] * scores[t * kDeltaChunk + i];
  }
}

void DeltaChunks::read_output(const DeltaChunk& chunk) {
  const std::int64_t c = chunk.rows;
  if (corrects_) multiply_by_turned(scores_, chunk.q, keys_turned_, keys_, c);
  weigh(dscores_, corrects_ ? scores_ : chunk.scores, c);
  multiply_turned(dd_, dscores_, kDeltaChunk, c, c, chunk.dout, columns_, false);
  of_last_ = 0;
  if (chunk.continues) {
    const float* last = keeps_ + (c - 1) * kDeltaChunk;
    if (chunk.state != nullptr)
      of_last_ =
          near_[c - 1] * static_cast<double>(dot(chunk.state, chunk.dstate, keys_ * columns_));
    multiply(rows_, chunk.k, c, keys_, chunk.dstate, columns_, false);
    for (std::int64_t t = 0; t < c; ++t) {
      const float* row = rows_ + t * columns_;
      const double of_row =
          last[t] * static_cast<double>(dot(chunk.d + t * columns_, row, columns_));
      of_last_ += of_row;
      of_log_[t] -= of_row;
      add_scaled(dd_ + t * columns_, row, columns_, last[t]);
    }
  }
  if (corrects_) solve_transposed(dd_, c);
}

void DeltaChunks::read_scores(const DeltaChunk& chunk) {
  const std::int64_t c = chunk.rows;
  if (c < wide_) std::fill_n(turned_, columns_ * kDeltaChunk, 0.0F);
  turn(turned_, kDeltaChunk, chunk.d, c, columns_);
  multiply_by_turned(dscores_, chunk.dout, turned_, columns_, c);
  if (corrects_) multiply_by_turned(dlinks_, dd_, turned_, columns_, c);
  for (std::int64_t t = 0; t < c; ++t) {
    const float* keep = keeps_ + t * kDeltaChunk;
    float* dscore = dscores_ + t * kDeltaChunk;
    for (std::int64_t i = 0; i <= t; ++i) dscore[i] *= keep[i];
    std::fill(dscore + t + 1, dscore + wide_, 0.0F);
    chunk.dstrength[t] = dot(dd_ + t * columns_, chunk.e + t * columns_, columns_);
    if (corrects_) {
      read_links(chunk, t);
      continue;
    }
    const float* score = chunk.scores + t * kDeltaChunk;
    of_log_[t] += dot(dscore, score, t);
    for (std::int64_t i = 0; i < t; ++i) of_log_[i] -= dscore[i] * score[i];
    vector_.accumulate(chunk.dscores + t * kDeltaChunk, dscore, Type::kF32, t + 1);
  }
  scale_rows(chunk.dv, dd_, chunk.strength, c, 1);
}

void DeltaChunks::read_links(const DeltaChunk& chunk, std::int64_t t) {
  const float* keep = keeps_ + t * kDeltaChunk;
  const float* score = scores_ + t * kDeltaChunk;
  const float* dscore = dscores_ + t * kDeltaChunk;
  const float* dlink = dlinks_ + t * kDeltaChunk;
  float* key_score = key_scores_ + t * kDeltaChunk;
  double of_row = 0;
  double of_strength = 0;
  for (std::int64_t i = 0; i < t; ++i) {
    const float of_score = -keep[i] * dlink[i];
    const float with_keys = of_score * key_score[i];
    const float of_keep = dscore[i] * score[i] + chunk.strength[t] * with_keys;
    of_strength += with_keys;
    of_row += of_keep;
    of_log_[i] -= of_keep;
    key_score[i] = chunk.strength[t] * of_score;
    key_scores_[i * kDeltaChunk + t] = key_score[i];
  }
  key_score[t] = 0;
  of_log_[t] += of_row;
  chunk.dstrength[t] += static_cast<float>(of_strength);
}

void DeltaChunks::add_to_rows(const DeltaChunk& chunk) {
  const std::int64_t c = chunk.rows;
  const auto add = [&](float* to, const float* x, const float* with, float sign) {
    multiply(rows_, x, c, columns_, state_turned_, keys_, false);
    for (std::int64_t t = 0; t < c; ++t) {
      const float* row = rows_ + t * keys_;
      of_log_[t] += sign * near_[t] * static_cast<double>(dot(row, with + t * keys_, keys_));
      add_scaled(to + t * keys_, row, keys_, sign * near_[t]);
    }
  };
  if (chunk.state != nullptr) {
    turn(state_turned_, keys_, chunk.state, keys_, columns_);
    add(chunk.dq, chunk.dout, chunk.q, 1);
    if (corrects_) add(chunk.dk, chunk.dv, chunk.k, -1);
  }
  if (corrects_) {
    add_product(chunk.dq, dscores_, chunk.k, c);
    add_product(chunk.dk, key_scores_, chunk.k, c);
    multiply_turned(chunk.dk, dscores_, kDeltaChunk, c, c, chunk.q, keys_, true);
  }
  if (!chunk.continues) return;
  turn(state_turned_, keys_, chunk.dstate, keys_, columns_);
  scale_rows(updates_, chunk.d, keeps_ + (c - 1) * kDeltaChunk, c, 1);
  multiply(chunk.dk, updates_, c, columns_, state_turned_, keys_, true);
}

void DeltaChunks::add_scores(const DeltaChunk& chunk) const {
  add_product(chunk.dq, chunk.dscores, chunk.k, chunk.rows);
  multiply_turned(chunk.dk, chunk.dscores, kDeltaChunk, chunk.rows, chunk.rows, chunk.q, keys_,
                  true);
}

void DeltaChunks::step_back(const DeltaChunk& chunk) {
  const std::int64_t c = chunk.rows;
  if (chunk.continues)
    vector_.scale(chunk.dstate, chunk.dstate, Type::kF32, keys_ * columns_, near_[c - 1]);
  scale_rows(updates_, chunk.dout, near_, c, 1);
  multiply_turned(chunk.dstate, chunk.q, keys_, keys_, c, updates_, columns_, chunk.continues);
  if (!corrects_) return;
  scale_rows(updates_, chunk.dv, near_, c, -1);
  multiply_turned(chunk.dstate, chunk.k, keys_, keys_, c, updates_, columns_, true);
}

void DeltaChunks::multiply_by_turned(float* y, const float* x, const float* turned,
                                     std::int64_t depth, std::int64_t rows) const {
  vector_.product(static_cast<int>(rows), static_cast<int>(wide_), static_cast<int>(depth), x,
                  depth, 1, turned, kDeltaChunk, y, kDeltaChunk, false);
}

void DeltaChunks::multiply_turned(float* y, const float* x, std::int64_t stride, std::int64_t m,
                                  std::int64_t k, const float* w, std::int64_t n, bool adds) const {
  vector_.product(static_cast<int>(m), static_cast<int>(n), static_cast<int>(k), x, 1, stride, w, n,
                  y, n, adds);
}

void DeltaChunks::add_product(float* y, const float* scores, const float* rows,
                              std::int64_t count) const {
  vector_.product(static_cast<int>(count), static_cast<int>(keys_), static_cast<int>(count), scores,
                  kDeltaChunk, 1, rows, keys_, y, keys_, true);
}

void DeltaChunks::turn(float* y, std::int64_t stride, const float* x, std::int64_t m,
                       std::int64_t n) const {
  vector_.transpose(y, stride, {const_cast<float*>(x), Type::kF32, n}, static_cast<int>(m),
                    static_cast<int>(n));
}

void DeltaChunks::scale_rows(float* y, const float* x, const float* factors, std::int64_t rows,
                             float sign) const {
  for (std::int64_t t = 0; t < rows; ++t)
    vector_.scale(y + t * columns_, x + t * columns_, Type::kF32, columns_, sign * factors[t]);
}

float DeltaChunks::dot(const float* a, const float* b, std::int64_t n) const {
  return vector_.dot(a, Type::kF32, b, Type::kF32, n);
}

}  // namespace piton::cpu
