#include "data/samples/data_sets.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <numeric>
#include <optional>
#include <set>
#include <span>
#include <string_view>

#include "base/error.h"
#include "data/samples/blend_plan.h"
#include "data/samples/blended_dataset.h"
#include "data/samples/describe.h"
#include "data/samples/gpt_dataset.h"
#include "data/samples/index_cache.h"
#include "data/samples/instruction_dataset.h"
#include "data/samples/mock_corpus.h"
#include "data/samples/packed_samples.h"
#include "data/samples/preference_dataset.h"
#include "data/samples/unread_samples.h"

namespace piton {
namespace {

constexpr std::array<std::string_view, 3> kSetNames = {"train", "valid", "test"};

// Corpora of more sequences are never cut within one; they are divided as in Megatron-core.
constexpr std::int64_t kFewSequences = 32;

class Opener {
 public:
  enum class Purpose : std::uint8_t { kRead, kCount };
  Opener(const DataOptions& options, const SampleSettings& settings, Log& log,
         Purpose purpose = Purpose::kRead)
      : options_(options),
        settings_(settings),
        sequence_(settings.sequence),
        log_(log),
        counts_(purpose == Purpose::kCount) {
    if (options.data_cache_path) cache_ = *options.data_cache_path;
  }

  std::shared_ptr<const SampleSource> open(const BlendPlan& plan, std::size_t set,
                                           const std::string& name,
                                           std::optional<std::int64_t> samples) {
    const bool exact_epochs = set == 0 && options_.train_data_exact_num_epochs.has_value();
    if (plan.parts.size() == 1 && !plan.blend_single) {
      return open_part(plan.parts[0], name, samples, exact_epochs);
    }
    std::vector<double> weights;
    for (const BlendPart& part : plan.parts) weights.push_back(part.weight);
    if (plan.weighted) weights = normalized(weights);
    std::vector<BlendedDataset::Part> parts;
    std::int64_t size = 0;
    for (std::size_t i = 0; i < plan.parts.size(); ++i) {
      std::optional<std::int64_t> asked;
      if (plan.weighted) asked = blend_share_built(*samples, weights[i]);
      auto source = open_part(plan.parts[i], name, asked, exact_epochs);
      if (source->size() == 0) continue;  // warned about
      const double weight = plan.weighted ? weights[i] : static_cast<double>(source->size());
      size += plan.weighted ? blend_share(*samples, weights[i]) : source->size();
      parts.push_back({plan.parts[i].prefix, std::move(source), weight});
    }
    if (parts.empty()) return std::make_shared<EmptySource>(name, sequence_);
    if (!plan.weighted) size = std::min(size, samples.value_or(size));
    return std::make_shared<BlendedDataset>(std::move(parts), size);
  }

  // The three sets of the mock corpus.
  DataSets mock_sets(const MockIds& ids,
                     const std::array<std::optional<std::int64_t>, 3>& samples) {
    const auto corpus = std::make_shared<const MockCorpus>(ids.vocabulary, ids.end_of_document);
    DataSets sets;
    sets.fingerprints = {corpus->fingerprint()};
    const bool divided = options_.split != DataOptions().split;
    const Shares shares = share_bounds(divided ? options_.split : "1,1,1");
    for (std::size_t set = 0; set < 3; ++set) {
      const auto [start, end] = shares[set];
      if (end <= start) continue;
      const std::string name(kSetNames[set]);
      const auto [first, last] = bounds_of(start, end, corpus->sequences());
      keep(sets, set, name, part_of(corpus, {first, last}, name, samples[set], false));
    }
    return sets;
  }

  static void keep(DataSets& sets, std::size_t set, std::string name,
                   std::shared_ptr<const SampleSource> source) {
    if (set == 0) sets.train = std::move(source);
    if (set == 1) sets.valid.push_back({std::move(name), std::move(source)});
    if (set == 2) sets.test.push_back({std::move(name), std::move(source)});
  }

  std::vector<std::string> fingerprints() const { return fingerprints_; }
  std::vector<std::string> prefixes() const { return prefixes_; }
  std::vector<std::int64_t> tokens() const { return tokens_; }
  std::vector<std::shared_ptr<const IndexedDataset>> corpora() const { return in_order_; }

 private:
  // Sequences [first, end) of a corpus.
  struct SequenceRange {
    std::int64_t first = 0;
    std::int64_t end = 0;
  };

  // `has_card`: of ids; masks and labels have none.
  std::shared_ptr<const IndexedDataset> corpus(const std::string& prefix, bool has_card = true) {
    auto& corpus = corpora_[prefix];
    if (corpus == nullptr) {
      corpus = open_corpus(prefix, cache_);
      if (has_card) {
        prefixes_.push_back(prefix);
        tokens_.push_back(corpus->tokens());
      }
      fingerprints_.push_back(corpus->fingerprint());
      in_order_.push_back(corpus);
    }
    return corpus;
  }

  std::shared_ptr<const SampleSource> open_part(const BlendPart& part, const std::string& name,
                                                std::optional<std::int64_t> samples,
                                                bool exact_epochs) {
    if (settings_.of_records.open) return open_records(part, name, samples, exact_epochs);
    if (options_.is_pairwise_dataset)
      return open_preference_part(part, name, samples, exact_epochs);
    if (options_.is_instruction_dataset)
      return open_instruction_part(part, name, samples, exact_epochs);
    auto corpus = this->corpus(part.prefix);
    if (settings_.of_documents) {
      const auto [first, end] = bounds_of(part.start, part.end, corpus->documents());
      if (first == end || samples == 0) return empty_part(*corpus, name, samples);
      const auto source = settings_.of_documents({corpus, first, end, samples, name});
      if (!counts_) return source;
      const std::int64_t epochs = options_.train_data_exact_num_epochs.value_or(1);
      return std::make_shared<CountedSource>(epochs * source->size(), sequence_);
    }
    auto [first, end] = bounds_of(part.start, part.end, corpus->sequences());
    if (part.may_cut && too_few(*corpus)) {
      const auto [from, to] = bounds_of(part.start, part.end, corpus->tokens());
      if (said_.insert(part.prefix).second) {
        log_.info(fmt::format(
            "{}: {} to divide by --split {}: each set gets a stretch of its tokens, the first {} "
            "to {}",
            part.prefix,
            corpus->sequences() == 1 ? "one document"
                                     : fmt::format("{} documents", corpus->sequences()),
            options_.split, to - from, name));
      }
      auto stretch = std::make_shared<IndexedDataset>(IndexedDataset::open(part.prefix));
      stretch->narrow(from, to);
      corpus = std::move(stretch);
      first = 0;
      end = corpus->sequences();
    }
    return part_of(std::move(corpus), {first, end}, name, samples, exact_epochs);
  }

  std::vector<std::shared_ptr<const IndexedDataset>> columns_of(
      const std::vector<std::string>& names) {
    std::vector<std::shared_ptr<const IndexedDataset>> columns;
    for (const std::string& one : names) columns.push_back(corpus(one, columns.empty()));
    return columns;
  }

  std::int32_t pad_id() const {
    return settings_.documents.pad.value_or(settings_.documents.eod.value_or(0));
  }

  std::shared_ptr<const SampleSource> open_records(const BlendPart& part, const std::string& name,
                                                   std::optional<std::int64_t> samples,
                                                   bool exact_epochs) {
    const auto columns = columns_of(settings_.of_records.prefixes(part.prefix));
    const auto [first, end] = bounds_of(part.start, part.end, columns[0]->sequences());
    if (first == end) return empty_part(*columns[0], name, samples);
    return settings_.of_records.open({.prefix = part.prefix,
                                      .columns = columns,
                                      .order = order_of({first, end}, samples, exact_epochs),
                                      .pad = pad_id(),
                                      .set = name});
  }

  std::shared_ptr<const InstructionFiles> instruction_files(const std::string& prefix) {
    auto& files = instruction_files_[prefix];
    if (files != nullptr) return files;
    const auto names = InstructionFiles::prefixes(prefix);
    for (const std::string& name : names) {
      if (is_corpus(name)) continue;
      throw Error(Fault::kData,
                  "{}.idx: does not exist; --is-instruction-dataset reads {}_packed_input_ids_"
                  "document, _packed_attention_mask_document and _packed_labels_document (.bin and "
                  ".idx); give their common prefix",
                  name, prefix);
    }
    files = std::make_shared<InstructionFiles>(
        prefix, std::array{corpus(names[0]), corpus(names[1], false), corpus(names[2], false)});
    return files;
  }

  std::shared_ptr<const SampleSource> open_instruction_part(const BlendPart& part,
                                                            const std::string& name,
                                                            std::optional<std::int64_t> samples,
                                                            bool exact_epochs) {
    const auto files = instruction_files(part.prefix);
    const auto [first, end] = bounds_of(part.start, part.end, files->ids->sequences());
    if (first == end) return empty_part(*files->ids, name, samples);
    const DocumentRules& documents = settings_.documents;
    const std::int32_t pad = pad_id();
    const bool restarts = options_.reset_position_ids && !options_.neat_pack;
    // Rows that are packed here, and those of neat_pack, are divided into texts anyway.
    const bool divides = options_.reset_attention_mask && !options_.neat_pack && !options_.pack;
    if ((restarts || divides) && !documents.eod) {
      throw Error(Fault::kUsage,
                  "--reset-{}: needs an end-of-document id, and the tokenizer has none; "
                  "leave it out or use another tokenizer",
                  restarts ? "position-ids" : "attention-mask");
    }
    const InstructionRules rules{.sequence = sequence_,
                                 .pad = pad,
                                 .neat_pack = options_.neat_pack,
                                 .eod = restarts ? documents.eod : std::nullopt,
                                 .divides = divides ? documents.eod : std::nullopt};
    InstructionOrder order = order_of({first, end}, samples, exact_epochs);
    order.left_out = cut_without_label(*files, first, end, sequence_);
    report_left_out(*files, {first, end}, name, order.left_out);
    std::shared_ptr<const SampleSource> source =
        std::make_shared<InstructionDataset>(files, rules, order);
    std::string form = fmt::format(" padded to {} tokens", sequence_);
    if (options_.variable_seq_lengths) form.clear();
    if (options_.pack) {
      const auto packed = std::make_shared<PackedSamples>(std::move(source),
                                                          pack_request(samples, exact_epochs, pad));
      form = fmt::format(" packed into {} rows of {} tokens an epoch",
                         packed->size() / packed->epochs(), sequence_);
      source = packed;
    }
    if (samples.value_or(1) > 0) report(*files, {first, end}, name, *source, form);
    return source;
  }

  std::shared_ptr<const SampleSource> open_preference_part(const BlendPart& part,
                                                           const std::string& name,
                                                           std::optional<std::int64_t> samples,
                                                           bool exact_epochs) {
    auto& files = preference_files_[part.prefix];
    if (files == nullptr) {
      files = std::make_shared<PreferenceFiles>(part.prefix,
                                                columns_of(PreferenceFiles::prefixes(part.prefix)));
    }
    const auto [first, end] = bounds_of(part.start, part.end, files->samples());
    if (first == end) return empty_part(*files->columns[0], name, samples);
    const std::int32_t pad = pad_id();
    InstructionOrder order = order_of({first, end}, samples, exact_epochs);
    const auto answers = std::make_shared<PreferenceDataset>(
        files, PreferenceRules{sequence_, pad, settings_.for_rewards}, order);
    report_cut(*answers, part.prefix, name);
    std::shared_ptr<const SampleSource> source = answers;
    if (options_.pack) {
      source = std::make_shared<PackedSamples>(std::move(source),
                                               pack_request(samples, exact_epochs, pad));
    }
    if (samples.value_or(1) > 0) {
      log_.info(fmt::format("{}: {} set: {} {}{}", part.prefix, name, end - first,
                            files->pairs() ? "pairs" : "judged answers",
                            options_.pack ? fmt::format(" packed into {} rows of {} tokens",
                                                        source->size(), sequence_)
                                          : ""));
    }
    return source;
  }

  void report_cut(const PreferenceDataset& answers, const std::string& prefix,
                  const std::string& name) {
    if (answers.cut_samples() == 0 || !said_.insert(prefix + name).second) return;
    log_.warning(
        fmt::format("{}: {} set: {} samples are longer than --seq-length {} and are cut, the first "
                    "is sample {}",
                    prefix, name, answers.cut_samples(), sequence_, *answers.first_cut()));
  }

  // Of samples [first, end): under --pack one epoch, unshuffled, which PackedSamples packs.
  InstructionOrder order_of(SequenceRange range, std::optional<std::int64_t> samples,
                            bool exact_epochs) const {
    InstructionOrder order{.first = range.first, .end = range.end, .seed = settings_.seed};
    order.shuffle = !options_.no_shuffle && !options_.pack;
    if (options_.pack) return order;
    order.samples = samples;
    if (exact_epochs) order.epochs = options_.train_data_exact_num_epochs;
    order.full_shuffle = options_.full_shuffle_instruction_dataset;
    if (options_.padded_samples) order.multiple = settings_.global_batch;
    return order;
  }

  PackRequest pack_request(std::optional<std::int64_t> samples, bool exact_epochs,
                           std::int32_t pad) const {
    PackRequest request{.windows = samples,
                        .seed = settings_.seed,
                        .shuffle = !options_.no_shuffle,
                        .full_shuffle = options_.full_shuffle_instruction_dataset,
                        .pad = pad};
    if (exact_epochs) request.epochs = options_.train_data_exact_num_epochs;
    return request;
  }

  // Names the samples of the set that are cut before their first label. Throws Error(kUsage) if no
  // sample is left.
  void report_left_out(const InstructionFiles& files, SequenceRange range, const std::string& name,
                       const std::vector<std::int32_t>& left_out) {
    if (left_out.empty()) return;
    const auto count = static_cast<std::int64_t>(left_out.size());
    if (count == range.end - range.first) {
      throw Error(Fault::kUsage,
                  "{}: {} set: none of the {} samples has a label within --seq-length {}; train "
                  "with a larger one",
                  files.prefix, name, count, sequence_);
    }
    if (!said_.insert(files.prefix + name).second) return;
    log_.warning(fmt::format(
        "{}: {} set: {} of {} samples have no label within --seq-length {} and are left out, the "
        "first is sample {}",
        files.prefix, name, count, range.end - range.first, sequence_, left_out.front()));
  }

  // How many samples of the set are cut, and how much of its rows is padding. `form`: of the rows.
  void report(const InstructionFiles& files, SequenceRange range, const std::string& name,
              const SampleSource& source, std::string_view form) {
    const std::int64_t cut = longer_samples(files, range.first, range.end, sequence_);
    std::string line =
        fmt::format("{}: {} set: {} samples{}", files.prefix, name, range.end - range.first, form);
    if (cut > 0) line += fmt::format(", {} of them longer than {} tokens and cut", cut, sequence_);
    if (!options_.variable_seq_lengths || options_.pack) {
      std::int64_t tokens = 0;
      for (std::int64_t i = 0; i < source.size(); ++i) tokens += source.longest(i);
      const auto whole = static_cast<double>(source.size() * sequence_);
      line +=
          fmt::format(", padding wasted {:.1f} %", 100 * (1 - static_cast<double>(tokens) / whole));
    }
    log_.info(line);
  }

  std::shared_ptr<const SampleSource> part_of(std::shared_ptr<const TokenSequences> corpus,
                                              SequenceRange range, const std::string& name,
                                              std::optional<std::int64_t> samples,
                                              bool exact_epochs) {
    const auto [first, end] = range;
    std::int64_t tokens = 0;
    for (auto i = first; i < end && (counts_ || tokens <= sequence_); i += TokenSequences::kBlock) {
      const auto lengths = corpus->lengths(i, std::min(TokenSequences::kBlock, end - i));
      tokens = std::accumulate(lengths.begin(), lengths.end(), tokens);
    }
    // Validation of a small corpus may be empty or shorter than a sample, if no sample is
    // requested.
    const bool trains = name == kSetNames[0];
    if (tokens == 0 || (!trains && samples == 0 && tokens <= sequence_)) {
      return empty_part(*corpus, name, samples);
    }
    if (counts_) {
      const std::int64_t ids = options_.train_data_exact_num_epochs.value_or(1) * tokens;
      return std::make_shared<CountedSource>(std::max<std::int64_t>(1, (ids - 1) / sequence_),
                                             sequence_);
    }
    GptRequest request{.first = first,
                       .end = end,
                       .sequence = sequence_,
                       .samples = samples,
                       .seed = settings_.seed};
    if (exact_epochs) request.epochs = options_.train_data_exact_num_epochs;
    return std::make_shared<PretrainingSamples>(
        std::make_shared<GptDataset>(std::move(corpus), request, cache_), settings_.documents);
  }

  std::shared_ptr<const SampleSource> empty_part(const TokenSequences& corpus,
                                                 const std::string& name,
                                                 std::optional<std::int64_t> samples) {
    const std::string what =
        fmt::format("{}: its share of the {} set rounds to nothing ({} sequences)", corpus.name(),
                    name, corpus.sequences());
    if (name == kSetNames[0] && samples.value_or(0) > 0) {
      throw Error(Fault::kData,
                  "{}; training has nothing to read: give it a larger share (--split)", what);
    }
    if (samples.value_or(1) > 0) log_.warning(what);
    return std::make_shared<EmptySource>(name, sequence_);
  }

  // Whether --split gives training or validation a share but no sequence.
  bool too_few(const IndexedDataset& corpus) const {
    if (corpus.sequences() > kFewSequences) return false;
    const Shares shares = share_bounds(options_.split);
    return std::any_of(shares.begin(), shares.begin() + 2, [&](const auto& share) {
      const auto [first, end] = bounds_of(share.first, share.second, corpus.sequences());
      return share.second > share.first && first == end;
    });
  }

  const DataOptions& options_;
  const SampleSettings& settings_;
  std::int64_t sequence_;
  Log& log_;
  bool counts_;
  std::optional<std::filesystem::path> cache_;
  std::map<std::string, std::shared_ptr<const IndexedDataset>> corpora_;
  std::map<std::string, std::shared_ptr<const InstructionFiles>> instruction_files_;
  std::map<std::string, std::shared_ptr<const PreferenceFiles>> preference_files_;
  std::vector<std::string> fingerprints_, prefixes_;
  std::vector<std::int64_t> tokens_;
  std::vector<std::shared_ptr<const IndexedDataset>> in_order_;
  std::set<std::string> said_;  // prefixes that are cut
};

// Of a set that is read once, whole: weights say nothing.
BlendPlan read_of(BlendPlan plan, const std::optional<std::int64_t>& wanted) {
  if (!wanted) plan.weighted = plan.blend_single = false;
  return plan;
}

}  // namespace

SampleCounts sample_counts(std::int64_t train_iters, std::int64_t eval_interval,
                           std::int64_t eval_iters, std::int64_t global_batch) {
  const std::int64_t evaluations = eval_interval > 0 ? train_iters / eval_interval + 1 : 1;
  return {train_iters * global_batch, evaluations * eval_iters * global_batch,
          eval_iters * global_batch};
}

DataSets open_data_sets(const DataOptions& options, const SampleSettings& settings, Log& log) {
  check_data_options(options);
  Opener opener(options, settings, log);
  const SampleCounts& counts = settings.counts;
  DataSets sets;
  std::array<std::optional<std::int64_t>, 3> wanted = {counts.train, counts.valid, counts.test};
  if (settings.whole_validation) {
    wanted[1].reset();
    wanted[2].reset();
  }
  if (options.mock_data) return opener.mock_sets(settings.mock, wanted);
  for (std::size_t set = 0; set < 3; ++set) {
    const std::string name(kSetNames[set]);
    for (auto& [title, plan] : plans_of_sets(options, set, name)) {
      auto source = opener.open(read_of(std::move(plan), wanted[set]), set, name, wanted[set]);
      Opener::keep(sets, set, std::move(title), std::move(source));
    }
  }
  sets.fingerprints = opener.fingerprints();
  sets.prefixes = opener.prefixes();
  sets.tokens = opener.tokens();
  sets.corpora = opener.corpora();
  return sets;
}

// What rounding makes a little more than a whole number is no further sample.
std::int64_t samples_in(double samples, double epochs) {
  return static_cast<std::int64_t>(std::ceil(samples * epochs * (1 - 1e-12)));
}

TrainingEpochs training_epochs(const DataOptions& options, const SampleSettings& settings,
                               double epochs) {
  check_data_options(options);
  const BlendPlan plan = plan_of_epochs(options);
  if (plan.parts.empty()) return {};  // open_data_sets() says what is wrong
  // All epochs of records have as many samples; rows of running text reach into the next epoch.
  const bool running_text = !options.is_instruction_dataset;
  const auto whole = static_cast<std::int64_t>(std::ceil(epochs));
  const std::int64_t counted_epochs = running_text ? whole : 1;
  DataOptions counted = options;
  counted.train_data_exact_num_epochs = counted_epochs;
  SilentLog silent;
  Opener opener(counted, settings, silent, Opener::Purpose::kCount);
  const auto samples =
      static_cast<double>(opener.open(plan, 0, std::string(kSetNames[0]), std::nullopt)->size());
  const bool several = plan.parts.size() > 1;
  TrainingEpochs found;
  found.samples = samples_in(samples, epochs / static_cast<double>(counted_epochs));
  found.can_continue = !options.full_shuffle_instruction_dataset && !(several && running_text);
  if (several) found.exact_epochs = found.can_continue ? whole + 1 : whole;
  return found;
}

}  // namespace piton
