#include "model/families.h"

// Models with an encoder. BERT as Megatron-LM trains it: the layers of GPT-2, with heads for masked
// words and for the order of two parts of a text (model/encoder_options.h). T5 as Megatron-LM
// trains it: the same, with a decoder and a tied head that has a bias
// (model/encoder_decoder_options.h); folders of Hugging Face have the published form.
namespace piton {

ModelConfig bert_facts() {
  ModelConfig config = gpt2_facts();
  config.family = "bert";
  config.encoder.emplace();
  return config;
}

ModelConfig t5_facts() {
  ModelConfig config = bert_facts();
  config.family = "t5";
  config.encoder.reset();
  config.encoder_decoder = EncoderDecoderFacts{.head_bias = true};
  return config;
}

namespace {

struct EncoderSizes {
  std::int64_t layers;  // of T5, of each stack
  std::int64_t hidden;
  std::int64_t heads;
  std::int64_t vocabulary;
  std::int64_t max_positions;
};

Preset of_sizes(std::string name, ModelConfig config, const EncoderSizes& sizes) {
  config.layers = sizes.layers;
  if (config.encoder_decoder) config.encoder_decoder->encoder_layers = sizes.layers;
  config.hidden = sizes.hidden;
  config.ffn_hidden = 4 * sizes.hidden;
  config.heads = config.groups = sizes.heads;
  config.head_size = sizes.hidden / sizes.heads;
  config.vocabulary = sizes.vocabulary;
  config.max_positions = sizes.max_positions;
  return {std::move(name), std::move(config)};
}

}  // namespace

std::vector<Preset> bert_presets() {
  return {of_sizes("bert-110m", bert_facts(), {12, 768, 12, 30522, 512}),
          of_sizes("bert-tiny", bert_facts(), {4, 64, 4, 257, 128})};
}

std::vector<Preset> t5_presets() {
  return {of_sizes("t5-220m", t5_facts(), {12, 768, 12, 30622, 512}),
          of_sizes("t5-tiny", t5_facts(), {2, 64, 4, 257, 128})};
}

}  // namespace piton
