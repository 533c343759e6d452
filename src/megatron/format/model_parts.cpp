#include "megatron/format/model_parts.h"

#include <string_view>

#include "base/error.h"
#include "megatron/format/names.h"

namespace piton {

MegatronParts MegatronParts::of(const ModelConfig& model) {
  if (model.encoder) {
    return {.word_head = true,
            .pair_head = model.encoder->pair_head,
            .token_types = model.encoder->token_types};
  }
  if (!model.encoder_decoder) return {};
  return {.encoder_layers = model.encoder_decoder->encoder_layers, .decoder_layers = model.layers};
}

void MegatronParts::add(const BoxedTensors& tensors) {
  const auto layers = [&](std::string_view stack) {
    std::int64_t count = 0;
    while (tensors.contains(fmt::format("{}layers.{}.input_norm.weight", stack, count))) ++count;
    return count;
  };
  word_head |= tensors.contains("lm_dense.weight");
  pair_head |= tensors.contains("binary_head.weight");
  const auto types = tensors.find("token_types.weight");
  if (types != tensors.end()) token_types = types->second.rows;
  if (!tensors.contains("layers.0.cross_q.weight")) return;
  encoder_layers = layers(kEncoderKeys);
  decoder_layers = layers("");
}

void MegatronParts::apply(ModelConfig& model) const {
  if (decoder_layers > 0) {
    model.family = "t5";
    model.layers = decoder_layers;
    model.encoder_decoder =
        EncoderDecoderFacts{.encoder_layers = encoder_layers, .head_bias = model.tied};
  } else if (word_head) {
    const bool exact = model.activation == ActivationKind::kGeluErf;
    model.family = "bert";
    model.encoder = EncoderFacts{.token_types = token_types,
                                 .pair_head = pair_head,
                                 .exact_gelu_head = !head_like_layers && !exact};
  }
}

void MegatronParts::check_kind(const ModelConfig& model, const std::string& where) const {
  ModelConfig shown;
  apply(shown);
  if (shown.encoder.has_value() == model.encoder.has_value() &&
      shown.encoder_decoder.has_value() == model.encoder_decoder.has_value())
    return;
  throw Error(Fault::kUsage, "{}: --model-family {}: the tensors are of {}", where, model.family,
              shown.encoder           ? "an encoder (bert)"
              : shown.encoder_decoder ? "an encoder and a decoder (t5)"
                                      : "a decoder");
}

}  // namespace piton
