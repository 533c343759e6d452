// The heads of an encoder (model/encoder_options.h): masked words and the order of two parts, or
// labels of texts. Their linears are whole on every tensor rank.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "nn/chunk.h"
#include "nn/linear.h"
#include "nn/norm.h"
#include "nn/shard.h"

namespace piton {

struct EncoderHeadShape {
  std::int64_t hidden = 0;  // h
  ActivationKind activation = ActivationKind::kGeluTanh;
  NormShape norm;
  Initialization weights;
  Communicator* alone = nullptr;       // the group of this rank alone; must outlive the head
  double dropout = 0;                  // of the head for labels, before its logits
  bool drops_first = false;            // and of its first tokens, before the pooler (RoBERTa)
  const Adapters* adapters = nullptr;  // of the pooler; read by constructors; null: none
};

// What comes before the logits of masked words (nn/embedding.h, Head).
class WordTransform {
 public:
  WordTransform(ParameterList& parameters, const Shard& shard, const EncoderHeadShape& shape);
  // norm(activation(linear(x))): [n, h] -> [n, h], of any rows, the same on every tensor rank.
  Value forward(Context& context, const Value& x) const;

 private:
  EncoderHeadShape shape_;
  WholeLinear dense_;
  Norm norm_;
};

// Of the whole text, from its first token.
class Pooler {
 public:
  Pooler(ParameterList& parameters, const Shard& shard, const EncoderHeadShape& shape);
  // tanh(linear(x)): [b, h] of first tokens -> [b, h], the same on every tensor rank.
  Value forward(Context& context, const Value& x) const;

 private:
  WholeLinear dense_;
};

class PairHead {
 public:
  PairHead(ParameterList& parameters, const Shard& shard, const EncoderHeadShape& shape);
  // The sum over the samples of weight * cross entropy, fp64 [1]. x [b*s, h], under sequence
  // parallelism this rank's [b*s/t, h]: the same sum on every tensor rank. `scale`: as in
  // LossInputs.
  Value loss(Context& context, const Value& x, const ModelInput& input) const;
  const Pooler& pooler() const { return pooler_; }

 private:
  static constexpr std::int64_t kLabels = 2;

  Shard shard_;
  Communicator* alone_;
  Pooler pooler_;
  WholeLinear logits_;
};

// A pooler and logits of the labels of a text (model/label_head.h).
class LabelHead {
 public:
  LabelHead(ParameterList& parameters, const Shard& shard, const EncoderHeadShape& shape,
            std::int64_t labels);
  // The loss of first tokens x [k, h], the same on every tensor rank. Labels and mask are [k]. The
  // tokens are those of the samples of context.rows, in order: dropout is drawn for these.
  LossOutput loss(Context& context, const Value& x, const LossInputs& inputs) const;
  // x [k, h] -> fp32 (fp64) [k, labels], without dropout.
  Tensor logits(Context& context, const Tensor& x) const;
  const Pooler& pooler() const { return pooler_; }

 private:
  Value dropped(Context& context, const Value& x, const char* site) const;

  EncoderHeadShape shape_;
  DType sums_;  // of logits
  std::int64_t labels_;
  Pooler pooler_;
  WholeLinear linear_;
};

}  // namespace piton
