#include "api/model.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "adapters/prefixed_source.h"
#include "checkpoint/collective.h"
#include "checkpoint/load_values.h"
#include "checkpoint/read_newest.h"
#include "generate/constraints/run_breakers.h"
#include "generate/decoded_text.h"
#include "generate/source_texts.h"
#include "huggingface/files/quantized_matrix.h"
#include "model/label_head.h"
#include "model/lora/lora_options.h"
#include "model_files/generation_ends.h"
#include "model_files/opened_adapter.h"
#include "model_files/opened_model.h"
#include "train/run/corpus_rule.h"

namespace piton {
namespace {

constexpr std::int64_t kMostTexts = 4096;  // that are generated or scored at the same time

MicroBatch sequence_batch(std::span<const std::int32_t> ids) {
  const auto length = static_cast<std::int64_t>(ids.size()) - 1;
  MicroBatch batch{.samples = 1, .sequence = length};
  batch.tokens.assign(ids.begin(), ids.end() - 1);
  batch.labels.assign(ids.begin() + 1, ids.end());
  batch.loss_mask.assign(length, 1.0F);
  batch.positions.resize(length);
  std::iota(batch.positions.begin(), batch.positions.end(), 0);
  return batch;
}

// Adds the canonical tensors of a parameter, by name: its pieces, cut from its local `rows`.
void add_pieces(const Parameter& parameter, const Tensor& rows,
                std::map<std::string, Tensor>& out) {
  for (const Piece& piece : parameter.pieces) {
    const Tensor part = rows.slice(0, piece.local_row, piece.extent[0]);
    Tensor copy = host_tensor(part.dtype(), piece.extent);
    std::memcpy(copy.raw(), part.raw(), static_cast<std::size_t>(part.bytes()));
    out[piece.name] = copy;
  }
}

// What --quantize asks for, or else the codes that the model is stored in.
CodesOfParameter codes_of(const InferenceOptions& layout, const OpenedModel& opened) {
  const bool holds = layout.zero_stage < 3;
  const char* const flag = layout.quantize_flag;
  const std::optional<CodeFormat> format = code_format(flag, layout.quantize);
  if (!format) return holds && opened.source ? codes_stored_in(*opened.source) : CodesOfParameter();
  if (!holds) {
    throw Error(Fault::kUsage, "{}: cannot be combined with --zero-stage 3; leave one of them out",
                flag);
  }
  if (opened.source && stores_codes(*opened.source)) {
    throw Error(Fault::kUsage,
                "{}: {} is quantized, and used as it is stored; leave {} out, or load the model "
                "that it was made from",
                flag, opened.name, flag);
  }
  return codes_in(*format, flag);
}

}  // namespace

struct Model::State {
  explicit State(const Machine& machine) : machine(machine) {}
  Machine machine;
  std::unique_ptr<Tokenizer> tokenizer;
  SpecialTokensRule special_tokens;
  std::filesystem::path place;  // where it is, for messages
  bool quantizes = false;       // otherwise than the files
  ModelChatTemplates chat_templates;
  std::unique_ptr<Mesh> mesh;
  std::unique_ptr<Session> session;
  std::unique_ptr<Inference> inference;
  std::unique_ptr<DecodingEngine> engine;  // from its first use on
  DraftSource drafter;
  std::vector<std::int32_t> ends;
  std::int32_t start = 0;  // what the decoder of a model with an encoder reads first
  // Source of the values: a run or a checkpoint, or what another program wrote.
  std::filesystem::path run;
  std::filesystem::path folder;  // of the values: sessions that are opened later have the same
  std::unique_ptr<Communicator> everyone;  // reads the run
  std::unique_ptr<TensorSource> source;
  std::optional<OpenedAdapter> adapter;
  std::vector<OpenedAdapter> choices;  // of adapters that requests choose
  std::vector<std::string> choice_names;

  void load_values(Session& to) {
    const StoredModel stored{.parameters = base_parameters(to.parameters()),
                             .sharded = &to.sharded()};
    const StoreContext context{.mesh = *mesh,
                               .device = machine.device,
                               .arena = machine.arena,
                               .stream = machine.stream,
                               .threads = &machine.threads};
    if (source) {
      load_weights(*source, stored, context);
    } else {
      read_newest(folder.empty() ? run : folder, *everyone, [&](const std::filesystem::path& one) {
        load_checkpoint(one, stored, context);
        folder = one;
      });
    }
    if (adapter) {
      load_weights(*adapter->source,
                   {.parameters = trained_parameters(to.parameters(), adapter->adapters),
                    .sharded = &to.sharded()},
                   context);
    }
    for (std::size_t i = 0; i < choices.size(); ++i) {
      PrefixedSource named(*choices[i].source, choice_prefix(i));
      load_weights(named,
                   {.parameters = choice_parameters(to.parameters(), i), .sharded = &to.sharded()},
                   context);
    }
    to.publish_values();
  }

  // Throws for a model with an encoder, which only generates.
  void check_is_decoder() const {
    const ModelConfig& model = session->settings().model;
    if (!model.encoder_decoder) return;
    throw Error(Fault::kData,
                "{}: has an encoder and a decoder ({}), which only piton generate reads, without "
                "constraints; wanted a decoder",
                place.string(), model.family);
  }

  void check_computed(const OpenedAdapter& one, const OpenedModel& base,
                      const std::filesystem::path& path) const {
    phase(*everyone, std::nullopt,
          [&] { piton::check_computed(base.model, one.adapters, path.string()); });
  }

  // Opens the adapters of `opened`; "": none.
  void open_adapters(const std::filesystem::path& path, OpenedModel& opened) {
    if (path.empty()) return;
    adapter = open_adapter(path, opened, *everyone);
    check_computed(*adapter, opened, path);
    take_chat_templates(*adapter, opened);
    if (adapter->tokenizer.empty()) return;
    opened.tokenizer = adapter->tokenizer;
    opened.facts = adapter->facts;
  }

  // Opens the adapters that requests choose.
  void open_choices(const AdapterFiles& files, OpenedModel& opened) {
    for (const auto& [name, path] : files.choices) {
      OpenedAdapter one = open_adapter(path, opened, *everyone);
      check_computed(one, opened, path);
      check_can_be_chosen(one.adapters, path.string());
      choices.push_back(std::move(one));
      choice_names.push_back(name);
    }
  }

  Adapters all_adapters() const {
    Adapters all = adapter ? adapter->adapters : Adapters();
    for (const OpenedAdapter& one : choices) all.choices.push_back(one.adapters);
    return all;
  }
};

Model::Model() = default;
Model::~Model() = default;

double Model::Score::sum() const {
  return std::accumulate(log_likelihood.begin(), log_likelihood.end(), 0.0);
}

std::unique_ptr<Model> Model::load(const Machine& machine, const std::filesystem::path& path,
                                   const TokenizerOptions& tokenizer,
                                   const InferenceOptions& layout, const AdapterFiles& adapters) {
  const MeshSizes sizes = layout.check(machine.world.size());
  std::unique_ptr<Model> model(new Model);
  model->state_ = std::make_unique<State>(machine);
  State& state = *model->state_;
  state.everyone = make_group_of_all(machine.world, "model");
  ModelPaths paths;
  phase(*state.everyone, std::nullopt, [&] { paths = model_paths(path, adapters.path); });
  if (!paths.adapters.empty() && !adapters.choices.empty()) {
    throw Error(
        Fault::kUsage,
        "{}: are adapters of every text, and \"{}\" is one to choose; name both as adapters "
        "to choose from, and their base as --load",
        paths.adapters.string(), adapters.choices.front().first);
  }
  state.place = path;
  OpenedModel opened = open_model({.path = paths.base, .ranks = state.everyone.get()});
  state.open_adapters(paths.adapters, opened);  // which may make it a classifier
  if (opened.model.encoder && opened.model.labels == 0) {
    throw Error(Fault::kData,
                "{}: is an encoder ({}), which predicts masked words and continues no text; wanted "
                "a decoder",
                path.string(), opened.model.family);
  }
  state.open_choices(adapters, opened);
  std::vector<std::string> notes = std::move(opened.notes);
  if (tokenizer.empty()) {
    state.tokenizer = open_tokenizer_of(opened);
  } else {
    state.tokenizer = open_tokenizer(tokenizer);
    notes.push_back(other_tokenizer_note(*state.tokenizer, opened.tokenizer, path.string()));
  }
  // A tokenizer that is named replaces the model's, but not the ids that the model ends with.
  std::vector<std::int32_t> stated = generation_ends(opened);
  if (stated.empty() && !tokenizer.empty())
    stated = generation_ends(tokenizer_of(tokenizer).folder);
  state.ends = text_ends(stated, state.tokenizer.get());
  // T5's own tokenizers have no beginning of texts: its decoders start with padding.
  if (state.tokenizer) {
    const SpecialIds& special = state.tokenizer->special();
    state.start = special.bos.value_or(special.pad.value_or(0));
  }
  if (state.tokenizer) check_rows_for(*state.tokenizer, opened.model, path.string());
  for (const std::string& note : notes) {
    if (machine.world.rank() == 0 && !note.empty()) machine.log.warning(note);
  }
  state.special_tokens = rule_of_run(opened.facts);
  state.chat_templates = tokenizer.empty() ? std::move(opened.chat_templates)
                                           : chat_templates_in(tokenizer_of(tokenizer).folder);
  state.quantizes = !layout.quantize.empty();
  const CodesOfParameter codes = codes_of(layout, opened);
  if (opened.format == ModelFormat::kPiton && !opened.new_head) {
    state.run = paths.base;
  } else {
    state.source = std::move(opened.source);
  }
  const SessionSettings settings{
      .model = opened.model,
      .layout = {.vocabulary_multiple = opened.tokenizer.options.make_vocab_size_divisible_by,
                 .split_stage = first_decoder_stage(opened.model, sizes[Axis::kPipeline])},
      .zero_stage = layout.zero_stage,
      .use = SessionUse::kInference,
      .drafts_later = layout.drafts_later,
      .adapters = state.all_adapters(),
      .codes = codes};
  state.mesh = std::make_unique<Mesh>(machine.world, sizes);
  state.session = std::make_unique<Session>(state.machine, *state.mesh, settings);
  state.load_values(*state.session);
  state.inference =
      std::make_unique<Inference>(state.session->context(false), state.session->pipeline(),
                                  *state.mesh, settings.model, &state.machine.threads);
  state.inference->set_cache_numbers(layout.kv_cache_dtype);
  return model;
}

const ModelConfig& Model::config() const { return state_->session->settings().model; }

const std::vector<std::string>& Model::adapter_names() const { return state_->choice_names; }

const Tokenizer* Model::tokenizer() const { return state_->tokenizer.get(); }

const Tokenizer& Model::require_tokenizer() const {
  if (!state_->tokenizer)
    throw Error(Fault::kUsage,
                "--tokenizer-type: the model has no tokenizer; give --tokenizer-name-or-path DIR "
                "(--tokenizer-type ByteTokenizer for a model of bytes), or ids in place of text");
  return *state_->tokenizer;
}

const ChatTemplateFiles& Model::chat_templates() const {
  if (!state_->chat_templates.fault.empty())
    throw Error(Fault::kData, "{}", state_->chat_templates.fault);
  return state_->chat_templates.files;
}

const SpecialTokensRule& Model::special_tokens() const { return state_->special_tokens; }

const std::vector<std::int32_t>& Model::ends() const { return state_->ends; }

void Model::refuse_classifier() const {
  if (config().labels == 0) return;
  throw Error(Fault::kUsage,
              "--load: the model gives {}, it has no probabilities of tokens and continues no "
              "text; piton {} reads it",
              config().gives_rewards() ? "rewards" : "labels of texts",
              config().gives_rewards() ? "score --reward" : "classify");
}

std::unique_ptr<DecodingEngine> Model::make_engine(const DecodingLimits& limits) const {
  state_->check_is_decoder();
  refuse_classifier();
  return make_batched_engine(*state_->inference, limits, state_->drafter);
}

void Model::set_drafter(const DraftSource& drafter) {
  if (drafter.guesses()) state_->check_is_decoder();
  state_->drafter = drafter;
  state_->engine.reset();
}

DecodingEngine& Model::engine() const {
  if (!state_->engine) state_->engine = make_engine({.texts = kMostTexts});
  return *state_->engine;
}

DecodingCounts Model::counts() const {
  if (config().encoder_decoder) return {};
  return engine().counts();
}

std::vector<GeneratedToken> Model::generate(
    std::span<const std::int32_t> prompt, const SamplingOptions& options,
    const std::function<bool(const GeneratedToken&)>& each) {
  const std::vector<std::vector<std::int32_t>> one = {{prompt.begin(), prompt.end()}};
  return generate_batch({.ids = one}, options,
                        [&](std::size_t, const GeneratedToken& token) { return each(token); })
      .front();
}

std::vector<std::vector<GeneratedToken>> Model::generate_batch(
    PromptBatch batch, const SamplingOptions& options,
    const std::function<bool(std::size_t prompt, const GeneratedToken&)>& each) {
  if (config().encoder_decoder) return generate_of_sources(batch, options, each);
  batch.ends = state_->ends;
  return piton::generate_batch(engine(), batch, with_breakers(options), each);
}

SamplingOptions Model::with_breakers(const SamplingOptions& options) const {
  SamplingOptions all = options;
  if (options.dry.multiplier == 0) return all;
  if (tokenizer() != nullptr) {
    all.dry.breakers = run_breakers(*tokenizer(), options.dry_breakers);
  } else if (!options.dry_breakers.empty()) {
    throw Error(Fault::kUsage,
                "--dry-sequence-breaker: the model has no tokenizer, so that texts have no tokens; "
                "leave it out, or give --tokenizer-model");
  }
  return all;
}

std::vector<std::vector<GeneratedToken>> Model::generate_of_sources(
    const PromptBatch& batch, const SamplingOptions& options,
    const std::function<bool(std::size_t prompt, const GeneratedToken&)>& each) {
  if (!batch.constraints.empty()) state_->check_is_decoder();
  const SamplingOptions sampling = with_breakers(options);
  std::vector<std::vector<GeneratedToken>> texts;
  for (std::size_t i = 0; i < batch.ids.size(); ++i) {
    const SourceText source{.ids = batch.ids[i],
                            .start = state_->start,
                            .draw = batch.draws.empty() ? 0 : batch.draws[i]};
    texts.push_back(
        generate_from_source(*state_->inference, source, sampling, state_->ends,
                             [&](const GeneratedToken& token) { return each(i, token); }));
  }
  return texts;
}

std::vector<Beam> Model::beams(std::span<const std::int32_t> prompt, std::int64_t max_new_tokens,
                               const BeamOptions& options,
                               const std::function<bool(std::span<const LikelyToken>)>& ends) {
  refuse_classifier();
  const std::vector<std::int32_t> start{state_->start};
  BeamPrompt read{.ids = prompt, .source = {}};
  if (config().encoder_decoder) {
    check_prompt(config(), prompt);
    read = {.ids = start, .source = prompt};
  }
  return beam_search(*state_->inference, read, options,
                     {.max_new_tokens = max_new_tokens, .ids = state_->ends, .ends = ends});
}

// As DecodingEngine::submit() checks what is scored, but the last token is read too.
void Model::check_read(std::span<const std::int32_t> ids) const {
  state_->check_is_decoder();
  std::vector<std::int32_t> prompt(ids.begin(), ids.end());
  prompt.push_back(0);
  check_request(config(),
                {.prompt = std::move(prompt), .sampling = {.max_new_tokens = 0}, .scored_from = 1});
}

std::vector<float> Model::embedding(std::span<const std::int32_t> ids, EmbeddingPooling pooling,
                                    std::optional<std::int64_t> adapter) {
  check_read(ids);
  return state_->inference->embedding(ids, pooling, adapter);
}

std::vector<double> Model::rewards(std::span<const std::vector<std::int32_t>> sequences) {
  if (!config().gives_rewards()) {
    throw Error(Fault::kUsage,
                "--reward: the model predicts {}, wanted a reward model, as --stage rm makes",
                config().labels > 0 ? "labels" : "tokens");
  }
  std::vector<double> rewards;
  for (const std::vector<std::int32_t>& ids : sequences) {
    check_read(ids);
    MicroBatch batch{.samples = 1, .sequence = std::ssize(ids), .tokens = ids};
    batch.labels.assign(ids.size(), kNoLabel);
    batch.labels.back() = kRewardLabel;
    batch.loss_mask.assign(ids.size(), 0.0F);
    batch.positions.resize(ids.size());
    std::iota(batch.positions.begin(), batch.positions.end(), 0);
    const auto all = state_->session->token_losses({batch}, {});
    const double own = all[0].empty() ? 0 : all[0].back();
    const std::string bytes =
        state_->inference->from_last_stage({reinterpret_cast<const char*>(&own), sizeof own});
    double reward = 0;
    std::memcpy(&reward, bytes.data(), sizeof reward);
    rewards.push_back(reward);
  }
  return rewards;
}

std::vector<std::vector<float>> Model::label_logits(std::span<const TextToLabel> texts) {
  if (!config().classifies()) {
    throw Error(Fault::kUsage,
                "classify: the model {}, wanted a classifier of texts, as --stage classify makes",
                config().labels == 1 ? "gives a number, which piton score --reward prints"
                                     : "predicts tokens");
  }
  for (const TextToLabel& text : texts) check_read(text.ids);
  return piton::label_logits(*state_->session, *state_->inference, texts);
}

Tensor Model::logits(std::span<const std::int32_t> ids) {
  refuse_classifier();
  check_read(ids);
  Inference& inference = *state_->inference;
  const std::vector<float> whole = inference.whole_vocabulary(inference.logits(ids, 1));
  const std::string bytes = inference.from_last_stage(
      {reinterpret_cast<const char*>(whole.data()), whole.size() * sizeof(float)});
  Tensor logits =
      host_tensor(DType::kF32, {static_cast<std::int64_t>(ids.size()), config().vocabulary});
  PITON_ASSERT(std::ssize(bytes) == logits.bytes(), "{} bytes of logits", bytes.size());
  std::memcpy(logits.raw(), bytes.data(), bytes.size());
  return logits;
}

std::vector<Model::Score> Model::scores(std::span<const std::vector<std::int32_t>> sequences) {
  std::vector<Score> scores;
  for (std::vector<double>& one : score_texts(engine(), sequences))
    scores.push_back({.log_likelihood = std::move(one)});
  return scores;
}

Model::Score Model::score(std::span<const std::int32_t> ids) {
  const std::vector<std::int32_t> one(ids.begin(), ids.end());
  return std::move(scores(std::span(&one, 1)).front());
}

std::vector<ContinuationScore> Model::score_continuations(
    std::span<const ContinuationRequest> requests) {
  return piton::score_continuations(engine(), requests);
}

std::map<std::string, Tensor> Model::gradients(
    const std::vector<std::vector<std::int32_t>>& sequences) {
  state_->check_is_decoder();
  refuse_classifier();
  if (state_->machine.world.size() != 1) {
    throw Error(Fault::kUsage, "score: gradients are written by one process, and {} were started",
                state_->machine.world.size());
  }
  std::vector<MicroBatch> batches;
  for (const auto& ids : sequences) {
    if (ids.size() >= 2) batches.push_back(sequence_batch(ids));
  }
  if (batches.empty())
    throw Error(Fault::kUsage, "score: gradients need a sequence of two tokens or more");
  SessionSettings settings = state_->session->settings();
  if (state_->quantizes) {
    throw Error(Fault::kUsage,
                "--gradients: are those of the weights as they are stored; leave --quantize out");
  }
  settings.codes = {};
  settings.micro_batches = static_cast<int>(batches.size());
  settings.use = SessionUse::kGradients;
  // No dropout, so that these are the gradients of the loss that `score` prints.
  settings.model.hidden_dropout = 0;
  settings.model.attention_dropout = 0;
  Session session(state_->machine, *state_->mesh, settings);
  state_->load_values(session);
  session.gradients(batches, 0);
  std::map<std::string, Tensor> out;
  for (const Parameter* parameter : session.parameters()) {
    if (parameter->sign_rate) continue;  // counts, not a gradient of the loss
    Tensor host = host_tensor(parameter->gradient.dtype(), parameter->shape);
    state_->machine.device.download(parameter->gradient, host.raw(), state_->machine.stream);
    add_pieces(*parameter, host, out);
  }
  return out;
}

}  // namespace piton
