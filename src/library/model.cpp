// The C interface: trained models.
#include "api/model.h"

#include "base/options/options.h"
#include "library/handles.h"
#include "text/unicode/utf8.h"

using namespace piton;           // NOLINT(google-build-using-namespace)
using namespace piton::library;  // NOLINT(google-build-using-namespace)

struct piton_model {
  std::shared_ptr<OpenedEngine> engine;  // outlives the model
  std::unique_ptr<Model> model;
};

namespace {

// Reads all words as options of `group`; other words are refused.
template <typename Options>
void read_words(piton_words words, const char* group, Options& options) {
  OptionSet set;
  set.add(group, options);
  const std::vector<std::string> rest = set.parse(copied(words));
  if (!rest.empty()) throw Error(Fault::kUsage, "got \"{}\", wanted options alone", rest.front());
}

std::span<const std::int32_t> span_of(const std::int32_t* ids, std::size_t count) {
  require(ids, count, "ids");
  return {ids, count};
}

}  // namespace

int piton_model_load(piton_engine* engine, const char* path, piton_words tokenizer,
                     piton_model** result, piton_error* error) {
  return guarded(error, [&] {
    require(result, "result");
    *result = nullptr;
    require(engine, "engine");
    require(path, "path");
    TokenizerOptions options;
    read_words(tokenizer, "Tokenizer", options);
    *result = new piton_model{engine->opened,
                              Model::load(engine->opened->engine.machine(), path, options)};
  });
}

void piton_model_close(piton_model* model) {
  if (model != nullptr) model->model.reset();
  delete model;
}

int64_t piton_model_vocabulary_size(const piton_model* model) {
  return model == nullptr ? kNullHandle : model->model->config().vocabulary;
}
int64_t piton_model_max_positions(const piton_model* model) {
  return model == nullptr ? kNullHandle : model->model->config().max_positions;
}
int64_t piton_model_parameters(const piton_model* model) {
  return model == nullptr ? kNullHandle : model->model->config().parameters();
}

int piton_model_encode(piton_model* model, const char* text, size_t bytes, int special,
                       int32_t* ids, size_t capacity, size_t* count, piton_error* error) {
  return guarded(error, [&] {
    require(model, "model");
    require(count, "count");
    require(text, bytes, "text");
    require(ids, capacity, "ids");
    const std::vector<std::int32_t> all = model->model->require_tokenizer().encode(
        {text, bytes}, {.add_special_tokens = special != 0});
    std::copy_n(all.begin(), std::min(capacity, all.size()), ids);
    *count = all.size();
  });
}

int piton_model_decode(piton_model* model, const int32_t* ids, size_t count, char* text,
                       size_t capacity, size_t* bytes, piton_error* error) {
  return guarded(error, [&] {
    require(model, "model");
    require(bytes, "bytes");
    require(text, capacity, "text");
    const std::int64_t vocabulary = model->model->config().vocabulary;
    for (const std::int32_t id : span_of(ids, count)) {
      if (id >= 0 && id < vocabulary) continue;
      throw Error(Fault::kUsage, "decode: id {} is outside of the vocabulary; wanted 0 to {}", id,
                  vocabulary - 1);
    }
    const std::string all = model->model->require_tokenizer().decode(span_of(ids, count));
    std::copy_n(all.begin(), std::min(capacity, all.size()), text);
    *bytes = all.size();
  });
}

int piton_model_generate(piton_model* model, const int32_t* prompt, size_t count,
                         piton_words sampling, piton_token_function each, void* user,
                         piton_error* error) {
  return guarded(error, [&] {
    require(model, "model");
    require(reinterpret_cast<const void*>(each), "each");
    SamplingOptions options;
    read_words(sampling, "Sampling", options);
    options.settle();
    const Tokenizer* words = model->model->tokenizer();
    std::optional<StreamDecoder> decoder;
    if (words != nullptr) {
      decoder.emplace(*words, DecodeOptions{.skip_special_tokens = true});
      decoder->start_after(span_of(prompt, count));
    }
    bool ended = false;
    model->model->generate(span_of(prompt, count), options, [&](const GeneratedToken& token) {
      const std::string text = decoder ? replace_bad_utf8(decoder->push(token.id)) : "";
      ended = each(user, token.id, token.log_probability, text.data(), text.size()) == 0;
      return !ended;
    });
    const std::string rest = decoder ? replace_bad_utf8(decoder->finish()) : "";
    if (!rest.empty() && !ended) each(user, -1, 0, rest.data(), rest.size());
  });
}

int piton_model_score(piton_model* model, const int32_t* ids, size_t count, double* log_likelihood,
                      piton_error* error) {
  return guarded(error, [&] {
    require(model, "model");
    const Model::Score score = model->model->score(span_of(ids, count));
    require(log_likelihood, score.log_likelihood.size(), "log_likelihood");
    std::copy(score.log_likelihood.begin(), score.log_likelihood.end(), log_likelihood);
  });
}

int piton_model_logits(piton_model* model, const int32_t* ids, size_t count, float* logits,
                       piton_error* error) {
  return guarded(error, [&] {
    require(model, "model");
    if (count == 0) return;
    require(logits, "logits");
    const Tensor all = model->model->logits(span_of(ids, count));
    std::memcpy(logits, all.raw(), static_cast<std::size_t>(all.bytes()));
  });
}
