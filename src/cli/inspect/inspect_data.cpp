#include "cli/inspect/inspect_data.h"

#include <unistd.h>

#include <algorithm>
#include <array>

#include "base/error.h"
#include "base/json.h"
#include "cli/terminal/print.h"
#include "data/corpus/corpus_card.h"
#include "data/masked/describe_masked.h"
#include "data/masked/masked_sets.h"
#include "data/samples/batch_source.h"
#include "data/samples/data_sets.h"
#include "data/samples/describe.h"
#include "model/families.h"
#include "model_files/chosen_tokenizer.h"
#include "text/tokenizer.h"
#include "train/record_files.h"
#include "train/run/run_data.h"

namespace piton::cli {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

struct Role {
  const char* name;
  std::optional<std::int32_t> id;
};

std::array<Role, 8> roles(const SpecialIds& ids) {
  return {{{"bos", ids.bos},
           {"eos", ids.eos},
           {"eod", ids.eod},
           {"pad", ids.pad},
           {"unk", ids.unk},
           {"cls", ids.cls},
           {"sep", ids.sep},
           {"mask", ids.mask}}};
}

std::unique_ptr<Tokenizer> opened_tokenizer(const TokenizerOptions& options) {
  return options.empty() ? nullptr : open_tokenizer(chosen_tokenizer(options));
}

std::int64_t sequence_of(const PretrainOptions& options) {
  if (options.loop.sequence > 0) return options.loop.sequence;
  const bool masked = masked_task(options.model.family.value_or("")).has_value();
  if (masked && options.model.max_positions) return *options.model.max_positions;
  if (masked || (options.model.model.empty() && !options.model.max_positions)) {
    throw Error(
        Fault::kUsage,
        "--seq-length: is not given; wanted tokens of one sample, or a model or recipe that says");
  }
  return options.model.resolve(std::nullopt).max_positions;
}

// Samples that the run asks of each part; `shown` of a part that it does not ask for.
SampleCounts counts_of(const LoopOptions& loop, SamplePart part, std::int64_t shown, Log& log) {
  const std::int64_t global_batch = loop.global_batch_size.value_or(loop.micro_batch_size);
  const BatchSizes batches = batch_sizes(loop, global_batch, loop.micro_batch_size);
  const std::int64_t iterations =
      loop.train_samples ? batches.updates(*loop.train_samples) : loop.train_iters;
  SampleCounts counts =
      sample_counts(iterations, loop.eval_interval, loop.eval_iters, global_batch);
  if (loop.train_samples) counts.train = *loop.train_samples;
  const bool trains = part == SamplePart::kTrain;
  if (trains ? iterations == 0 : loop.eval_iters == 0 || iterations == 0) {
    (trains ? counts.train : part == SamplePart::kValid ? counts.valid : counts.test) = shown;
    log.info(fmt::format("samples: {} is not given; the order is that of a run of {} samples",
                         iterations == 0 ? "--train-iters" : "--eval-iters", shown));
  }
  return counts;
}

// Throws Error(kUsage) if no data is named for it.
std::shared_ptr<const SampleSource> source_of(const DataSets& sets, SamplePart part, Log& log) {
  if (part == SamplePart::kTrain) {
    if (sets.train) return sets.train;
    throw Error(Fault::kUsage,
                "--data-path: no training data is named; give the prefix of a corpus (piton "
                "preprocess makes one), or --mock-data");
  }
  const bool validates = part == SamplePart::kValid;
  const char* name = validates ? "valid" : "test";
  const std::vector<NamedSource>& all = validates ? sets.valid : sets.test;
  if (all.empty() || all[0].source->size() == 0) {
    throw Error(Fault::kUsage,
                "--part {}: it has no samples; give it a share (--split) or its own data "
                "(--{}-data-path)",
                name, name);
  }
  if (all.size() > 1) {
    log.info(fmt::format("samples: of {} sets the first, {}", all.size(), all[0].name));
  }
  return all[0].source;
}

}  // namespace

std::string corpus_prefix(const std::string& path) {
  if (is_corpus(path)) return path;
  for (const std::string_view ending : {".idx", ".bin"}) {
    if (!path.ends_with(ending)) continue;
    const std::string prefix = path.substr(0, path.size() - ending.size());
    if (is_corpus(prefix)) return prefix;
  }
  return "";
}

bool is_tokenizer(const fs::path& path) {
  std::error_code ignored;
  const auto named_so = [](const fs::path& file) {
    const std::string ending = file.extension().string();
    const std::string name = file.filename().string();
    return ending == ".model" || ending == ".tiktoken" || name == "tokenizer.json" ||
           name == "vocab.json" || name == "encoder.json" || name == "vocab.txt";
  };
  if (fs::is_regular_file(path, ignored)) {
    // A file that is named explicitly may have any name ("bert-large-uncased-vocab.txt").
    return named_so(path) || path.extension() == ".txt" || path.extension() == ".json";
  }
  if (!fs::is_directory(path, ignored)) return false;
  for (const fs::directory_entry& entry : fs::directory_iterator(path, ignored)) {
    if (named_so(entry.path())) return true;
  }
  return false;
}

void print_corpus(const std::string& prefix, const TokenizerOptions& options,
                  const CorpusView& view, Log& log) {
  const std::unique_ptr<Tokenizer> tokenizer = opened_tokenizer(options);
  const CorpusDescription about = describe_corpus(prefix, tokenizer.get(), view.count, view.scan);
  if (tokenizer && about.largest_id >= tokenizer->vocabulary_size()) {
    log.warning(fmt::format(
        "{}: the largest id is {}, and the tokenizer has {}; it was made with another one", prefix,
        about.largest_id, tokenizer->vocabulary_size()));
  }
  const std::optional<CorpusCard> card = read_card(prefix);
  if (view.json) {
    Json object = read_json<Json>(to_json(about));
    if (card) {
      object["tokenizer"] = {{"name", card->tokenizer_name}, {"hash", card->tokenizer_hash}};
      object["options"] = card->options;
    }
    print(object.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n");
    return;
  }
  print(to_text(about));
  if (!card) return;
  std::string line =
      fmt::format("made by piton {} with the tokenizer {} ({} ids, hash {});", card->made_by,
                  card->tokenizer_name, card->vocabulary, card->tokenizer_hash);
  for (const auto& [name, value] : card->options) line += fmt::format(" {}={}", name, value);
  print(line + "\n");
}

void print_tokenizer(const TokenizerOptions& options, std::int64_t tensor_parallel, bool json) {
  const std::unique_ptr<Tokenizer> tokenizer = open_tokenizer(options);
  const std::int64_t size = tokenizer->vocabulary_size();
  const std::int64_t rows = padded_vocabulary_size(size, options, tensor_parallel);
  std::int64_t holes = 0;
  std::vector<std::int32_t> specials;
  for (std::int32_t id = 0; id < size; ++id) {
    if (tokenizer->piece(id).empty()) ++holes;
    if (tokenizer->is_special(id)) specials.push_back(id);
  }
  if (json) {
    Json about = {{"name", tokenizer->name()},
                  {"vocabulary_size", size},
                  {"padded_vocabulary_size", rows},
                  {"holes", holes},
                  {"content_hash", tokenizer->content_hash()},
                  {"special", Json::object()},
                  {"special_tokens", Json::array()}};
    for (const Role& role : roles(tokenizer->special())) {
      if (role.id) about["special"][role.name] = *role.id;
    }
    for (const std::int32_t id : specials)
      about["special_tokens"].push_back({{"id", id}, {"piece", tokenizer->piece(id)}});
    print(about.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n");
    return;
  }
  std::string text = fmt::format("{}: {} ids{}, {} rows in a model; hash {}\n", tokenizer->name(),
                                 size, holes > 0 ? fmt::format(" ({} of them unused)", holes) : "",
                                 rows, tokenizer->content_hash());
  for (const Role& role : roles(tokenizer->special())) {
    if (role.id)
      text += fmt::format("  {:5} {:>7}  {}\n", role.name, *role.id, tokenizer->piece(*role.id));
  }
  // Some vocabularies have hundreds of reserved tokens, which would hide the rest.
  constexpr std::size_t kShown = 32;
  text += fmt::format("{} special tokens{}\n", specials.size(), specials.empty() ? "" : ":");
  for (std::size_t i = 0; i < std::min(specials.size(), kShown); ++i) {
    text += fmt::format("  {:>7}  {}\n", specials[i], tokenizer->piece(specials[i]));
  }
  if (specials.size() > kShown)
    text += fmt::format("  and {} more; --json lists all\n", specials.size() - kShown);
  print(text);
}

void print_samples(const PretrainOptions& options, const SampleRange& range, Log& log) {
  const auto [part, first, count, json] = range;
  const LoopOptions& loop = options.loop;
  const std::unique_ptr<Tokenizer> tokenizer = opened_tokenizer(options.tokenizer);
  const std::optional<MaskedTask> task = masked_task(options.model.family.value_or(""));
  const std::int64_t model_ids = options.data.mock_data && tokenizer == nullptr && !task
                                     ? options.resolve_model(std::nullopt).vocabulary
                                     : 0;
  const SpecialIds special = tokenizer ? tokenizer->special() : SpecialIds();
  SampleSettings settings{.sequence = sequence_of(options),
                          .seed = static_cast<std::uint32_t>(loop.seed),
                          .counts = counts_of(loop, part, first + count, log),
                          .mock = mock_ids(options, model_ids, tokenizer.get()),
                          .documents = DocumentRules::from(options.data, special.eod, special.pad)};
  if (task) {
    settings.of_documents = masked_samples({.task = *task,
                                            .sequence = settings.sequence,
                                            .seed = settings.seed,
                                            .masking = options.masking,
                                            .pairs = !options.model.encoder.no_pair_head,
                                            .decoder_sequence = options.decoder.decoder_sequence},
                                           options.data, tokenizer.get(), log);
  } else {
    refuse_masking(options.masking);
    refuse_decoder_row(options.decoder);
    if (options.model.family) family_facts(*options.model.family);  // refuses unknown ones
  }
  RecordCorpora records;
  const std::vector<std::string> files = record_files_of(options);
  if (!files.empty()) {
    RecordCorpora converted =
        convert_record_files(options, files,
                             {.tokenizer = tokenizer.get(),
                              .chat_templates = chosen_tokenizer(options.tokenizer).chat_templates},
                             log);
    records.swap(converted);
  }
  const CorpusFiles names = files_by_prefix(records.prefixes);
  CorpusFilesLog named_log(names, log);
  names.naming([&] {
    const DataSets sets =
        open_data_sets(with_prefixes(options.data, records.prefixes), settings, named_log);
    const std::int64_t vocabulary =
        tokenizer ? padded_vocabulary_size(tokenizer->vocabulary_size(), options.tokenizer,
                                           options.parallel.tensor)
                  : 0;
    BatchRules rules{.order = options.data.dataloader_type, .vocabulary = vocabulary};
    if (part != SamplePart::kTrain) rules.order = DataloaderType::kSingle;  // as a run evaluates
    BatchSource source(source_of(sets, part, named_log), rules);
    const bool colors = isatty(STDOUT_FILENO) == 1;
    Sample sample;
    for (std::int64_t place = first; place < first + count; ++place) {
      if (task) {
        source.samples().sample(source.sample_at(place), sample);
        print(json ? masked_to_json(sample, place) : masked_to_text(sample, place, *tokenizer));
        continue;
      }
      const MicroBatch batch = source.micro_batch(std::array{place});
      print(json ? samples_to_json(batch, place, tokenizer.get())
                 : samples_to_text(batch, place, tokenizer.get(), colors));
    }
  });
}

}  // namespace piton::cli
