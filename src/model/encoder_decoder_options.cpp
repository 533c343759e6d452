#include "model/encoder_decoder_options.h"

#include "base/options/option_range.h"
#include "model/config.h"

namespace piton {

void EncoderDecoderOptions::apply(ModelConfig& config, std::optional<std::int64_t> layers) const {
  const auto refuse = [&](bool given, const char* flag) {
    if (!given || config.encoder_decoder) return;
    throw Error(Fault::kUsage, "--{}: is for --model-family t5; leave it out", flag);
  };
  refuse(encoder_layers.has_value(), "encoder-num-layers");
  refuse(decoder_layers.has_value(), "decoder-num-layers");
  refuse(buckets.has_value(), "relative-attention-num-buckets");
  refuse(farthest_bucket.has_value(), "relative-attention-max-distance");
  if (!config.encoder_decoder) return;
  EncoderDecoderFacts& facts = *config.encoder_decoder;
  if (layers) facts.encoder_layers = *layers;
  if (encoder_layers) facts.encoder_layers = *encoder_layers;
  if (decoder_layers) config.layers = *decoder_layers;
  if (buckets) facts.buckets = *buckets;
  if (farthest_bucket) facts.farthest_bucket = *farthest_bucket;
  const bool published = config.positions == PositionKind::kRelative;
  facts.scaled_head = published && config.tied;
  facts.head_bias = !published && config.tied;
  if (published && !config.query_scalar) config.query_scalar = 1;
}

EncoderDecoderOptions EncoderDecoderOptions::of(const ModelConfig& config) {
  if (!config.encoder_decoder) return {};
  const EncoderDecoderFacts& facts = *config.encoder_decoder;
  EncoderDecoderOptions options{.encoder_layers = facts.encoder_layers,
                                .decoder_layers = config.layers};
  if (config.positions != PositionKind::kRelative) return options;
  options.buckets = facts.buckets;
  options.farthest_bucket = facts.farthest_bucket;
  return options;
}

void check_encoder_decoder(const ModelConfig& config) {
  if (!config.encoder_decoder) {
    if (config.positions != PositionKind::kRelative) return;
    throw Error(Fault::kUsage,
                "--position-embedding-type: relative is for --model-family t5; give another kind");
  }
  const EncoderDecoderFacts& facts = *config.encoder_decoder;
  check_range("--encoder-num-layers", facts.encoder_layers, 1, kLargestSize);
  const auto only = [](bool holds, const char* flag, const char* wanted) {
    if (holds) return;
    throw Error(Fault::kUsage,
                "{}: a model of an encoder and a decoder (t5) has {}; leave the flag out", flag,
                wanted);
  };
  const bool published = config.positions == PositionKind::kRelative;
  only(published || config.positions == PositionKind::kLearned, "--position-embedding-type",
       "learned_absolute or relative positions");
  only(config.heads == config.groups, "--num-query-groups", "a key and a value for each head");
  only(!config.window_before && !config.window_after, "--pre-tockens, --next-tockens",
       "no attention window");
  only(config.attention_block == 0, "--triangle-attn", "no triangle form");
  only(!config.embedding_norm, "--embed-layernorm", "no norm of the embedding");
  only(!config.end_norms, "--post-norm", "no norms within branches");
  only(!config.head_norms, "--qk-layernorm", "no norms of heads");
  only(!config.normalized_head, "--normalized-head", "no normalized head");
  only(!config.gains_from_one, "--apply-layernorm-1p", "gains as they are");
  only(!config.scaled_embedding, "--input-embeds-norm", "an embedding without a factor");
  only(config.attention_soft_cap == 0, "--attn-logit-softcapping", "no caps");
  only(config.logit_soft_cap == 0, "--output-logit-softcapping", "no caps");
  if (!published) return;
  check_range("--relative-attention-num-buckets", facts.buckets, 4, kLargestSize);
  if (facts.buckets % 2 != 0) {
    throw Error(Fault::kUsage,
                "--relative-attention-num-buckets: got {}, wanted an even number: half of those of "
                "the encoder are for each direction",
                facts.buckets);
  }
  check_range("--relative-attention-max-distance", facts.farthest_bucket, facts.buckets / 2 + 1,
              kLargestSize);
}

}  // namespace piton
