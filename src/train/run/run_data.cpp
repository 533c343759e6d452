#include "train/run/run_data.h"

#include <algorithm>
#include <array>
#include <numeric>

#include "base/hash.h"
#include "base/options/option_range.h"
#include "data/corpus/corpus_card.h"
#include "data/labels/labeled_dataset.h"
#include "data/masked/describe_masked.h"
#include "data/masked/masked_sets.h"
#include "data/samples/completed_samples.h"
#include "data/samples/data_paths.h"
#include "data/samples/describe.h"
#include "text/files/tokenizer_options.h"
#include "train/run/corpus_rule.h"

namespace piton {
namespace {

// For the contents of corpora. ("corpus." alone, in earlier checkpoints, also has modification
// times.)
constexpr const char* kCorpusFact = "corpus_content.";
constexpr const char* kOwnSamplesFact = "samples";

std::string fact_of_corpus(std::size_t index) { return fmt::format("{}{}", kCorpusFact, index); }

// What the card of a corpus is compared with. Ids of --vocab-extra-ids come after all others, so a
// corpus may be made without them.
std::string hash_for_card(const PretrainOptions& options, const Tokenizer* tokenizer,
                          const std::string& prefix) {
  if (tokenizer == nullptr) return "";
  if (options.tokenizer.vocab_extra_ids == 0) return tokenizer->content_hash();
  TokenizerOptions plain = options.tokenizer;
  plain.vocab_extra_ids = 0;
  const std::string without = open_tokenizer(plain)->content_hash();
  const std::optional<CorpusCard> card = read_card(prefix);
  return card && card->tokenizer_hash == without ? without : tokenizer->content_hash();
}

DocumentRules document_rules(const PretrainOptions& options, std::int64_t vocabulary,
                             const Tokenizer* tokenizer) {
  std::optional<std::int32_t> eod, pad;
  if (tokenizer != nullptr) eod = tokenizer->special().eod;
  if (options.tokenizer.is_null()) eod = static_cast<std::int32_t>(vocabulary - 1);
  if (options.data.mock_data) eod = mock_ids(options, vocabulary, tokenizer).end_of_document;
  if (tokenizer != nullptr) pad = tokenizer->special().pad;
  return DocumentRules::from(options.data, eod, pad);
}

// `log` must outlive the result.
SampleSettings settings_of(const PretrainOptions& options, const RunPlan& plan,
                           const Tokenizer* tokenizer, Log& log) {
  const LoopOptions& loop = options.loop;
  const std::int64_t vocabulary = plan.session.model.vocabulary;
  SampleSettings settings{.sequence = plan.sequence,
                          .seed = static_cast<std::uint32_t>(loop.seed),
                          .counts = sample_counts(plan.train_iters, loop.eval_interval,
                                                  loop.eval_iters, plan.global_batch),
                          .mock = mock_ids(options, vocabulary, tokenizer),
                          .documents = document_rules(options, vocabulary, tokenizer),
                          .global_batch = plan.global_batch,
                          .whole_validation = loop.full_validation,
                          .for_rewards = options.preferences.stage == TrainingStage::kRm};
  settings.counts.train = plan.train_samples;
  const ModelConfig& model = plan.session.model;
  if (options.preferences.classifies()) {
    refuse_masking(options.masking);
    settings.of_records =
        labeled_samples({.sequence = settings.sequence,
                         .labels = model.labels,
                         .regression = model.regression,
                         .several = model.several_labels,
                         .at_first_token = model.encoder.has_value(),
                         .token_types = model.encoder ? model.encoder->token_types : 0},
                        log);
  } else if (model.encoder || model.encoder_decoder) {
    MaskedSettings masked{.task = model.encoder ? MaskedTask::kBert : MaskedTask::kT5,
                          .sequence = settings.sequence,
                          .seed = settings.seed,
                          .masking = options.masking};
    if (model.encoder) masked.pairs = model.encoder->pair_head;
    if (model.encoder_decoder) masked.decoder_sequence = plan.decoder_sequence;
    settings.of_documents = masked_samples(masked, options.data, tokenizer, log);
  } else {
    refuse_masking(options.masking);
  }
  return settings;
}

DataSets open_sets(const PretrainOptions& options, const SampleSettings& settings, Log& notes) {
  DataSets sets = open_data_sets(options.data, settings, notes);
  if (!sets.train) {
    throw Error(Fault::kUsage,
                "--data-path: no training data is named; give the prefix of a corpus (piton "
                "preprocess makes one), or --mock-data");
  }
  return sets;
}

// Corpora without weights are read once, where all others are read as often as a run needs.
void check_length_of_training(const DataSets& sets, const DataOptions& data, std::int64_t samples) {
  if (data.dataloader_type == DataloaderType::kCyclic || sets.train->size() >= samples) return;
  const std::string why =
      data.train_data_exact_num_epochs
          ? fmt::format("--train-data-exact-num-epochs {} gives", *data.train_data_exact_num_epochs)
          : "--data-path: several corpora without weights are read once, which gives";
  throw Error(Fault::kData,
              "{} {} samples for training, and the run needs {}; give weights (--data-path 1 A 1 "
              "B), --num-train-epochs N, --dataloader-type cyclic, or fewer --train-iters",
              why, sets.train->size(), samples);
}

// `samples`: those of all evaluations.
void check_length_of_validation(const SampleSource& valid, std::int64_t samples) {
  if (valid.size() >= samples) return;
  throw Error(Fault::kData,
              "--eval-iters: several corpora without weights are read once, which gives {} samples "
              "for validation, and the evaluations of the run need {}; give weights (--data-path 1 "
              "A 1 B), --full-validation, or fewer --eval-iters",
              valid.size(), samples);
}

// Sets of corpora that were made of files have the names of these.
std::vector<NamedSource> with_names_of_files(std::vector<NamedSource> sets, const DataOptions& data,
                                             const CorpusFiles& files) {
  if (!data.multiple_validation_sets) return sets;
  std::vector<std::string> paths;
  for (const std::string& prefix : data.valid_data_path) {
    const std::string file = files.file_of(prefix);
    paths.push_back(file.empty() ? prefix : file);
  }
  PITON_ASSERT(paths.size() == sets.size());
  const std::vector<std::string> names = distinct_ends(paths);
  for (std::size_t i = 0; i < sets.size(); ++i) sets[i].name = names[i];
  return sets;
}

// Rows of this length can be divided over tensor and context ranks, as those of --seq-length can.
std::int64_t length_multiple(const PretrainOptions& options, const ModelConfig& model) {
  const std::int64_t multiple = options.data.pad_to_multiple_of;
  check_range("--pad-to-multiple-of", multiple, 1, kLargestSize);
  const ParallelOptions& parallel = options.parallel;
  return std::lcm(multiple,
                  parallel.tensor * parallel.sequence_multiple(model.attention_dropout > 0));
}

void check_own(const OwnSamples& own, const PretrainOptions& options) {
  const DataOptions& data = options.data;
  if (data.mock_data || !data.data_path.empty() || !data.train_data_path.empty() ||
      !data.train_weighted_split_paths.empty()) {
    throw Error(Fault::kUsage,
                "samples: got samples of the program and --mock-data or the path of a corpus; "
                "wanted one of them");
  }
  if (options.loop.evaluates() && !own.make_validation) {
    if (options.loop.full_validation) {
      throw Error(Fault::kUsage,
                  "--full-validation: the program gives no samples for validation; leave it out");
    }
    throw Error(Fault::kUsage,
                "--eval-iters: got {}, wanted 0: the program gives no samples for validation",
                options.loop.eval_iters);
  }
}

}  // namespace

MockIds mock_ids(const PretrainOptions& options, std::int64_t vocabulary,
                 const Tokenizer* tokenizer) {
  if (!options.data.mock_data) return {};
  const std::int64_t ids = tokenizer != nullptr ? tokenizer->vocabulary_size() : vocabulary;
  const auto last = static_cast<std::int32_t>(ids - 1);
  return {ids, tokenizer != nullptr ? tokenizer->special().eod.value_or(last) : last};
}

TrainingEpochs epochs_of_run(const PretrainOptions& options, const RunPlan& plan,
                             const Tokenizer* tokenizer, double epochs) {
  SilentLog silent;
  return training_epochs(options.data, settings_of(options, plan, tokenizer, silent), epochs);
}

RunData::RunData(const PretrainOptions& options, const RunPlan& plan, const Tokenizer* tokenizer,
                 Log& notes, const RunInputs& inputs)
    : batches_(plan.batches),
      global_batch_(plan.global_batch),
      micro_batch_(options.loop.micro_batch_size),
      sizes_(plan.micro_batch_sizes),
      row_length_(plan.sequence),
      whole_validation_(options.loop.full_validation),
      needs_validation_(whole_validation_ || options.loop.skip_train || options.loop.keep_best ||
                        options.loop.early_stopping_patience.has_value()),
      eval_iters_(options.loop.eval_iters),
      files_(inputs.files),
      notes_(files_, notes) {
  files_.naming([&] { open(options, plan, tokenizer, inputs.own); });
}

void RunData::open(const PretrainOptions& options, const RunPlan& plan, const Tokenizer* tokenizer,
                   const OwnSamples& own) {
  BatchRules rules{.order = options.data.dataloader_type,
                   .vocabulary = plan.session.model.vocabulary,
                   .has_source = plan.session.model.encoder_decoder.has_value()};
  if (options.data.variable_seq_lengths)
    rules.length_multiple = length_multiple(options, plan.session.model);
  const SampleSettings settings = settings_of(options, plan, tokenizer, notes_);
  if (own.make) {
    check_own(own, options);
    const std::shared_ptr<const SampleSource> samples = own.make(settings);
    own_samples_ = own.endless ? own.name
                               : fmt::format("{} samples of {} tokens, {}", samples->size(),
                                             plan.sequence, own.name);
    train_ = std::make_unique<BatchSource>(samples, rules);
    if (options.loop.evaluates()) open_validation({{"", own.make_validation(settings)}}, rules);
    return;
  }
  const DataSets sets = open_sets(options, settings, notes_);
  for (std::size_t i = 0; i < sets.prefixes.size(); ++i) {
    const std::string note =
        check_card(sets.prefixes[i], sets.tokens[i], tokenizer != nullptr ? tokenizer->name() : "",
                   hash_for_card(options, tokenizer, sets.prefixes[i]));
    if (!note.empty()) notes_.info(note);
  }
  corpora_ = sets.corpora;
  fingerprints_ = sets.fingerprints;
  for (const auto& corpus : corpora_) stamps_.push_back(corpus->stamp());
  if (!plan.session.model.encoder && !plan.session.model.encoder_decoder)
    warn_of_sentences(corpora_, notes_);
  // A template puts special tokens into instruction data.
  if (tokenizer != nullptr && !options.data.is_instruction_dataset)
    special_tokens_ = have_special_tokens(corpora_, *tokenizer, notes_);
  const LoopOptions& loop = options.loop;
  if (!loop.skip_train) check_length_of_training(sets, options.data, plan.train_samples);
  train_ = std::make_unique<BatchSource>(sets.train, rules);
  if (!loop.evaluates()) return;
  open_validation(with_names_of_files(sets.valid, options.data, files_), rules);
  open_test(sets.test, rules);
  if (whole_validation_ || loop.skip_train) return;
  const std::int64_t evaluations =
      std::max<std::int64_t>(plan.train_iters - 1, 0) / loop.eval_interval + 1;
  for (const HeldOut& set : valid_) {
    check_length_of_validation(set.source->samples(),
                               evaluations * loop.eval_iters * global_batch_);
  }
}

void RunData::open_validation(const std::vector<NamedSource>& sets, const BatchRules& rules) {
  for (const NamedSource& set : sets) {
    if (set.source == nullptr || set.source->size() == 0) continue;
    valid_.push_back(opened(set, rules, whole_validation_));
    if (sets.size() == 1) valid_.back().name = "";
  }
  if (!valid_.empty()) return;
  if (!needs_validation_) {  // as Megatron-LM, whose scripts give both
    notes_.warning(
        "--eval-iters: the validation split has no samples: nothing is evaluated; change --split "
        "to evaluate");
    return;
  }
  throw Error(Fault::kData, "--{}: the validation split has no samples; change --split, or {}",
              whole_validation_ ? "full-validation" : "eval-iters",
              whole_validation_ ? "leave this out" : "leave out what reads validation losses");
}

void RunData::open_test(const std::vector<NamedSource>& sets, const BatchRules& rules) {
  for (const NamedSource& set : sets) {
    if (set.source == nullptr || set.source->size() == 0) continue;
    // Corpora without weights are read once.
    const bool few = set.source->size() < eval_iters_ * global_batch_;
    test_.push_back(opened(set, rules, whole_validation_ || few));
    if (sets.size() == 1) test_.back().name = "";
  }
}

RunData::HeldOut RunData::opened(const NamedSource& samples, BatchRules rules, bool whole) const {
  HeldOut set{.name = samples.name, .source = nullptr, .batches = eval_iters_};
  std::shared_ptr<const SampleSource> source = samples.source;
  if (whole) {
    auto completed = std::make_shared<CompletedSamples>(std::move(source), global_batch_);
    set.batches = completed->size() / global_batch_;
    source = std::move(completed);
  }
  rules.order = DataloaderType::kSingle;
  set.source = std::make_unique<BatchSource>(std::move(source), rules);
  return set;
}

std::int64_t RunData::batches(HeldOutSet set) const {
  std::int64_t batches = 0;
  for (const HeldOut& one : held_out(set)) batches += one.batches;
  return batches;
}

std::map<std::string, std::string> RunData::facts() const {
  std::map<std::string, std::string> facts;
  for (std::size_t i = 0; i < fingerprints_.size(); ++i) {
    facts[fact_of_corpus(i)] = fingerprints_[i];
  }
  if (!own_samples_.empty()) facts[kOwnSamplesFact] = own_samples_;
  if (special_tokens_) facts[kSpecialTokensFact] = *special_tokens_ ? "true" : "false";
  return facts;
}

std::string RunData::chat_template(Log& notes) const {
  CorpusFilesLog named(files_, notes);
  return chat_template_of(corpora_, named);
}

std::string RunData::name_of_fact(const std::string& key) const {
  for (std::size_t i = 0; i < corpora_.size(); ++i) {
    if (key != fact_of_corpus(i)) continue;
    const std::string& prefix = corpora_[i]->prefix();
    const std::string file = files_.file_of(prefix);
    return file.empty() ? "corpus " + prefix : file;
  }
  if (corpora_.empty() && key == fact_of_corpus(0)) return "corpus of --mock-data";
  return key;
}

std::vector<MicroBatch> RunData::batch(BatchSource& source, const BatchPlace& place) {
  std::vector<MicroBatch> all;
  files_.naming([&] {
    try {
      all = source.batch(place);
    } catch (const Error&) {
      check_unchanged();  // an invalid sample may come from a corpus that was written to
      throw;
    }
  });
  return all;
}

BatchPlace RunData::place_of(const Mesh& mesh, std::int64_t consumed,
                             std::int64_t global_batch) const {
  return {.consumed_samples = consumed,
          .global_batch = global_batch,
          .micro_batch = micro_batch_,
          .rank = mesh.sample_rank(),
          .ranks = mesh.sizes().sample_ranks()};
}

BatchPlace RunData::training_place(const Mesh& mesh, std::int64_t consumed) const {
  BatchPlace place = place_of(mesh, consumed, batches_.at(consumed));
  place.sizes = sizes_;
  return place;
}

std::vector<MicroBatch> RunData::training_batch(const Mesh& mesh, std::int64_t consumed) {
  std::vector<MicroBatch> all = batch(*train_, training_place(mesh, consumed));
  const MicroBatch& first = all.front();
  row_length_ = first.source.given() ? first.source.sequence : first.sequence;
  return all;
}

void RunData::announce_training_batch(const Mesh& mesh, std::int64_t consumed) {
  try {
    train_->announce(training_place(mesh, consumed));
  } catch (const Error&) {
    // Whatever it is, training_batch() meets it too, and says it.
  }
}

std::vector<MicroBatch> RunData::held_out_batch(const HeldOut& set, const Mesh& mesh,
                                                std::int64_t consumed) {
  return batch(*set.source, place_of(mesh, consumed, global_batch_));
}

void RunData::check_unchanged() {
  files_.naming([&] { compare_contents(); });
}

void RunData::compare_contents() {
  for (std::size_t i = 0; i < corpora_.size(); ++i) {
    const std::string stamp = corpora_[i]->stamp();
    if (stamp == stamps_[i]) continue;
    const std::string got = corpora_[i]->fingerprint();
    if (got != fingerprints_[i]) {
      throw Error(Fault::kData,
                  "{}: changed while it was read: its contents are {}, they were {}; restore "
                  "it, and continue from the last checkpoint",
                  corpora_[i]->prefix(), got, fingerprints_[i]);
    }
    stamps_[i] = stamp;
  }
}

std::string RunData::first_samples(std::int64_t count, const Tokenizer* tokenizer) {
  std::string text;
  for (std::int64_t place = 0; place < std::min(count, train_->samples().size()); ++place) {
    Sample masked;
    train_->samples().sample(train_->sample_at(place), masked);
    if ((!masked.types.empty() || !masked.decoder.empty()) && tokenizer != nullptr) {
      text += masked_to_text(masked, place, *tokenizer);
      continue;
    }
    const MicroBatch sample = train_->micro_batch(std::array{place});
    text += samples_to_text(sample, place, tokenizer, /*colors=*/false);
  }
  return text;
}

std::string RunData::order_of_samples(std::int64_t consumed) {
  StreamHash hash;
  for (const std::int64_t place : {std::int64_t{0}, consumed - global_batch_}) {
    const std::vector<MicroBatch> one =
        batch(*train_, {.consumed_samples = std::max<std::int64_t>(place, 0),
                        .global_batch = global_batch_,
                        .micro_batch = 1,
                        .rank = 0,
                        .ranks = global_batch_});
    hash.add(std::as_bytes(std::span(one.front().tokens)));
  }
  return hash.hex();
}

}  // namespace piton
