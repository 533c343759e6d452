#include "data/samples/data_sets.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <map>
#include <numeric>
#include <optional>
#include <set>
#include <string_view>

#include "base/error.h"
#include "base/trimmed.h"
#include "data/samples/blended_dataset.h"
#include "data/samples/gpt_dataset.h"
#include "data/samples/index_cache.h"
#include "data/samples/mock_corpus.h"

namespace piton {
namespace {

using Shares = std::array<std::pair<double, double>, 3>;  // [start, end) of a corpus for each set
constexpr std::array<std::string_view, 3> kSetNames = {"train", "valid", "test"};

// Corpora of more sequences are never cut within one; they are divided as in Megatron-core.
constexpr std::int64_t kFewSequences = 32;

// What one set reads: prefixes with their shares, with or without weights.
struct BlendPart {
  std::string prefix;
  double weight = 0;
  double start = 0;
  double end = 1;
  bool may_cut = false;  // within a sequence, if there are few
};
struct BlendPlan {
  std::vector<BlendPart> parts;
  bool weighted = false;
  bool blend_single = false;  // a single weighted prefix is read as a blend
};

std::optional<double> number(std::string_view text) {
  text = trimmed(text);
  double value = 0;
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (code != std::errc() || end != text.data() + text.size()) return {};
  return value;
}

std::array<double, 3> shares_of(const std::string& split) {
  std::vector<double> shares;
  std::string_view rest = split;
  while (true) {
    const auto comma = rest.find_first_of(",/");
    const auto share = number(rest.substr(0, comma));
    if (!share || !(*share >= 0) || !std::isfinite(*share) || shares.size() == 3) {
      throw Error(Fault::kUsage,
                  "--split: got \"{}\", wanted up to three shares of 0 or more, as in 969,30,1",
                  split);
    }
    shares.push_back(*share);
    if (comma == std::string_view::npos) break;
    rest.remove_prefix(comma + 1);
  }
  shares.resize(3, 0.0);
  if (shares[0] + shares[1] + shares[2] <= 0) {
    throw Error(Fault::kUsage, "--split: got \"{}\", all shares are zero; give one of them some",
                split);
  }
  const auto parts = normalized(shares);
  return {parts[0], parts[1], parts[2]};
}

Shares share_bounds(const std::string& split) {
  const auto shares = shares_of(split);
  Shares bounds;
  double start = 0;
  for (std::size_t i = 0; i < 3; ++i) {
    bounds[i] = {start, start + shares[i]};
    start += shares[i];
  }
  return bounds;
}

std::pair<std::int64_t, std::int64_t> bounds_of(double start, double end, std::int64_t sequences) {
  // nearbyint rounds halves to even, as Python's round does.
  const auto at = [&](double share) {
    return static_cast<std::int64_t>(std::nearbyint(share * static_cast<double>(sequences)));
  };
  if (end <= start) return {at(start), at(start)};
  return {std::min(at(start), sequences), std::min(at(end), sequences)};
}

// The prefix of a corpus that may be named by one of its two files.
std::string prefix_of(std::string_view text) {
  std::string prefix(trimmed(text));
  const bool is_file = prefix.ends_with(".bin") || prefix.ends_with(".idx");
  if (is_file && !std::filesystem::exists(prefix + ".idx")) prefix.resize(prefix.size() - 4);
  return prefix;
}

BlendPlan plan_of(const std::vector<std::string>& words, std::string_view flag) {
  BlendPlan plan;
  std::size_t numbers = 0;
  for (std::size_t i = 0; i < words.size(); i += 2) numbers += number(words[i]) ? 1 : 0;
  if (words.size() % 2 == 0 && numbers == words.size() / 2) {
    plan.weighted = true;
    plan.blend_single = true;
    for (std::size_t i = 0; i < words.size(); i += 2) {
      const double weight = *number(words[i]);
      if (!(weight > 0) || !std::isfinite(weight)) {
        throw Error(Fault::kUsage,
                    "--{}: weight of {}: got {}, wanted a number above 0; leave the corpus out "
                    "instead",
                    flag, words[i + 1], words[i]);
      }
      plan.parts.push_back({prefix_of(words[i + 1]), weight});
    }
    return plan;
  }
  for (const std::string& word : words) {
    // A number that is not a corpus is a weight without a prefix.
    if (number(word) && !std::filesystem::exists(word + ".idx")) {
      throw Error(Fault::kUsage,
                  "--{}: got {} words with the number {} among them, wanted prefixes alone, or "
                  "weights and prefixes in turn (0.3 a 0.7 b)",
                  flag, words.size(), word);
    }
    plan.parts.push_back({prefix_of(word), 0});
  }
  return plan;
}

// "NAME: W START:END PREFIX, W START:END PREFIX"
std::pair<std::string, BlendPlan> weighted_plan(const std::string& text, std::string_view flag) {
  const auto wrong = [&](std::string_view what) {
    return Error(Fault::kUsage,
                 "--{}: {}: got \"{}\", wanted \"NAME: WEIGHT START:END PREFIX, ...\", as in "
                 "\"TRAIN: 0.7 0:0.9 wiki, 0.3 0:1 books\"",
                 flag, what, text);
  };
  const auto colon = text.find(':');
  if (colon == std::string::npos) throw wrong("no name");
  const std::string name(trimmed(std::string_view(text).substr(0, colon)));
  if (name.empty() || number(name) || name.find(' ') != std::string::npos) throw wrong("no name");
  BlendPlan plan;
  plan.weighted = true;
  std::string_view rest = std::string_view(text).substr(colon + 1);
  while (true) {
    const auto comma = rest.find(',');
    std::string_view part = trimmed(rest.substr(0, comma));
    std::array<std::string_view, 3> fields;
    for (std::size_t i = 0; i < 3; ++i) {
      const auto space = i < 2 ? part.find_first_of(" \t") : std::string_view::npos;
      fields[i] = trimmed(part.substr(0, space));
      part = space == std::string_view::npos ? std::string_view{} : trimmed(part.substr(space));
    }
    const auto range = fields[1].find(':');
    if (fields[2].empty() || range == std::string_view::npos) throw wrong("a part is incomplete");
    const auto weight = number(fields[0]);
    const auto start = number(fields[1].substr(0, range)),
               end = number(fields[1].substr(range + 1));
    if (!weight || !(*weight > 0)) throw wrong("a weight is not a number above 0");
    if (!start || !end || !(*start >= 0) || !(*end <= 1) || !(*start < *end)) {
      throw wrong("a range is not within 0:1");
    }
    plan.parts.push_back({prefix_of(fields[2]), *weight, *start, *end});
    if (comma == std::string_view::npos) return {name, plan};
    rest.remove_prefix(comma + 1);
  }
}

// Of --train-data-path and its like.
BlendPlan whole_plan(const std::vector<std::string>& words, std::string_view flag) {
  BlendPlan plan = plan_of(words, flag);
  plan.blend_single = false;
  return plan;
}

// The share of a set in --data-path, by --split. No parts: none.
BlendPlan divided_plan(const DataOptions& options, std::size_t set) {
  BlendPlan plan = plan_of(options.data_path, "data-path");
  const auto [start, end] = share_bounds(options.split)[set];
  if (end <= start) return {};
  for (BlendPart& part : plan.parts) {
    part.start = start;
    part.end = end;
    part.may_cut = true;
  }
  return plan;
}

// An empty split. Reading a sample from it is the user's mistake.
class EmptySource final : public SampleSource {
 public:
  EmptySource(std::string name, std::int64_t sequence)
      : name_(std::move(name)), sequence_(sequence) {}
  std::int64_t size() const override { return 0; }
  std::int64_t sequence() const override { return sequence_; }
  void sample(std::int64_t, std::span<std::int32_t>) const override {
    throw Error(Fault::kData, "{} set: empty; give it a larger share (--split) or a larger corpus",
                name_);
  }

 private:
  std::string name_;
  std::int64_t sequence_;
};

class Opener {
 public:
  Opener(const DataOptions& options, std::int64_t sequence, std::uint32_t seed, Log& log)
      : options_(options), sequence_(sequence), seed_(seed), log_(log) {
    if (options.data_cache_path) cache_ = *options.data_cache_path;
  }

  std::shared_ptr<const SampleSource> open(const BlendPlan& plan, std::size_t set,
                                           const std::string& name, std::int64_t samples) {
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
      if (plan.weighted) asked = blend_share_built(samples, weights[i]);
      auto source = open_part(plan.parts[i], name, asked, exact_epochs);
      if (source->size() == 0) continue;  // warned about
      const double weight = plan.weighted ? weights[i] : static_cast<double>(source->size());
      size += plan.weighted ? blend_share(samples, weights[i]) : source->size();
      parts.push_back({plan.parts[i].prefix, std::move(source), weight});
    }
    if (parts.empty()) return std::make_shared<EmptySource>(name, sequence_);
    if (!plan.weighted) size = std::min(size, samples);
    return std::make_shared<BlendedDataset>(std::move(parts), size);
  }

  // The three sets of the mock corpus.
  DataSets mock_sets(const MockIds& ids, const std::array<std::int64_t, 3>& samples) {
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
  std::shared_ptr<const IndexedDataset> corpus(const std::string& prefix) {
    auto& corpus = corpora_[prefix];
    if (corpus == nullptr) {
      corpus = open_corpus(prefix, cache_);
      prefixes_.push_back(prefix);
      tokens_.push_back(corpus->tokens());
      fingerprints_.push_back(corpus->fingerprint());
      in_order_.push_back(corpus);
    }
    return corpus;
  }

  std::shared_ptr<const SampleSource> open_part(const BlendPart& part, const std::string& name,
                                                std::optional<std::int64_t> samples,
                                                bool exact_epochs) {
    auto corpus = this->corpus(part.prefix);
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

  // Sequences [first, end) of a corpus.
  struct SequenceRange {
    std::int64_t first = 0;
    std::int64_t end = 0;
  };

  std::shared_ptr<const SampleSource> part_of(std::shared_ptr<const TokenSequences> corpus,
                                              SequenceRange range, const std::string& name,
                                              std::optional<std::int64_t> samples,
                                              bool exact_epochs) {
    const auto [first, end] = range;
    std::int64_t tokens = 0;
    for (auto i = first; i < end && tokens <= sequence_; i += TokenSequences::kBlock) {
      const auto lengths = corpus->lengths(i, std::min(TokenSequences::kBlock, end - i));
      tokens = std::accumulate(lengths.begin(), lengths.end(), tokens);
    }
    // Validation of a small corpus may be empty or shorter than a sample, if no sample is
    // requested.
    const bool trains = name == kSetNames[0];
    if (tokens == 0 || (!trains && samples == 0 && tokens <= sequence_)) {
      const std::string what =
          fmt::format("{}: its share of the {} set rounds to nothing ({} sequences)",
                      corpus->name(), name, corpus->sequences());
      if (trains && samples.value_or(0) > 0) {
        throw Error(Fault::kData,
                    "{}; training has nothing to read: give it a larger share (--split)", what);
      }
      if (samples.value_or(1) > 0) log_.warning(what);
      return std::make_shared<EmptySource>(name, sequence_);
    }
    GptRequest request{
        .first = first, .end = end, .sequence = sequence_, .samples = samples, .seed = seed_};
    if (exact_epochs) request.epochs = options_.train_data_exact_num_epochs;
    return std::make_shared<GptDataset>(std::move(corpus), request, cache_);
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
  std::int64_t sequence_;
  std::uint32_t seed_;
  Log& log_;
  std::optional<std::filesystem::path> cache_;
  std::map<std::string, std::shared_ptr<const IndexedDataset>> corpora_;
  std::vector<std::string> fingerprints_, prefixes_;
  std::vector<std::int64_t> tokens_;
  std::vector<std::shared_ptr<const IndexedDataset>> in_order_;
  std::set<std::string> said_;  // prefixes that are cut
};

void check(const DataOptions& options) {
  const bool common = !options.data_path.empty();
  const bool apart = !options.train_data_path.empty() || !options.valid_data_path.empty() ||
                     !options.test_data_path.empty();
  const bool weighted = !options.train_weighted_split_paths.empty() ||
                        !options.valid_weighted_split_paths.empty() ||
                        !options.test_weighted_split_paths.empty();
  if (common + apart + weighted > 1) {
    throw Error(Fault::kUsage,
                "data: got more than one of --data-path, --train-data-path (and its like) and "
                "--train-weighted-split-paths (and its like); use one way to name corpora");
  }
  if (options.mock_data && common + apart + weighted > 0) {
    throw Error(Fault::kUsage,
                "--mock-data: corpora are named too; leave out --mock-data, or --data-path and its "
                "like");
  }
  if (options.train_weighted_split_paths.size() > 1) {
    throw Error(Fault::kUsage,
                "--train-weighted-split-paths: got {} texts, training reads one set; put the parts "
                "into one text, divided by commas",
                options.train_weighted_split_paths.size());
  }
  if (options.train_data_exact_num_epochs && *options.train_data_exact_num_epochs < 1) {
    throw Error(Fault::kUsage, "--train-data-exact-num-epochs: got {}, wanted 1 or more",
                *options.train_data_exact_num_epochs);
  }
}

}  // namespace

SampleCounts sample_counts(std::int64_t train_iters, std::int64_t eval_interval,
                           std::int64_t eval_iters, std::int64_t global_batch) {
  const std::int64_t evaluations = eval_interval > 0 ? train_iters / eval_interval + 1 : 1;
  return {train_iters * global_batch, evaluations * eval_iters * global_batch,
          eval_iters * global_batch};
}

std::string training_blend(const DataOptions& options) {
  BlendPlan plan;
  if (!options.data_path.empty()) plan = divided_plan(options, 0);
  if (!options.train_data_path.empty()) {
    plan = whole_plan(options.train_data_path, "train-data-path");
  }
  for (const std::string& text : options.train_weighted_split_paths) {
    plan = weighted_plan(text, "train-weighted-split-paths").second;
  }
  if (plan.parts.empty()) return "";
  std::vector<std::string> weights;
  std::vector<std::string> shares;
  if (plan.weighted && (plan.parts.size() > 1 || plan.blend_single)) {
    std::vector<double> given;
    for (const BlendPart& part : plan.parts) given.push_back(part.weight);
    for (const double weight : normalized(given)) weights.push_back(fmt::format("{:.9g}", weight));
  }
  for (const BlendPart& part : plan.parts) {
    shares.push_back(fmt::format("{:.9g}:{:.9g}", part.start, part.end));
  }
  std::string text = shares.size() == 1 ? "1 corpus" : fmt::format("{} corpora", shares.size());
  if (!weights.empty()) text += fmt::format(", weights {}", fmt::join(weights, ", "));
  const bool whole =
      std::all_of(shares.begin(), shares.end(), [](const auto& share) { return share == "0:1"; });
  if (!whole) text += fmt::format(", of each {}", fmt::join(shares, ", "));
  return text;
}

std::vector<std::pair<std::int64_t, std::int64_t>> split_bounds(const std::string& split,
                                                                std::int64_t sequences) {
  std::vector<std::pair<std::int64_t, std::int64_t>> bounds;
  for (const auto& [start, end] : share_bounds(split))
    bounds.push_back(bounds_of(start, end, sequences));
  return bounds;
}

DataSets open_data_sets(const DataOptions& options, const SampleSettings& settings, Log& log) {
  check(options);
  Opener opener(options, settings.sequence, settings.seed, log);
  const SampleCounts& counts = settings.counts;
  DataSets sets;
  const std::array<std::int64_t, 3> wanted = {counts.train, counts.valid, counts.test};
  if (options.mock_data) return opener.mock_sets(settings.mock, wanted);
  if (!options.data_path.empty()) {
    for (std::size_t set = 0; set < 3; ++set) {
      const BlendPlan plan = divided_plan(options, set);
      if (plan.parts.empty()) continue;
      const std::string name(kSetNames[set]);
      Opener::keep(sets, set, name, opener.open(plan, set, name, wanted[set]));
    }
  }
  const std::array<const std::vector<std::string>*, 3> apart = {
      &options.train_data_path, &options.valid_data_path, &options.test_data_path};
  const std::array<const std::vector<std::string>*, 3> weighted = {
      &options.train_weighted_split_paths, &options.valid_weighted_split_paths,
      &options.test_weighted_split_paths};
  for (std::size_t set = 0; set < 3; ++set) {
    const std::string name(kSetNames[set]);
    if (!apart[set]->empty()) {
      const BlendPlan plan = whole_plan(*apart[set], name + "-data-path");
      Opener::keep(sets, set, name, opener.open(plan, set, name, wanted[set]));
    }
    for (const std::string& text : *weighted[set]) {
      auto [title, plan] = weighted_plan(text, name + "-weighted-split-paths");
      auto source = opener.open(plan, set, name, wanted[set]);
      Opener::keep(sets, set, std::move(title), std::move(source));
    }
  }
  sets.fingerprints = opener.fingerprints();
  sets.prefixes = opener.prefixes();
  sets.tokens = opener.tokens();
  sets.corpora = opener.corpora();
  return sets;
}

}  // namespace piton
