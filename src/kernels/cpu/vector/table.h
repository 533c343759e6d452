// The loops of one instruction set: plain functions over pointers and sizes. The files above this
// folder divide the work and call them; one table is chosen when the back end is made.
//
// Strides and sizes are in elements. A range "begin, end" is of rows. Matrices are [rows, columns]
// with contiguous columns. Nothing here allocates.
#pragma once

#include <cstdint>

namespace piton::cpu {

enum class Type : std::uint8_t { kF32, kBF16, kF16 };

struct Matrix {
  void* data = nullptr;  // null: not given
  Type type = Type::kF32;
  std::int64_t stride = 0;  // from row to row
};

// Mask draws of one row: key, first three words of the counter, threshold and scale.
struct MaskRow {
  std::uint32_t key_low = 0;
  std::uint32_t key_high = 0;
  std::uint32_t counter[3] = {0, 0, 0};
  std::uint32_t threshold = 0;
  float scale = 1;
  std::int64_t first_column = 0;  // of dropout_add
};

enum class Activation : std::uint8_t {
  kGeluTanh,
  kGeluErf,
  kGeluFast,
  kSilu,
  kRelu,
  kSquaredRelu,
  kSigmoid,
  kIdentity
};

// One row: y = residual + mask * (x + bias), and sums += the same before rounding.
struct DropoutArguments {
  void* y = nullptr;
  const void* x = nullptr;
  const void* bias = nullptr;      // or not given
  const void* residual = nullptr;  // or not given
  Type type = Type::kF32;          // of x and bias
  Type type_of_y = Type::kF32;     // and of the residual
  const MaskRow* mask = nullptr;   // not given: all are kept
  float* sums = nullptr;           // or not given
  std::int64_t columns = 0;
};

struct NormArguments {
  Matrix y;  // forward: y; backward: dx
  Matrix x;
  Matrix dy;                    // backward
  Matrix dresidual;             // backward, or not given
  const void* gain = nullptr;   // [columns], type of y (dy)
  const void* bias = nullptr;   // forward, or not given
  float* mean = nullptr;        // not given: root mean square
  const float* sums = nullptr;  // of whole rows, of which x has a part: forward: of x^2; backward:
                                // of gain dy x rstd; or not given
  float* rstd = nullptr;
  float* dgain = nullptr;  // backward: [columns] each, added to
  float* dbias = nullptr;
  std::int64_t columns = 0;
  std::int64_t width = 0;  // of a whole row
  float eps = 0;
  float gain_offset = 0;  // added to each gain
};

struct ActivationArguments {
  Matrix y;    // forward: y; backward: dx
  Matrix dup;  // backward of gated
  Matrix dy;   // backward
  Matrix x;
  Matrix up;  // gated, or not given
  std::int64_t columns = 0;
  Activation kind = Activation::kGeluTanh;
  // Of gated ones that are bounded (kernels/activation.h); infinity: no bound.
  bool bounded = false;
  float bound = 0;
  float offset = 0;
};

// The end of a tile of products: y = sums + residual, or the activation of that, from sums in fp32.
struct FinishArguments {
  const float* sums = nullptr;  // [rows, columns]
  std::int64_t sums_stride = 0;
  Matrix y;
  Matrix residual;       // type of y; not given only with an activation
  Matrix preactivation;  // what is activated, in the type of y, or not given
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  bool activates = false;
  Activation kind = Activation::kGeluTanh;
};

struct AdamwArguments {
  float* main = nullptr;
  void* first = nullptr;
  Type first_type = Type::kF32;  // or kBF16
  void* second = nullptr;
  Type second_type = Type::kF32;  // or kBF16
  void* copy = nullptr;
  Type copy_type = Type::kF32;
  const float* gradient = nullptr;
  float learning_rate = 0;
  float keep = 1;  // 1 - learning rate * decay
  float beta1 = 0;
  float beta2 = 0;
  float rest1 = 0;  // 1 - beta1
  float rest2 = 0;
  float correction1 = 1;
  float correction2 = 1;
  float eps = 0;
  float gradient_scale = 1;
  std::uint32_t update_number = 1;
};

struct SgdArguments {
  float* main = nullptr;
  float* buffer = nullptr;  // null: no momentum
  void* copy = nullptr;
  Type copy_type = Type::kF32;
  const float* gradient = nullptr;
  float learning_rate = 0;
  float momentum = 0;
  float decay = 0;
  float gradient_scale = 1;
};

// buffer = keep buffer + rest scale gradient; direction = buffer, or with nesterov the same again.
struct MuonMomentumArguments {
  float* direction = nullptr;
  float* buffer = nullptr;
  const float* gradient = nullptr;
  float scale = 1;
  float keep = 0;
  float rest = 1;
  bool nesterov = false;
};

// main = keep main - step direction
struct MuonUpdateArguments {
  float* main = nullptr;
  void* copy = nullptr;  // or null
  Type copy_type = Type::kF32;
  const void* direction = nullptr;
  Type direction_type = Type::kF32;
  float keep = 1;
  float step = 0;
};

// One block of attention scores: rows are queries, columns are keys. Row i sees the columns
// low[i] <= j < high[i] and, where segments are given, those with the row's own segment.
struct ScoreArguments {
  float* scores = nullptr;  // [rows, stride]
  std::int64_t stride = 0;
  int rows = 0;
  int columns = 0;                               // a multiple of the vector
  std::int64_t first_key = 0;                    // position of column 0
  const std::int64_t* low = nullptr;             // [rows]
  const std::int64_t* high = nullptr;            // [rows]
  const std::int32_t* query_segments = nullptr;  // [rows] or not given
  const std::int32_t* key_segments = nullptr;    // [columns], padded
  bool masked = false;                           // false: every pair of the block is visible
  float scale = 1;
  float slope = 0;                          // 0: none
  const std::int64_t* positions = nullptr;  // [rows]
};

// Rows of channels, all fp32 [rows, columns]; those of x have the width - 1 rows before them too.
struct ConvolutionArguments {
  float* y = nullptr;        // forward
  float* dx = nullptr;       // backward: [rows + width - 1, columns], added to
  float* dweight = nullptr;  // backward: [width, columns], added to
  float* dbias = nullptr;    // backward: [columns], added to
  const float* dy = nullptr;
  const float* x = nullptr;             // [rows + width - 1, columns]
  const float* weight = nullptr;        // [width, columns]
  const float* bias = nullptr;          // [columns]
  const std::uint8_t* reach = nullptr;  // [rows]: of the last rows those that a row reads
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  std::int64_t width = 0;
  bool silu = true;
};

// Columns of the states of delta_forward, in vectors.
constexpr int kDeltaVectors = 4;

// Rows of one value head, in order (kernels/recurrent/delta_rule.h).
struct DeltaArguments {
  std::int64_t rows = 0;
  std::int64_t keys = 0;            // dk
  const float* q = nullptr;         // [rows, keys]
  const float* k = nullptr;         // [rows, keys]
  const float* v = nullptr;         // [rows, columns]
  const float* keep = nullptr;      // [rows]; 0: the states are 0 before the row
  const float* strength = nullptr;  // [rows]
  bool corrects = true;             // false: of a state space
  float skip = 0;                   // of a state space
  float* state = nullptr;           // [keys, columns], changed
  float* out = nullptr;             // [rows, columns]
};

struct VectorTable {
  int lanes = 0;

  // y = x, converted.
  void (*convert)(void* y, Type y_type, const void* x, Type x_type, std::int64_t n);
  // y = a + b, all of one type.
  void (*add)(void* y, const void* a, const void* b, Type type, std::int64_t n);
  // y = factor x, of one type.
  void (*scale)(void* y, const void* x, Type type, std::int64_t n, float factor);
  // y = cap tanh(scale x / cap).
  void (*soft_cap)(float* y, const float* x, std::int64_t n, float scale, float cap);
  // dx = dy (1 - (y / cap)^2), dx and dy of one type.
  void (*soft_cap_gradient)(void* dx, const void* dy, Type type, const float* y, std::int64_t n,
                            float cap);
  // y += x, with y in fp32 and x of any type.
  void (*accumulate)(float* y, const void* x, Type type, std::int64_t n);
  // sums[c] += sum over rows of x[r, c], rows in order.
  void (*column_sums)(float* sums, const Matrix& x, std::int64_t rows, std::int64_t columns);

  void (*norm_forward)(const NormArguments& a, std::int64_t begin, std::int64_t end);
  void (*norm_backward)(const NormArguments& a, std::int64_t begin, std::int64_t end);
  void (*activation_forward)(const ActivationArguments& a, std::int64_t begin, std::int64_t end);
  void (*activation_backward)(const ActivationArguments& a, std::int64_t begin, std::int64_t end);
  void (*finish)(const FinishArguments& a);

  void (*dropout_add)(const DropoutArguments& a);
  // One head of one token, in place: sign -1 rotates back.
  void (*rotary)(void* x, Type type, const float* cosine, const float* sine, std::int64_t d,
                 bool pairs, float sign);

  void (*convolution_forward)(const ConvolutionArguments& a);
  void (*convolution_backward)(const ConvolutionArguments& a);
  // kDeltaVectors vectors of columns.
  void (*delta_forward)(const DeltaArguments& a);

  // One row of logits: max, sum of exp(x - max).
  void (*loss_statistics)(const float* logits, std::int64_t valid, float* maximum, float* sum);
  // One row: y = exp(x - lse) * factor for columns below valid, 0 for the rest up to columns.
  void (*loss_gradient)(void* y, Type type, const float* logits, std::int64_t columns,
                        std::int64_t valid, float lse, float factor);

  void (*adamw)(const AdamwArguments& a, std::int64_t begin, std::int64_t end);
  void (*sgd)(const SgdArguments& a, std::int64_t begin, std::int64_t end);
  void (*muon_momentum)(const MuonMomentumArguments& a, std::int64_t begin, std::int64_t end);
  // y = factor x, converted.
  void (*muon_normalize)(void* y, Type y_type, const float* x, std::int64_t n, float factor);
  void (*muon_update)(const MuonUpdateArguments& a, std::int64_t begin, std::int64_t end);
  // sums[i] of blocks begin .. end-1 of `block` elements of x[n].
  void (*square_sums)(double* sums, const float* x, std::int64_t n, std::int64_t block,
                      std::int64_t begin, std::int64_t end);

  // c[m, n] (+)= a[m, k] b[k, n] in fp32: a by any strides, b and c with contiguous rows; n is a
  // multiple of the vector.
  void (*product)(int m, int n, int k, const float* a, std::int64_t a_row, std::int64_t a_column,
                  const float* b, std::int64_t b_stride, float* c, std::int64_t c_stride,
                  bool accumulate);
  // y[n, m] fp32 = transpose of x[m, n].
  void (*transpose)(float* y, std::int64_t y_stride, const Matrix& x, int m, int n);

  // Replaces scores by weights exp(s - new maximum), 0 where invisible; updates the running maxima
  // and sums of rows, and scales row i of `out` [rows, d] by exp(old maximum - new).
  void (*softmax_step)(const ScoreArguments& a, float* maxima, float* sums, float* out,
                       std::int64_t out_stride, int d);
  // Replaces scores by exp(s - lse), 0 where invisible.
  void (*softmax_again)(const ScoreArguments& a, const float* lse);
  // x[i] *= scale where kept, 0 where not, for columns first .. first + columns - 1; first is a
  // multiple of 4.
  void (*mask)(float* x, const MaskRow& mask, std::int64_t first, int columns);
  // y[i] += bound * word / 2^31: the random words of a row from column 0 on, as signed integers.
  void (*add_noise)(void* y, Type type, const MaskRow& row, float bound, std::int64_t columns);
  // ds = p * (dp - delta) * scale, row by row.
  void (*score_gradient)(float* dp, const float* p, std::int64_t stride, int rows, int columns,
                         const float* delta, float scale);
  // sum over d of a * b.
  float (*dot)(const void* a, Type a_type, const void* b, Type b_type, std::int64_t d);

  // Multiply-adds on registers only, and with every second operand loaded from the first-level
  // cache. Both return the number of floating-point operations.
  double (*fma_loop)(std::int64_t rounds);
  double (*loading_fma_loop)(std::int64_t rounds);
};

namespace v2 {
const VectorTable& table();
}
namespace v3 {
const VectorTable& table();
}
namespace v4 {
const VectorTable& table();
}
namespace neon {
const VectorTable& table();
}

}  // namespace piton::cpu
