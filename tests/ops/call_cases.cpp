// The list of cases, family by family.
#include "call_cases.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "attention_cases.h"
#include "decoding_cases.h"
#include "expert_cases.h"
#include "float8_cases.h"
#include "latent_cases.h"
#include "recurrent_cases.h"
#include "sampling_cases.h"
#include "sink_cases.h"
#include "support/tensors.h"

namespace piton::test {
namespace {

class CaseList {
 public:
  explicit CaseList(const CaseOptions& options)
      : dtype_(options.dtype),
        sums_(options.dtype == DType::kF64 ? DType::kF64 : DType::kF32),
        tile_(options.row_tile),
        source_(0x5EED, options.awkward) {}

  std::vector<CallCase> take() { return std::move(cases_); }

  void add_linears() {
    struct Size {
      std::int64_t out, in;
    };
    for (const Size size : {Size{1, 1}, Size{7, 5}, Size{33, 65}, Size{48, 130}}) {
      for (const std::int64_t n : row_counts(size.out == 33)) {
        add_linear(n, size.out, size.in, /*with_bias=*/n % 2 == 1, dtype_);
      }
    }
    if (dtype_ != sums_)
      add_linear(11, 33, 48, /*with_bias=*/false, sums_);  // logits: y and dy wide
    add_linear_ends();
    // Around the kernels' own tiles of columns (256), of dW (192 and 256 by 768), of rows of dW
    // (1024) and of depth (1024, and 8192 through the library).
    add_linear(1026, 3, 2, /*with_bias=*/true, dtype_);
    add_linear(3, 257, 770, /*with_bias=*/true, dtype_);
    add_linear(2, 5, 8195, /*with_bias=*/false, dtype_);
    add_linear(2, 8195, 5, /*with_bias=*/false, dtype_);
  }

  void add_weight_codes() {
    for (const WeightCodes& stored : codes_with_blocks(3, 768)) {
      add(fmt::format("{} blocks group {}", code_name(stored.kind), stored.group), 1,
          ExpandWeight{.rows = source_.unwritten_rows(dtype_, {3, 768}), .codes = stored});
    }
    for (const CodeKind kind : {CodeKind::kInt8, CodeKind::kInt4, CodeKind::kNf4}) {
      for (const bool with_zeros : {false, true}) {
        if (with_zeros && kind == CodeKind::kNf4) continue;
        for (const std::int64_t in : {1, 32, 75}) {
          const std::int64_t out = in == 1 ? 1 : 9;
          const WeightCodes stored = codes(kind, out, in, 32, with_zeros);
          add(fmt::format("{} zeros {} in {}", code_name(kind), with_zeros, in), 1,
              ExpandWeight{.rows = source_.unwritten_rows(dtype_, {out, in}), .codes = stored});
          if (!with_zeros) continue;
          add(fmt::format("{} minima in {}", code_name(kind), in), 1,
              ExpandWeight{.rows = source_.unwritten_rows(dtype_, {out, in}),
                           .codes = with_minima(stored)});
        }
      }
    }
  }

  // Squares are positive: their sum, and the errors of its additions, are sqrt(n) times as large.
  static std::int64_t terms_of_squares(std::int64_t n) {
    return n * static_cast<std::int64_t>(std::ceil(std::sqrt(static_cast<double>(n))));
  }

  // As Q6_K, Q5_K and Q4_K, and in groups of other sizes.
  std::vector<WeightCodes> codes_with_blocks(std::int64_t out, std::int64_t in) {
    return {with_blocks(codes(CodeKind::kInt8, out, in, 16, false), in),
            with_blocks(with_minima(codes(CodeKind::kInt8, out, in, 32, true)), in),
            with_blocks(with_minima(codes(CodeKind::kInt4, out, in, 32, true)), in),
            with_blocks(codes(CodeKind::kInt4, out, in, 128, true), in)};
  }

  void add_coded_linears() {
    for (const auto& [n, in] : {std::pair{1, 256}, {2, 768}, {9, 512}, {17, 256}, {33, 768}}) {
      for (const WeightCodes& stored : codes_with_blocks(19, in))
        add_coded_linear(n, 19, in, stored);
    }
    for (const CodeKind kind : {CodeKind::kInt8, CodeKind::kInt4, CodeKind::kNf4}) {
      for (const bool with_zeros : {false, true}) {
        if (with_zeros && kind == CodeKind::kNf4) continue;
        for (const std::int64_t in : {1, 32, 75}) {
          const std::int64_t out = in == 1 ? 1 : 9;
          add_coded_linear(3, out, in, codes(kind, out, in, 32, with_zeros));
        }
        // Around the kernels' blocks of columns (128), spans of lanes (512), and panels (64 rows).
        for (const auto& [in, group] :
             {std::pair{288, 32}, {320, 64}, {416, 128}, {416, 416}, {544, 256}, {96, 48}}) {
          for (const std::int64_t n : {1, 2, 7}) {
            add_coded_linear(n, 70, in, codes(kind, 70, in, group, with_zeros));
          }
        }
      }
    }
    // Every number of rows in a pass over the codes, with an odd number of rows of the weight.
    for (const CodeKind kind : {CodeKind::kInt8, CodeKind::kInt4, CodeKind::kNf4}) {
      for (const auto& [in, group] :
           {std::pair{160, 32}, {192, 64}, {288, 128}, {96, 96}, {1056, 512}})
        add_coded_linear(15, 5, in, codes(kind, 5, in, group, kind == CodeKind::kInt4));
    }
    for (const std::int64_t n : row_counts(/*many=*/true)) {
      add_coded_linear(n, 33, 64, codes(CodeKind::kInt8, 33, 64, 32, false));
    }
    for (const std::int64_t n : {1, 16, 17}) {
      add_coded_linear(n, 33, 160, codes(CodeKind::kInt8, 33, 160, 16, false));  // as Q6_K
      add_coded_linear(n, 33, 160, codes(CodeKind::kInt4, 33, 160, 32, true));
      add_coded_linear(n, 33, 160, with_minima(codes(CodeKind::kInt4, 33, 160, 32, true)));
      add_coded_linear(n, 33, 160, with_minima(codes(CodeKind::kInt8, 33, 160, 32, true)));
    }
    if (size_bytes(dtype_) == 2) {  // wide enough for several expanded parts
      add_coded_linear(17, 300, 4160, codes(CodeKind::kNf4, 300, 4160, 64, false));
      add_coded_linear(17, 4100, 288, codes(CodeKind::kInt8, 4100, 288, 288, false));
    }
  }

  void add_norms() {
    for (const std::int64_t n : {0, 1, 5, 67}) {
      for (const std::int64_t h : {1, 7, 64, 130}) {
        add_norm(n, h, /*layer=*/true, n != 5);
        add_norm(n, h, /*layer=*/false, n == 5);
        if (n == 5) add_norm(n, h, /*layer=*/h == 64, true, /*gain_offset=*/1);
        if (size_bytes(dtype_) == 2) add_norm(n, h, /*layer=*/n != 5, n != 1, 0, DType::kF32);
      }
    }
    // Rows that a warp or a block of CUDA threads holds, in one or several vectors, and longer
    // ones.
    for (const std::int64_t h : {1040, 2056, 8208}) {
      add_norm(2, h, /*layer=*/true, /*full=*/true);
      add_norm(1, h, /*layer=*/false, h == 2056);
    }
    for (const std::int64_t n : {0, 1, 5, 150}) add_norm_of_parts(n, n == 5 ? 1032 : 24, n == 5);
    add_norm(70, 320, /*layer=*/true, /*full=*/true);  // several chunks of rows in vectors
  }

  void add_rotaries() {
    for (const std::int64_t n : {0, 1, 13}) {
      for (const std::int64_t d : {2, 10, 64}) {
        for (const bool inverse : {false, true}) {
          for (const auto convention : {Rotary::Convention::kHalves, Rotary::Convention::kPairs}) {
            // Rows have gaps where a fused projection holds other heads next to these.
            const std::int64_t heads = 3;
            // Of wide heads the first part alone may turn.
            const std::int64_t wide = d == 10 ? d + 6 : d;
            const Tensor x =
                source_.normal_rows(dtype_, {n, heads * wide}).split_dim(1, wide).slice(2, 0, d);
            const std::int64_t limit = 40;
            Tensor cosine = source_.normal(sums_, {limit, d / 2});
            Tensor sine = source_.normal(sums_, {limit, d / 2});
            for (std::int64_t i = 0; i < cosine.elements(); ++i) {
              const double angle = value_at(cosine, i);
              set_value(cosine, i, std::cos(angle));
              set_value(sine, i, std::sin(angle));
            }
            add(fmt::format("n {} d {} inverse {}", n, d, inverse), 2,
                Rotary{.x = x,
                       .positions = source_.integers({n}, 0, limit - 1),
                       .cosine = cosine,
                       .sine = sine,
                       .convention = convention,
                       .inverse = inverse});
          }
        }
      }
    }
  }

  // With gaps where these heads are a part of wider ones, with and without zeros at their end.
  void add_head_parts() {
    for (const std::int64_t n : {0, 1, 13}) {
      for (const auto& [own, shared, rest] :
           {std::tuple{8, 4, 0}, {5, 0, 3}, {16, 8, 8}, {16, 0, 0}, {64, 32, 0}}) {
        const std::int64_t heads = 3;
        const auto part = [&](std::int64_t from, std::int64_t width, std::int64_t after) {
          return source_.normal_rows(dtype_, {n, heads * (from + width + after)})
              .split_dim(1, from + width + after)
              .slice(2, from, width);
        };
        const Tensor common = shared > 0 ? source_.normal_rows(dtype_, {n, shared}) : Tensor();
        const std::string detail = fmt::format("n {} {} + {} + {}", n, own, shared, rest);
        add(detail, 1,
            JoinHeads{.y = source_.unwritten(dtype_, {n, heads, own + shared + rest}),
                      .own = part(8, own, 16),
                      .shared = common});
        add(detail, heads,
            SplitHeads{.own = source_.unwritten(dtype_, {n, heads, own}),
                       .shared = shared > 0 ? source_.unwritten(dtype_, {n, shared}) : Tensor(),
                       .y = part(0, own + shared + rest, 8)});
      }
    }
  }

  void add_activations() {
    for (const auto kind :
         {ActivationKind::kGeluTanh, ActivationKind::kGeluErf, ActivationKind::kGeluFast,
          ActivationKind::kSilu, ActivationKind::kRelu, ActivationKind::kSquaredRelu}) {
      for (const std::int64_t n : {0, 1, 9}) {
        for (const std::int64_t f : {1, 33, 100}) {
          for (const bool gated : {false, true}) add_activation(kind, n, f, gated);
        }
      }
    }
  }

  // In the product. Of small numbers: the square of large ones makes their errors larger.
  void add_squared_relus() {
    for (const std::int64_t n : {1, 5, 129}) {
      const std::int64_t in = 65, out = 33;
      add(fmt::format("n {} squared ReLU", n), in,
          LinearForward{.y = source_.unwritten_rows(dtype_, {n, out}),
                        .x = source_.normal(dtype_, {n, in}, 0, 0.05),
                        .weight = weight(out, in),
                        .activation = ActivationKind::kSquaredRelu,
                        .preactivation = source_.unwritten_rows(dtype_, {n, out})});
    }
  }

  void add_dropouts() {
    for (const double probability : {0.0, 0.25}) {
      for (const std::int64_t n : {0, 1, 66}) {  // sums of rows go by blocks of 64
        for (const std::int64_t h : {1, 6, 16, 67}) {
          for (const bool full : {false, true}) {
            add_dropout(n, h, probability, full);
            if (size_bytes(dtype_) == 2) add_dropout(n, h, probability, full, DType::kF32);
          }
        }
      }
    }
  }

  // Rows of the middle of samples, on a rank of the context axis.
  void add_noises() {
    for (const std::int64_t n : {0, 1, 21}) {
      for (const std::int64_t h : {1, 6, 16, 67}) {
        const Tensor bounds = source_.normal(DType::kF32, {n}, 1, 0.3);
        add(fmt::format("n {} h {}", n, h), 1,
            AddNoise{.y = source_.normal(dtype_, {n, h}),
                     .bounds = h % 2 == 0 ? Tensor() : bounds,
                     .key = site_key(99, "embedding.noise"),
                     .rows = {.consumed_samples = consumed(),
                              .sample_index = 3,
                              .sequence = 8,
                              .first_row = 20,
                              .first_shift = 4,
                              .second_shift = 12}});
      }
    }
  }

  void add_embeddings() {
    for (const std::int64_t n : {0, 1, 40}) {
      for (const bool add_to : {false, true}) {
        for (const std::int64_t h : {19, 32}) add_embedding(n, h, add_to);
      }
    }
  }

  void add_losses() {
    struct Part {
      std::int64_t columns, valid, begin;
    };
    for (const std::int64_t n : {0, 1, 17}) {
      for (const Part part :
           {Part{37, 37, 0}, Part{40, 35, 20}, Part{16, 0, 100}, Part{300, 300, 0}}) {
        add_loss(n, part.columns, part.valid, part.begin, sums_);
        if (dtype_ != sums_) add_loss(n, part.columns, part.valid, part.begin, dtype_);
      }
    }
    add_loss(2, 4504, 4403, 0, dtype_);  // more than a block of CUDA threads holds
    add_loss(300, 4, 3, 0, dtype_);      // more than it has rows
  }

  void add_elementwise() {
    for (const std::int64_t n : {0, 1, 77}) {
      for (const DType to : {DType::kF64, DType::kF32, DType::kBF16, DType::kF16}) {
        add(fmt::format("{} to {}, {} rows", name(dtype_), name(to), n), 1,
            Copy{.dst = source_.unwritten_rows(to, {n, 3, 5}),
                 .src = source_.normal_rows(dtype_, {n, 3, 5})});
        // A part of each head, and heads in another order.
        add(fmt::format("{} to {}, parts of {} rows", name(dtype_), name(to), n), 1,
            Copy{.dst = source_.unwritten_rows(to, {n, 3, 32}).swap_dims(0, 1).slice(2, 0, 20),
                 .src = source_.normal_rows(dtype_, {3, n, 48}).slice(2, 16, 20)});
      }
      add(fmt::format("{}", n), 2,
          Add{.y = source_.unwritten(dtype_, {n, 3}),
              .a = source_.normal(dtype_, {n, 3}),
              .b = source_.normal(dtype_, {n, 3})});
      add(fmt::format("{}", n), 1,
          Scale{.y = source_.unwritten(dtype_, {n, 3}),
                .x = source_.normal(dtype_, {n, 3}),
                .factor = 1.7});
      add_soft_cap(n);
      const Tensor in_place = source_.normal(dtype_, {n, 3});
      add(fmt::format("in place, {}", n), 2,
          Add{.y = in_place, .a = in_place, .b = source_.normal(dtype_, {n, 3})});
    }
    add_magnitudes();
    add("integers", 1,
        Copy{.dst = source_.integers({9, 4}, 0, 0), .src = source_.integers({9, 4}, -5, 1 << 30)});
  }

  void add_muon() {
    struct Size {
      std::int64_t n, k;
    };
    for (const Size size :
         {Size{1, 1}, Size{7, 40}, Size{40, 7}, Size{70, 33}, Size{130, 64}, Size{200, 1600}}) {
      for (const bool transposed : {false, true}) {
        const Shape side = transposed ? Shape{size.k, size.n} : Shape{size.n, size.k};
        const std::string what =
            fmt::format("{} x {}{}", size.n, size.k, transposed ? ", transposed" : "");
        const Tensor left = source_.normal_rows(dtype_, side);
        // The squares on the diagonal add up to k, not to sqrt(k): the sum of the errors, of up to
        // u i each, is sqrt(k) / 3 times as large (support/tolerance.h).
        const auto k = static_cast<double>(size.k);
        const auto terms = static_cast<std::int64_t>(k * std::max(1.0, std::sqrt(k) / 3));
        add(what, terms,
            SymmetricProduct{.y = source_.unwritten_rows(dtype_, {size.n, size.n}),
                             .left = left,
                             .right = left,
                             .transposed = transposed});
        add(what + ", with terms", 2 * size.k + 4,
            SymmetricProduct{.y = source_.unwritten(dtype_, {size.n, size.n}),
                             .left = left,
                             .right = source_.normal(dtype_, side),
                             .addend = source_.normal(dtype_, {size.n, size.n}),
                             .factor = 2.0315,
                             .addend_factor = -4.775,
                             .diagonal = 3.4445,
                             .transposed = transposed});
      }
    }
    for (const std::int64_t n : {0, 1, 1000, 5000}) {
      for (const double apply : {1.0, 0.0}) {
        const std::vector<double> scalars{0.01, 1, 1, 0.5, apply, 0.1, 3};
        for (const bool nesterov : {false, true}) {
          add(fmt::format("n {} apply {} nesterov {}", n, apply, nesterov), 4,
              MuonMomentum{.direction = source_.unwritten(DType::kF32, {n}),
                           .buffer = source_.normal(DType::kF32, {n}),
                           .gradient = source_.normal(DType::kF32, {n}),
                           .scalars = tensor_of(DType::kF32, {kStepScalars}, scalars),
                           .momentum = 0.9,
                           .nesterov = nesterov});
        }
        for (const bool copied : {false, true}) {
          add(fmt::format("n {} apply {}", n, apply), 4,
              MuonUpdate{.main = source_.normal(DType::kF32, {n}),
                         .copy = copied ? source_.normal(dtype_, {n}) : Tensor(),
                         .direction = source_.normal(dtype_, {n}),
                         .scalars = tensor_of(DType::kF32, {kStepScalars}, scalars),
                         .decay_multiplier = 0.5,
                         .lr_multiplier = 3});
        }
      }
      for (const double apply : {1.0, 0.0}) {
        const std::vector<double> scalars{0.01, 1, 1, 0.5, apply, 0.1, 3};
        add(fmt::format("n {} apply {}", n, apply), 4,
            MovingAverage{.average = source_.normal(DType::kF32, {n}),
                          .main = source_.normal(DType::kF32, {n}),
                          .scalars = tensor_of(DType::kF32, {kStepScalars}, scalars),
                          .decay = 0.75});
      }
      for (const double sum : {0.75, 0.0}) {
        add(fmt::format("n {} sum {}", n, sum), 4,
            MuonNormalize{.x = source_.unwritten(dtype_, {n}),
                          .direction = source_.normal(DType::kF32, {n}),
                          .sums = tensor_of(DType::kF64, {3}, std::vector<double>{sum, 2 * sum, 0}),
                          .eps = 0.25});
      }
    }
  }

  void add_cadam() {
    struct Part {
      std::int64_t n, columns, first_column;
    };
    for (const Part part : {Part{0, 5, 0}, Part{1, 5, 4}, Part{13, 5, 0}, Part{13, 5, 3},
                            Part{900, 900, 0}, Part{5000, 3000, 2900}}) {
      const std::int64_t rows = span_rows(part.n, part.columns, part.first_column);
      const auto scales = [&] {
        return tensor_of(DType::kF32, {rows},
                         std::vector<double>(static_cast<std::size_t>(rows), 0.5));
      };
      for (const double apply : {1.0, 0.0}) {
        const std::vector<double> scalars{0.01, 1, 1, 0.5, apply, 0.1, 3};
        const std::string what =
            fmt::format("n {} columns {} apply {}", part.n, part.columns, apply);
        add(what, 4,
            CadamMaxima{.maxima = source_.unwritten(DType::kF32, {rows}),
                        .momentum = source_.normal(DType::kF16, {part.n}),
                        .scales = scales(),
                        .gradient = source_.normal(DType::kF32, {part.n}),
                        .scalars = tensor_of(DType::kF32, {kStepScalars}, scalars),
                        .columns = part.columns,
                        .first_column = part.first_column,
                        .beta = 0.9});
        for (const bool copied : {false, true}) {
          add(what, 4,
              CadamUpdate{
                  .main = source_.normal(DType::kF32, {part.n}),
                  .momentum = source_.normal(DType::kF16, {part.n}),
                  .scales = scales(),
                  .copy = copied ? source_.normal(dtype_, {part.n}) : Tensor(),
                  .maxima = tensor_of(DType::kF32, {rows},
                                      std::vector<double>(static_cast<std::size_t>(rows), 6.0)),
                  .gradient = source_.normal(DType::kF32, {part.n}),
                  .scalars = tensor_of(DType::kF32, {kStepScalars}, scalars),
                  .columns = part.columns,
                  .first_column = part.first_column,
                  .beta = 0.9,
                  .decay_multiplier = 0.5});
        }
      }
    }
  }

  void add_updates() {
    for (const std::int64_t n : {0, 1, 1003}) {
      for (const double apply : {1.0, 0.0}) {
        for (const bool copied : {false, true}) {
          const std::vector<double> scalars{0.01, 0.271, 0.002997, 0.5, apply, 0.1, 3};
          // Both fp32, m in bf16, v in bf16, or both.
          for (int half = 0; half < 4; ++half) {
            const DType first = half % 2 == 1 ? DType::kBF16 : DType::kF32;
            const DType second = half >= 2 ? DType::kBF16 : DType::kF32;
            const Tensor v = source_.normal(second, {n});
            for (std::int64_t i = 0; i < n; ++i) set_value(v, i, std::fabs(value_at(v, i)));
            add(fmt::format("n {} apply {} moments {} {}", n, apply, name(first), name(second)), 4,
                AdamwUpdate{.main = source_.normal(DType::kF32, {n}),
                            .first = source_.normal(first, {n}),
                            .second = v,
                            .copy = copied ? source_.normal(dtype_, {n}) : Tensor(),
                            .gradient = source_.normal(DType::kF32, {n}),
                            .scalars = tensor_of(DType::kF32, {kStepScalars}, scalars),
                            .beta1 = 0.9,
                            .beta2 = 0.999,
                            .eps = 1e-8,
                            .decay_multiplier = 0.5,
                            .lr_multiplier = 0.5});
          }
        }
      }
      for (const double apply : {1.0, 0.0}) {
        for (const bool copied : {false, true}) {
          const std::vector<double> scalars{0.01, 1, 1, 0.5, apply, 0.1, 3};
          if (!copied) {
            const Tensor gradient = source_.normal(DType::kF32, {n});
            if (n > 0) set_value(gradient, 0, 0);
            add(fmt::format("n {} apply {}", n, apply), 1,
                SignUpdate{.main = source_.normal(DType::kF32, {n}),
                           .gradient = gradient,
                           .scalars = tensor_of(DType::kF32, {kStepScalars}, scalars),
                           .rate = 0.25});
          }
          for (const bool buffered : {false, true}) {
            add(fmt::format("n {} apply {} buffer {}", n, apply, buffered), 4,
                SgdUpdate{.main = source_.normal(DType::kF32, {n}),
                          .buffer = buffered ? source_.normal(DType::kF32, {n}) : Tensor(),
                          .copy = copied ? source_.normal(dtype_, {n}) : Tensor(),
                          .gradient = source_.normal(DType::kF32, {n}),
                          .scalars = tensor_of(DType::kF32, {kStepScalars}, scalars),
                          .momentum = 0.9,
                          .decay_multiplier = 0.5,
                          .lr_multiplier = 0.5});
          }
        }
      }
      for (const std::int64_t block : {1, 64, 300, 900}) {
        add(fmt::format("n {} block {}", n, block), terms_of_squares(block),
            SquareSums{.sums = source_.unwritten(DType::kF64, {(n + block - 1) / block}),
                       .x = source_.normal(DType::kF32, {n}),
                       .block = block});
      }
      for (const double clip : {0.0, 0.5}) {
        for (const bool dynamic : {false, true}) {
          add(fmt::format("n {} clip {} dynamic {}", n, clip, dynamic), n,
              BeginUpdate{
                  .scalars = tensor_of(DType::kF32, {kStepScalars},
                                       std::vector<double>{0.1, 2, 2, 2, 2, 0.01, 2}),
                  .counts = tensor_of(DType::kF64, {kUpdateCounts},
                                      std::vector<double>{3, 1, 7, 8, 4, 1}),
                  .sums = tensor_of(DType::kF64, {n}, std::vector<double>(n, 0.75)),
                  .clip = clip,
                  .scaling = {.dynamic = dynamic, .window = 5, .hysteresis = 3},
                  .spikes = {.history = tensor_of(DType::kF64, {kSpikeRings + 6},
                                                  std::vector<double>{5, 1.5, 1, 2, 0, 3, 4, 0}),
                             .sigmas = dynamic ? 6.0 : 0.01}});
        }
      }
    }
    const std::int64_t block = 5000;  // longer than what a block of CUDA threads holds
    add("n 12001 block 5000", terms_of_squares(block),
        SquareSums{.sums = source_.unwritten(DType::kF64, {3}),
                   .x = source_.normal(DType::kF32, {12001}),
                   .block = block});
  }

 private:
  template <typename Call>
  void add(const std::string& detail, std::int64_t terms, Call call, DType narrowest = DType::kF64,
           std::int64_t rounded_terms = 1) {
    cases_.push_back({.name = fmt::format("{}, {}, {}", Call::kName, name(dtype_), detail),
                      .call = std::move(call),
                      .terms = terms,
                      .narrowest = narrowest,
                      .rounded_terms = rounded_terms});
  }

  // Around the edges of the back end's tiles; few unless `many`.
  std::vector<std::int64_t> row_counts(bool many) const {
    std::vector<std::int64_t> counts{0, 1, 5};
    if (many) counts.insert(counts.end(), {tile_ - 1, tile_, tile_ + 1, 2 * tile_ + 5});
    std::erase_if(counts, [](std::int64_t n) { return n < 0; });
    return counts;
  }

  WeightView weight(std::int64_t out, std::int64_t in) {
    return {.form = WeightForm::kRows,
            .tensor = source_.normal(dtype_, {out, in}),
            .out = out,
            .in = in,
            .dtype = dtype_};
  }

  static std::string_view code_name(CodeKind kind) {
    return kind == CodeKind::kInt8 ? "int8" : kind == CodeKind::kInt4 ? "int4" : "nf4";
  }

  WeightCodes codes(CodeKind kind, std::int64_t out, std::int64_t in, std::int64_t group,
                    bool with_zeros) {
    const std::int64_t groups = (in + group - 1) / group;
    // Values below 1.
    const double size = kind == CodeKind::kInt8 ? 160 : kind == CodeKind::kInt4 ? 20 : 1;
    Tensor scales = source_.normal(group == 32 ? DType::kF16 : DType::kF32, {out, groups});
    for (std::int64_t i = 0; i < scales.elements(); ++i)
      set_value(scales, i, std::clamp(value_at(scales, i), -1.0, 1.0) / size);
    return {.kind = kind,
            .group = group,
            .codes = source_.integers({out, code_bytes(kind, in)}, 0, 255, DType::kU8),
            .scales = scales,
            .zeros = with_zeros ? source_.normal(DType::kF32, {out, groups}) : Tensor()};
  }

  // Minima of the size of a code's values in place of the zero points.
  static WeightCodes with_minima(WeightCodes codes) {
    codes.minima = codes.zeros;
    codes.zeros = Tensor();
    return codes;
  }

  // Signed bytes as scales, and as minima where the codes have some.
  WeightCodes with_blocks(WeightCodes codes, std::int64_t in) {
    const Shape blocks{codes.scales.dim(0), in / kScaleBlock};
    const auto factors = [&](double size) {
      const Tensor tensor = source_.normal(DType::kF32, blocks);
      for (std::int64_t i = 0; i < tensor.elements(); ++i)
        set_value(tensor, i, std::clamp(value_at(tensor, i), -1.0, 1.0) * size);
      return tensor;
    };
    const auto bytes = [&] { return source_.integers(codes.scales.shape(), 0, 255, DType::kU8); };
    codes.scales = bytes();
    codes.block_scales = factors(codes.kind == CodeKind::kInt8 ? 5e-5 : 5e-4);
    if (!codes.minima.defined()) return codes;
    codes.minima = bytes();
    codes.block_minima = factors(5e-3);
    return codes;
  }

  // Both directions, with all that may follow the forward sums. The weight may be rounded to its
  // type on the way.
  void add_coded_linear(std::int64_t n, std::int64_t out, std::int64_t in,
                        const WeightCodes& stored) {
    const WeightView coded{
        .form = WeightForm::kCodes, .out = out, .in = in, .dtype = dtype_, .codes = stored};
    const std::string detail =
        fmt::format("{} zeros {} minima {} blocks {} n {} out {} in {} group {}",
                    code_name(stored.kind), stored.zeros.defined(), stored.minima.defined(),
                    stored.block_scales.defined(), n, out, in, stored.group);
    LinearForward forward{.y = source_.unwritten_rows(dtype_, {n, out}),
                          .x = source_.normal_rows(dtype_, {n, in}),
                          .weight = coded};
    // Few rows are rounded to 16-bit integers on the way.
    const DType rounded = size_bytes(dtype_) == 4 ? DType::kF16 : dtype_;
    add(detail, in, forward, rounded, in);
    forward.y = source_.unwritten_rows(sums_, {n, out});
    forward.bias = source_.normal(dtype_, {out});
    forward.residual = source_.normal_rows(sums_, {n, out});
    forward.activation = ActivationKind::kSilu;
    forward.preactivation = source_.unwritten_rows(sums_, {n, out});
    add(detail + " with all ends", in, forward, rounded, in);
    add(detail, out,
        LinearBackwardInput{.dx = source_.unwritten_rows(dtype_, {n, in}),
                            .dy = source_.normal_rows(dtype_, {n, out}),
                            .weight = coded,
                            .residual = source_.normal_rows(dtype_, {n, in})},
        dtype_, out);
  }

  void add_linear(std::int64_t n, std::int64_t out, std::int64_t in, bool with_bias,
                  DType outside) {
    const std::string detail = fmt::format("n {} out {} in {}", n, out, in);
    add(detail, in,
        LinearForward{.y = source_.unwritten(outside, {n, out}),
                      .x = source_.normal_rows(dtype_, {n, in}),
                      .weight = weight(out, in),
                      .bias = with_bias ? source_.normal(dtype_, {out}) : Tensor()});
    add(detail, out,
        LinearBackwardInput{.dx = source_.unwritten(dtype_, {n, in}),
                            .dy = source_.normal_rows(outside, {n, out}),
                            .weight = weight(out, in)},
        dtype_, outside == dtype_ ? 1 : out);
    const Shape weight_shape{out, in};
    const bool overwrites = with_bias;
    add(fmt::format("{} overwrites {}", detail, overwrites), n,
        LinearBackwardWeight{.dweight = overwrites ? source_.unwritten(sums_, weight_shape)
                                                   : source_.normal(sums_, weight_shape),
                             .dbias = with_bias ? source_.normal(sums_, {out}) : Tensor(),
                             .dy = source_.normal_rows(outside, {n, out}),
                             .x = source_.normal_rows(dtype_, {n, in}),
                             .overwrites = overwrites},
        outside == dtype_ ? DType::kF64 : dtype_, n);
  }

  // What may follow the sums: a residual, an activation, and what an activation keeps. One size has
  // several tiles of columns (a kernel's tiles are at most 256 wide), one several stretches of
  // depth.
  void add_linear_ends() {
    struct Size {
      std::int64_t n, out, in;
    };
    const Size sizes[]{{0, 7, 5},           {1, 1, 1},    {5, 7, 5},
                       {tile_ + 1, 33, 65}, {2, 300, 40}, {1, 260, 2060}};
    for (const Size size : sizes) {
      const std::string detail = fmt::format("n {} out {} in {}", size.n, size.out, size.in);
      const auto call = [&](bool with_bias, DType outside) {
        return LinearForward{.y = source_.unwritten_rows(outside, {size.n, size.out}),
                             .x = source_.normal_rows(dtype_, {size.n, size.in}),
                             .weight = weight(size.out, size.in),
                             .bias = with_bias ? source_.normal(dtype_, {size.out}) : Tensor()};
      };
      for (const bool with_bias : {false, true}) {
        LinearForward residual = call(with_bias, dtype_);
        residual.residual = source_.normal_rows(dtype_, {size.n, size.out});
        add(fmt::format("{} bias {} residual", detail, with_bias), size.in, residual);
        LinearForward activated = call(with_bias, dtype_);
        activated.activation = with_bias ? ActivationKind::kGeluTanh : ActivationKind::kSilu;
        add(fmt::format("{} bias {} activated", detail, with_bias), size.in, activated);
        activated = call(with_bias, dtype_);
        activated.activation = ActivationKind::kGeluErf;
        activated.preactivation = source_.unwritten_rows(dtype_, {size.n, size.out});
        add(fmt::format("{} bias {} activated, kept", detail, with_bias), size.in, activated);
        activated.residual = source_.normal_rows(dtype_, {size.n, size.out});
        activated.preactivation = source_.unwritten_rows(dtype_, {size.n, size.out});
        activated.y = source_.unwritten_rows(dtype_, {size.n, size.out});
        add(fmt::format("{} bias {} residual activated, kept", detail, with_bias), size.in,
            activated);
        LinearForward in_place = call(with_bias, dtype_);
        in_place.y = in_place.residual = source_.normal_rows(dtype_, {size.n, size.out});
        add(fmt::format("{} bias {} over the residual", detail, with_bias), size.in, in_place);
      }
      LinearBackwardInput dx{.dx = source_.unwritten_rows(dtype_, {size.n, size.in}),
                             .dy = source_.normal_rows(dtype_, {size.n, size.out}),
                             .weight = weight(size.out, size.in),
                             .residual = source_.normal_rows(dtype_, {size.n, size.in})};
      add(detail + " dx residual", size.out, dx);
      dx.dx = dx.residual = source_.normal_rows(dtype_, {size.n, size.in});
      add(detail + " dx over the residual", size.out, dx);
      if (dtype_ == sums_) continue;
      LinearForward wide = call(true, sums_);
      wide.residual = source_.normal_rows(sums_, {size.n, size.out});
      add(fmt::format("{} wide residual", detail), size.in, wide);
    }
  }

  // `stream`: the type of x, that of all else if it is not given.
  void add_norm(std::int64_t n, std::int64_t h, bool layer, bool full, double gain_offset = 0,
                std::optional<DType> given = {}) {
    const DType stream = given.value_or(dtype_);
    const std::string detail =
        fmt::format("{} n {} h {} offset {}, x in {}", layer ? "layer" : "rms", n, h, gain_offset,
                    name(stream));
    const double eps = 1e-2;  // a row of one element has no variance: eps keeps rstd moderate
    add(detail, h,
        NormForward{.y = source_.unwritten(dtype_, {n, h}),
                    .mean = layer ? source_.unwritten(sums_, {n}) : Tensor(),
                    .rstd = source_.unwritten(sums_, {n}),
                    .x = source_.normal(stream, {n, h}),
                    .gain = source_.normal(dtype_, {h}, 1, 0.2),
                    .bias = full ? source_.normal(dtype_, {h}) : Tensor(),
                    .eps = eps,
                    .gain_offset = gain_offset});
    Tensor rstd = source_.normal(sums_, {n}, 1, 0.1);
    add(detail, std::max(h, n),
        NormBackward{.dx = source_.unwritten(stream, {n, h}),
                     .dgain = full ? source_.normal(sums_, {h}) : Tensor(),
                     .dbias = full ? source_.normal(sums_, {h}) : Tensor(),
                     .dy = source_.normal(dtype_, {n, h}),
                     .dresidual = full ? source_.normal(stream, {n, h}) : Tensor(),
                     .x = source_.normal(stream, {n, h}),
                     .gain = source_.normal(dtype_, {h}, 1, 0.2),
                     .mean = layer ? source_.normal(sums_, {n}, 0, 0.1) : Tensor(),
                     .rstd = rstd,
                     .gain_offset = gain_offset});
  }

  // RMS norms of rows that are parts of longer ones.
  void add_norm_of_parts(std::int64_t n, std::int64_t h, double gain_offset) {
    const std::string detail = fmt::format("part of rows, n {} h {} offset {}", n, h, gain_offset);
    const std::int64_t width = 3 * h;
    const Tensor squares = source_.unwritten(sums_, {n});
    for (std::int64_t i = 0; i < n; ++i)
      set_value(squares, i, static_cast<double>(width) * (0.5 + static_cast<double>(i % 5)));
    add(detail, h,
        NormForward{.y = source_.unwritten(dtype_, {n, h}),
                    .rstd = source_.unwritten(sums_, {n}),
                    .x = source_.normal(dtype_, {n, h}),
                    .gain = source_.normal(dtype_, {h}, 1, 0.2),
                    .squares = squares,
                    .width = width,
                    .eps = 1e-2,
                    .gain_offset = gain_offset});
    const Tensor dy = source_.normal(dtype_, {n, h});
    const Tensor x = source_.normal(dtype_, {n, h});
    const Tensor gain = source_.normal(dtype_, {h}, 1, 0.2);
    const Tensor rstd = source_.normal(sums_, {n}, 1, 0.1);
    add(detail, std::max(h, n),
        NormBackward{.dx = source_.unwritten(dtype_, {n, h}),
                     .dgain = source_.normal(sums_, {h}),
                     .dy = dy,
                     .x = x,
                     .gain = gain,
                     .rstd = rstd,
                     .products = source_.normal(sums_, {n}, 0, 3),
                     .width = width,
                     .gain_offset = gain_offset});
    add(detail, h,
        NormProducts{.products = source_.unwritten(sums_, {n}),
                     .dy = dy,
                     .x = x,
                     .gain = gain,
                     .rstd = rstd,
                     .gain_offset = gain_offset});
  }

  // Around both ways to compute the hyperbolic tangent, and where it is 1.
  void add_magnitudes() {
    for (const std::int64_t f : {1, 9, 70, 72}) {
      for (const std::int64_t n : {0, 1, 5, 150}) {
        const bool with_bias = n % 2 == 1;
        const std::string detail = fmt::format("{} x {}{}", n, f, with_bias ? ", with bias" : "");
        const Tensor squares = source_.unwritten(sums_, {f});
        for (std::int64_t i = 0; i < f; ++i)
          set_value(squares, i, i == 3 ? 0 : 0.5 + static_cast<double>(i));
        const Tensor bias = with_bias ? source_.normal(dtype_, {f}) : Tensor();
        add(detail, 4,
            MagnitudeForward{.y = source_.unwritten_rows(dtype_, {n, f}),
                             .x = source_.normal_rows(dtype_, {n, f}),
                             .magnitude = source_.normal(dtype_, {f}),
                             .squares = squares,
                             .bias = bias});
        add(detail, 2 * n + 2,
            MagnitudeGradient{.dmagnitude = source_.normal(sums_, {f}),
                              .dy = source_.normal_rows(dtype_, {n, f}),
                              .x = source_.normal_rows(dtype_, {n, f}),
                              .squares = squares,
                              .bias = bias});
        if (n > 0) {
          add(detail, n,
              RowSquares{.squares = source_.unwritten(sums_, {f}),
                         .rows = source_.normal(dtype_, {f, n})});
        }
      }
    }
  }

  void add_soft_cap(std::int64_t n) {
    for (const double cap : {0.05, 0.9, 20.0}) {
      const std::string detail = fmt::format("{} cap {}", n, cap);
      add(detail, 2,
          SoftCapForward{.y = source_.unwritten(sums_, {n, 3}),
                         .x = source_.normal(sums_, {n, 3}),
                         .cap = cap},
          sums_);
      const Tensor y = source_.normal(sums_, {n, 3});
      for (std::int64_t i = 0; i < y.elements(); ++i)
        set_value(y, i, cap * std::tanh(value_at(y, i) / cap));
      add(detail, 4,
          SoftCapBackward{.dx = source_.unwritten(dtype_, {n, 3}),
                          .dy = source_.normal(dtype_, {n, 3}),
                          .y = y,
                          .cap = cap});
    }
  }

  Tensor consumed() { return tensor_of(DType::kI64, {1}, std::vector<double>{70000}); }

  void add_activation(ActivationKind kind, std::int64_t n, std::int64_t f, bool gated) {
    const std::string detail =
        fmt::format("kind {} n {} f {} gated {}", static_cast<int>(kind), n, f, gated);
    // Gate and up as one projection leaves them: two halves of each row.
    const Tensor both = source_.normal_rows(dtype_, {n, 2 * f});
    const Tensor dboth = source_.unwritten_rows(dtype_, {n, 2 * f});
    const Tensor x = both.slice(1, 0, f);
    const Tensor up = gated ? both.slice(1, f, f) : Tensor();
    add(detail, 1,
        ActivationForward{.y = source_.unwritten(dtype_, {n, f}), .x = x, .up = up, .kind = kind});
    add(detail, 1,
        ActivationBackward{.dx = dboth.slice(1, 0, f),
                           .dup = gated ? dboth.slice(1, f, f) : Tensor(),
                           .dy = source_.normal(dtype_, {n, f}),
                           .x = x,
                           .up = up,
                           .kind = kind});
  }

  // `given`: the type of y and the residual, that of all else if it is not given.
  void add_dropout(std::int64_t n, std::int64_t h, double probability, bool full,
                   std::optional<DType> given = {}) {
    const DType stream = given.value_or(dtype_);
    const std::string detail =
        fmt::format("n {} h {} p {} full {}, y in {}", n, h, probability, full, name(stream));
    Dropout dropout{.probability = probability, .key = site_key(99, "layers.1.mlp.dropout")};
    dropout.rows = {.consumed_samples = consumed(),
                    .sample_index = 3,
                    .sequence = 8,
                    .first_row = full ? 20 : 0,
                    .first_column = full ? 7 : 0,
                    .first_shift = full ? 4 : 0,
                    .second_shift = full ? 12 : 0};
    add(detail, 2,
        DropoutAddForward{.y = source_.unwritten(stream, {n, h}),
                          .x = source_.normal(dtype_, {n, h}),
                          .bias = full ? source_.normal(dtype_, {h}) : Tensor(),
                          .residual = full ? source_.normal(stream, {n, h}) : Tensor(),
                          .dropout = dropout});
    const Tensor in_place = source_.normal(stream, {n, h});
    add(detail + " over the residual", 2,
        DropoutAddForward{.y = in_place,
                          .x = source_.normal(dtype_, {n, h}),
                          .residual = in_place,
                          .dropout = dropout});
    add(detail, n,
        DropoutAddBackward{.dx = source_.unwritten(dtype_, {n, h}),
                           .dbias = full ? source_.normal(sums_, {h}) : Tensor(),
                           .dy = source_.normal(stream, {n, h}),
                           .dropout = dropout});
  }

  void add_embedding(std::int64_t n, std::int64_t h, bool add_to) {
    const std::int64_t begin = 10;
    add(fmt::format("n {} h {}", n, h), 1,
        EmbeddingForward{
            .y = add_to ? source_.normal(dtype_, {n, h}) : source_.unwritten(dtype_, {n, h}),
            .table = source_.normal(dtype_, {12, h}),
            .ids = source_.integers({n}, 7, 24),
            .vocabulary_begin = begin,
            .add = add_to});
    add(fmt::format("n {} h {}", n, h), n,
        EmbeddingBackward{.dtable = source_.normal(sums_, {12, h}),
                          .dy = source_.normal(dtype_, {n, h}),
                          .ids = source_.integers({n}, 7, 24),
                          .vocabulary_begin = begin});
  }

  struct LossPart {
    std::int64_t n, columns, valid, begin;
  };
  void add_teacher(const LossPart& part, const Tensor& labels, DType gradient) {
    const auto [n, columns, valid, begin] = part;
    const std::string detail = fmt::format("n {} columns {} valid {}", n, columns, valid);
    const Shape table{n, columns};
    const auto logits = [&] { return source_.normal(sums_, table, 0, 2); };
    add(detail, columns,
        TeacherStatistics{.statistics = source_.unwritten(sums_, {n, 5}),
                          .logits = logits(),
                          .teacher = logits(),
                          .temperature = 1.7,
                          .valid = valid});
    Tensor statistics = source_.normal(sums_, {3, n, 5});
    for (std::int64_t row = 0; row < n; ++row) {
      for (std::int64_t rank = 0; rank < 3; ++rank) {
        const Tensor one = statistics.select(0, rank).select(0, row);
        for (const int which : {0, 2}) {
          const double none = -std::numeric_limits<double>::infinity();
          if (rank == 2) set_value(one, which, none);
          set_value(one, which + 1, rank == 2 ? 0 : 1 + std::fabs(value_at(one, which + 1)));
        }
        if (rank == 2) set_value(one, 4, 0);
      }
    }
    add(detail, n + 5,
        TeacherCombine{.loss = source_.normal(sums_, {n}),
                       .lse = source_.unwritten(sums_, {n, 2}),
                       .sum = source_.normal(DType::kF64, {1}),
                       .divergence = source_.normal(DType::kF64, {1}),
                       .statistics = statistics,
                       .labels = labels,
                       .mask = source_.normal(DType::kF32, {n}),
                       .temperature = 1.7,
                       .weight = 0.4},
        sums_);
    add(detail, 4,
        TeacherBackward{.dlogits = source_.unwritten(gradient, table),
                        .logits = logits(),
                        .teacher = logits(),
                        .lse = source_.normal(sums_, {n}, 4, 0.1),
                        .lse_at_temperature = source_.normal(sums_, {n, 2}, 4, 0.1),
                        .labels = labels,
                        .mask = source_.normal(DType::kF32, {n}),
                        .scale = tensor_of(sums_, {1}, std::vector{0.3}),
                        .temperature = 1.7,
                        .weight = 0.4,
                        .vocabulary_begin = begin,
                        .valid = valid});
  }

  // Of several labels of a text: `columns` of them from `begin` on, of three texts.
  void add_binary_loss(const LossPart& part, DType gradient) {
    const auto [n, columns, valid, begin] = part;
    const std::string detail = fmt::format("n {} columns {} valid {}", n, columns, valid);
    const Tensor labels = source_.integers({n}, -2, 2);
    const Tensor sets = source_.integers({3, begin + valid + 2}, 0, 1, DType::kU8);
    const auto logits = [&] { return source_.normal(sums_, {n, columns}, 0, 2); };
    add(detail, columns,
        BinaryLossStatistics{.statistics = source_.unwritten(sums_, {n, 3}),
                             .logits = logits(),
                             .labels = labels,
                             .sets = sets,
                             .vocabulary_begin = begin,
                             .valid = valid});
    add(detail, 1,
        BinaryLossBackward{.dlogits = source_.unwritten(gradient, {n, columns}),
                           .logits = logits(),
                           .labels = labels,
                           .sets = sets,
                           .mask = source_.normal(DType::kF32, {n}),
                           .scale = source_.normal(sums_, {1}, 1, 0.1),
                           .vocabulary_begin = begin,
                           .valid = valid});
  }

  void add_loss(std::int64_t n, std::int64_t columns, std::int64_t valid, std::int64_t begin,
                DType gradient) {
    const std::string detail = fmt::format("n {} columns {} valid {}", n, columns, valid);
    const Tensor labels = source_.integers({n}, -2, begin + columns + 5);
    const auto logits = [&] { return source_.normal(sums_, {n, columns}, 0, 2); };
    add(detail, columns,
        LossStatistics{.statistics = source_.unwritten(sums_, {n, 3}),
                       .logits = logits(),
                       .labels = labels,
                       .vocabulary_begin = begin,
                       .valid = valid});
    add(detail, 1,
        LargestLogits{.ids = source_.integers({n}, 0, 0),
                      .logits = logits(),
                      .vocabulary_begin = begin,
                      .valid = valid});
    // Three ranks; the last has only padding.
    Tensor statistics = source_.normal(sums_, {3, n, 3});
    for (std::int64_t row = 0; row < n; ++row) {
      for (std::int64_t rank = 0; rank < 3; ++rank) {
        const Tensor one = statistics.select(0, rank).select(0, row);
        set_value(one, 1, rank == 2 ? 0 : 1 + std::fabs(value_at(one, 1)));
        if (rank == 2) set_value(one, 0, -std::numeric_limits<double>::infinity());
        if (rank == 2) set_value(one, 2, 0);
      }
    }
    add(detail, n + 3,
        LossCombine{.loss = source_.unwritten(sums_, {n}),
                    .lse = source_.unwritten(sums_, {n}),
                    .sum = source_.normal(DType::kF64, {1}),
                    .statistics = statistics,
                    .labels = labels,
                    .mask = source_.normal(DType::kF32, {n})},
        sums_);
    add(detail, 3,
        SquaredLoss{.loss = source_.normal(sums_, {n}),
                    .weights = source_.unwritten(DType::kF32, {n}),
                    .sum = source_.normal(DType::kF64, {1}),
                    .targets = source_.normal(DType::kF32, {n}),
                    .mask = source_.normal(DType::kF32, {n})},
        sums_);
    add_binary_loss({n, columns, valid, begin}, gradient);
    add_teacher({n, columns, valid, begin}, labels, gradient);
    add(detail, 1,
        LossBackward{.dlogits = source_.unwritten(gradient, {n, columns}),
                     .logits = logits(),
                     .lse = source_.normal(sums_, {n}, 4, 0.1),
                     .labels = labels,
                     .mask = source_.normal(DType::kF32, {n}),
                     .scale = source_.normal(sums_, {1}, 1, 0.1),
                     .vocabulary_begin = begin,
                     .valid = valid});
  }

  DType dtype_;
  DType sums_;
  std::int64_t tile_;
  TensorSource source_;
  std::vector<CallCase> cases_;
};

}  // namespace

std::vector<CallCase> call_cases(const CaseOptions& options) {
  CaseList list(options);
  list.add_linears();
  list.add_weight_codes();
  if (options.codes) list.add_coded_linears();
  list.add_norms();
  list.add_rotaries();
  list.add_head_parts();
  list.add_activations();
  list.add_dropouts();
  list.add_embeddings();
  list.add_noises();
  list.add_losses();
  list.add_elementwise();
  list.add_updates();
  list.add_muon();
  list.add_cadam();
  list.add_squared_relus();
  std::vector<CallCase> cases = list.take();
  for (CallCase& attention : attention_cases(options)) cases.push_back(std::move(attention));
  for (CallCase& experts : expert_cases(options)) cases.push_back(std::move(experts));
  for (CallCase& float8 : float8_cases(options)) cases.push_back(std::move(float8));
  for (CallCase& sampling : sampling_cases(options)) cases.push_back(std::move(sampling));
  for (CallCase& recurrent : recurrent_cases(options)) cases.push_back(std::move(recurrent));
  for (CallCase& decoding : decoding_cases(options)) cases.push_back(std::move(decoding));
  if (options.latents) {
    for (CallCase& latents : latent_cases(options)) cases.push_back(std::move(latents));
  }
  for (CallCase& sinks : sink_cases(options)) cases.push_back(std::move(sinks));
  return cases;
}

Tolerance tolerance_of(const CallCase& call_case, const Tensor& output) {
  const bool narrower = unit_roundoff(call_case.narrowest) > unit_roundoff(output.dtype());
  return tolerance(narrower ? call_case.narrowest : output.dtype(), call_case.terms,
                   call_case.rounded_terms);
}

}  // namespace piton::test
