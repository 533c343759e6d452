#include "data/preprocess/preprocess.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <utility>

#include "base/error.h"
#include "base/files/files.h"
#include "base/hash.h"
#include "base/seconds.h"
#include "data/corpus/indexed_dataset.h"
#include "data/preprocess/corpus_writer.h"
#include "data/preprocess/document_encoder.h"
#include "data/preprocess/input_marks.h"
#include "data/preprocess/instruct_plan.h"
#include "data/preprocess/ordered_pipeline.h"
#include "data/preprocess/output_prefix.h"
#include "data/preprocess/preprocess_journal.h"
#include "data/preprocess/sample_encoder.h"
#include "data/preprocess/second_pass.h"
#include "data/records/input_files.h"
#include "data/sentences/punkt.h"
#include "data/sentences/punkt_trainer.h"

namespace piton {
namespace {

// Limit between reader and writer. 32 MB of raw text become at most 128 MB of int32 ids (one id per
// byte at worst), so that the total stays far below 512 MB for any number of workers.
constexpr std::int64_t kInFlightBytes = 32 << 20;

using Clock = std::chrono::steady_clock;

void check(const PreprocessOptions& options, const Tokenizer& tokenizer) {
  if (options.output_prefix.empty()) {
    throw Error(Fault::kUsage,
                "no --output-prefix; the corpora are written to PREFIX_KEY_document.bin and "
                ".idx");
  }
  check_record_options(options);
  if (options.log_interval < 0) {
    throw Error(Fault::kUsage, "--log-interval: got {}, wanted 0 or more", options.log_interval);
  }
  if (options.workers < 1 || options.workers > 1024) {
    throw Error(Fault::kUsage, "--workers: got {}, wanted 1 to 1024", options.workers);
  }
  if (options.partitions < 1 ||
      (options.partition_index &&
       (*options.partition_index < 0 || *options.partition_index >= options.partitions))) {
    throw Error(Fault::kUsage,
                "--partition-index {} of --partitions {}; wanted an index from 0 and below "
                "the number of partitions",
                options.partition_index.value_or(0), options.partitions);
  }
  if (options.append_eod && !tokenizer.special().eod) {
    throw Error(Fault::kUsage,
                "--append-eod: the tokenizer ({}) has no end-of-document token; leave the flag "
                "out or use another tokenizer",
                tokenizer.name());
  }
  if (options.keep_newlines && !options.split_sentences) {
    throw Error(Fault::kUsage,
                "--keep-newlines says how sentences are cut; it needs --split-sentences");
  }
  check_instruct_options(options);
}

std::vector<InputFile> files_of_partition(const PreprocessOptions& options, Log& log) {
  const std::vector<InputFile> files = files_of(options, log);
  if (!options.partition_index) return files;
  const auto count = static_cast<std::int64_t>(files.size());
  const auto edge = [&](std::int64_t part) { return count * part / options.partitions; };
  if (count < options.partitions) {
    throw Error(Fault::kUsage,
                "--partitions {}: a partition has at least one whole file, and there are {}",
                options.partitions, count);
  }
  return {files.begin() + edge(*options.partition_index),
          files.begin() + edge(*options.partition_index + 1)};
}

// What one pass over the input needs.
struct Run {
  const PreprocessOptions& options;
  const Tokenizer& tokenizer;
  const std::vector<InputFile>& files;
  const std::optional<InstructPlan>& plan;
  std::vector<std::size_t> set_of_file;
  Log& log;
  Progress& progress;
  CheckpointRule rule;
};

int workers_of(const PreprocessOptions& options) {
  return std::max(options.workers, options.n_subs);
}

// Hash of everything that determines the output, except the inputs. Workers and the treatment of
// bad records do not: a run may resume with more workers, or with --on-error skip.
std::string work_of(const Run& run, const std::string& splitter) {
  const PreprocessOptions& options = run.options;
  const Tokenizer& tokenizer = run.tokenizer;
  std::string text = fmt::format(
      "{}|{}|{}|{}|{}|{}|{}|{}|{}|{}|{}|", tokenizer.content_hash(), tokenizer.vocabulary_size(),
      options.input_format, static_cast<int>(options.sample_by), options.map_keys,
      options.append_eod, options.add_special_tokens, options.parse_special_tokens,
      options.remove_duplicates, options.max_record_bytes, splitter);
  for (const std::string& key : options.json_keys) text += key + "|";
  if (run.plan) text += run.plan->work;
  text += fmt::format("|{}", options.instruct.max_samples.value_or(-1));
  for (const std::size_t set : run.set_of_file) text += fmt::format("|{}", set);
  StreamHash hash;
  hash.add(std::as_bytes(std::span(text)));
  return hash.hex();
}

// The journal to resume from, if any: in the middle of a file, at the start of a file that has
// changed since, or after all files were read.
std::optional<PreprocessJournal> going_on(const PreprocessOptions& options,
                                          const std::optional<PreprocessJournal>& stored,
                                          const std::string& work, const InputMarks& input) {
  if (!stored || stored->work != work || input.at.empty()) return {};
  PreprocessJournal journal = *stored;
  const std::size_t file = journal.place.file;
  if (file >= input.before.size() || input.before[file] != journal.before) return {};
  journal.complete = journal.complete && journal.all == input.before.back();
  const bool same = file < input.at.size() && input.at[file] == journal.at;
  if (!same) {
    PreprocessProgress& progress = journal;
    progress = journal.file_start;
    journal.at = file < input.at.size() ? input.at[file] : "";
  }
  if (journal.complete) {
    const std::vector<std::string> prefixes = corpus_prefixes(options);
    for (std::size_t i = 0; i < std::min(prefixes.size(), journal.positions.size()); ++i) {
      restore_partial_files(prefixes[i], journal.positions[i]);
    }
  }
  if (journal.documents == 0 || !can_resume(options, journal, journal.complete)) return {};
  return journal;
}

BlockReader::Rules reader_rules(const PreprocessOptions& options,
                                const std::vector<std::string>& names) {
  return {.sample_by = options.sample_by,
          .columns = names,
          .max_record_bytes = options.max_record_bytes};
}

// Punkt's parameters from the given folder, or learned from the start of the input.
PunktParameters punkt_parameters(const PreprocessOptions& options,
                                 const std::vector<InputFile>& files,
                                 const std::vector<std::string>& names, Log& log) {
  if (!options.punkt_parameters.empty()) return PunktParameters::read(options.punkt_parameters);
  // Statistics of abbreviations settle after some ten million words.
  constexpr std::int64_t kLearnBytes = 64 << 20;
  if (std::any_of(files.begin(), files.end(),
                  [](const InputFile& file) { return file.path == "-"; })) {
    throw Error(Fault::kUsage,
                "--split-sentences learns from the input, and standard input cannot be read "
                "twice; give --punkt-parameters");
  }
  PunktTrainer trainer;
  std::int64_t learned = 0;
  BlockReader reader(files, reader_rules(options, names), {});
  ParsedRecord record;
  std::string reason;
  while (learned < kLearnBytes) {
    auto block = reader.next();
    if (!block) break;
    const auto parser = make_record_parser(*block->file, names, options.sample_by);
    for (std::size_t i = 0; i < records_of(*block, names.size()); ++i) {
      if (parser->parse(*block, i, record, reason) != Parsed::kRecord) continue;
      for (const auto& texts : record.texts) {
        for (const std::string_view text : texts) {
          trainer.train(text);
          learned += static_cast<std::int64_t>(text.size());
        }
      }
    }
  }
  PunktParameters parameters = trainer.finish();
  log.info(
      fmt::format("sentences: Punkt learned {} abbreviations, {} collocations and {} sentence "
                  "starters from {:.1f} MB",
                  parameters.abbreviations.size(), parameters.collocations.size(),
                  parameters.sentence_starters.size(), static_cast<double>(learned) / 1e6));
  return parameters;
}

// The journal that this run begins with: that of an earlier run of the same work, or an empty one
// after the output was cleared.
PreprocessJournal first_journal(const PreprocessOptions& options, OutputPrefix& output,
                                const std::optional<PreprocessJournal>& going,
                                const std::vector<InputFile>& files, Log& log) {
  if (!going || !going->complete) {
    output.refuse_existing(corpus_prefixes(options), options.overwrite);
  }
  if (going) {
    const BlockReader::Place& place = going->place;
    log.info(fmt::format("preprocess: continuing after {} documents{}", going->documents,
                         place.file < files.size()
                             ? fmt::format(", at byte {} of {}", place.byte, files[place.file].path)
                             : ""));
    return *going;
  }
  if (output.journal() && output.journal()->documents > 0) {
    log.warning(
        fmt::format("{}: of another run (input, tokenizer or options changed); starting afresh",
                    PreprocessJournal::path(options.output_prefix)));
  }
  PreprocessJournal journal;
  journal.corpora = corpus_suffixes(options);
  journal.has_table = options.remove_duplicates;
  output.start_afresh(journal.files(options.output_prefix));
  return journal;
}

// Reports progress in the log and on the display.
struct RunReports {
  std::int64_t log_interval = 0;  // documents between two lines; 0: none
  std::int64_t bytes_before = 0;  // of text, when the run began
  std::int64_t logged = 0;        // documents at the last look
  Clock::time_point start;
  Log& log;
  ThrottledProgress progress;  // bytes of the input
  std::int64_t bytes = 0;      // at the last look
  std::function<std::string()> note = {};

  // After `consumed` bytes of input.
  void look(const PreprocessJournal& journal, std::int64_t consumed) {
    const double seconds = seconds_since(start);
    const double speed = static_cast<double>(journal.text_bytes - bytes_before) / 1e6 / seconds;
    if (log_interval > 0 && journal.documents / log_interval > logged / log_interval) {
      log.info(fmt::format("preprocess: {} documents, {:.1f} MB/s", journal.documents, speed));
    }
    logged = journal.documents;
    bytes = consumed;
    note = [speed, documents = journal.documents] {
      return fmt::format("{:.1f} MB/s, {} documents", speed, documents);
    };
    progress.at(consumed, note);
  }
  // The last line stays on the screen, or in the log.
  void finish() {
    if (note) progress.show(bytes, note());
  }
};

using BlockPipeline = OrderedPipeline<RecordBlock, EncodedBlock>;

// Reads, encodes and writes all that the reader gives, with one worker for each encoder.
void run_pipeline(BlockReader& reader, std::vector<std::unique_ptr<BlockEncoder>>& encoders,
                  CorpusWriter& writer, RunReports& reports) {
  Spares<EncodedBlock> spares;
  std::atomic<bool> full = writer.is_full();
  BlockPipeline pipeline;
  pipeline.run(
      static_cast<int>(encoders.size()), kInFlightBytes,
      [&]() -> std::optional<BlockPipeline::Made> {
        if (full) return {};
        auto block = reader.next();
        if (!block) return {};
        const auto weight = static_cast<std::int64_t>(block->bytes.size());
        return {{*std::move(block), weight}};
      },
      [&](int worker, RecordBlock block) {
        EncodedBlock encoded = spares.take();
        encoders[static_cast<std::size_t>(worker)]->encode(block, encoded);
        reader.recycle(std::move(block));
        return encoded;
      },
      [&](EncodedBlock block) {
        const std::int64_t consumed = block.consumed_bytes;
        writer.add(block);
        full = writer.is_full();
        spares.give(std::move(block));
        reports.look(writer.journal(), consumed);
      });
  writer.finish();
}

PreprocessReport report_of(const PreprocessJournal& journal, std::vector<std::string> prefixes) {
  PreprocessReport report;
  report.prefixes = std::move(prefixes);
  for (const std::string& prefix : report.prefixes) {
    const auto corpus = IndexedDataset::open(prefix, IndexedDataset::Check::kHeader);
    report.tokens.push_back(corpus.tokens());
    report.samples = corpus.sequences();
  }
  report.documents = journal.documents;
  report.duplicates = journal.duplicates;
  report.bad = journal.bad;
  report.text_bytes = journal.text_bytes;
  report.too_long = journal.too_long;
  report.unteaching = journal.unteaching;
  report.taught_tokens = journal.taught_tokens;
  return report;
}

std::vector<std::unique_ptr<BlockEncoder>> make_encoders(const Run& run, IdType type,
                                                         const SentenceSplitter* splitter) {
  const PreprocessOptions& options = run.options;
  std::vector<std::unique_ptr<BlockEncoder>> encoders;
  EncodeRules rules{.keys = options.json_keys,
                    .sample_by = options.sample_by,
                    .encode = {options.add_special_tokens, options.parse_special_tokens},
                    .append_eod = options.append_eod,
                    .type = type,
                    .hash_documents = options.remove_duplicates,
                    .splitter = splitter};
  if (!run.plan) rules.keys = names_in_files(options);
  if (run.plan) {
    rules.text_of = [&plan = *run.plan](const nlohmann::ordered_json& record) {
      return read_text(*plan.handler, plan.fields, record);
    };
  }
  for (int i = 0; i < workers_of(options); ++i) {
    if (!run.plan || run.plan->prompt == nullptr) {
      encoders.push_back(std::make_unique<DocumentEncoder>(run.tokenizer, rules));
      continue;
    }
    encoders.push_back(
        std::make_unique<SampleEncoder>(SampleRules{.handler = run.plan->handler,
                                                    .fields = run.plan->fields,
                                                    .prompt = run.plan->prompt,
                                                    .sample_by = options.sample_by,
                                                    .seq_length = options.instruct.seq_length,
                                                    .hash_documents = options.remove_duplicates,
                                                    .labels = run.plan->labels}));
  }
  return encoders;
}

// One pass over the input. With `finished_journal`, the journal of the finished pass is stored
// under that name, and a pass that has one already is not repeated.
PreprocessReport run_pass(const Run& run, const std::string& finished_journal) {
  const PreprocessOptions& options = run.options;
  const auto start = Clock::now();
  std::int64_t total_bytes = 0;
  for (const InputFile& file : run.files) total_bytes += file.bytes;
  std::unique_ptr<PunktSplitter> splitter;
  std::string splitter_hash;
  if (options.split_sentences) {
    auto parameters = punkt_parameters(options, run.files, names_in_files(options), run.log);
    splitter_hash = parameters.content_hash() + (options.keep_newlines ? "n" : "");
    splitter = std::make_unique<PunktSplitter>(std::move(parameters), options.keep_newlines);
  }

  const std::string work = work_of(run, splitter_hash);
  const InputMarks input = input_marks(run.files);
  OutputPrefix output(options.output_prefix, corpus_prefixes(options));
  if (!finished_journal.empty() && !input.at.empty()) {
    const auto done = PreprocessJournal::load(finished_journal);
    if (done && done->work == work && done->all == input.before.back()) {
      PreprocessReport report = report_of(*done, corpus_prefixes(options));
      report.set_documents = done->set_documents;
      report.resumed = true;
      return report;
    }
  }
  const auto going = going_on(options, output.journal(), work, input);
  PreprocessJournal journal = first_journal(options, output, going, run.files, run.log);
  journal.work = work;

  CorpusWriter writer(options,
                      options.sample_columns.empty() ? id_type_for(run.tokenizer.vocabulary_size())
                                                     : IdType::kInt32,
                      {.journal = journal,
                       .resumed = going.has_value(),
                       .input = input,
                       .rule = run.rule,
                       .set_of_file = run.set_of_file});
  BlockReader::Rules rules =
      run.plan ? reader_rules(options, *run.plan) : reader_rules(options, names_in_files(options));
  // Small enough that each worker has one in flight and the next one waits.
  rules.block_bytes = std::clamp<std::int64_t>(kInFlightBytes / (2 * workers_of(options)), 1 << 18,
                                               rules.block_bytes);
  BlockReader reader(journal.complete ? std::vector<InputFile>{} : run.files, rules,
                     journal.complete ? BlockReader::Place{} : journal.place);
  auto encoders = make_encoders(run, writer.id_type(), splitter.get());
  RunReports reports{
      .log_interval = options.log_interval,
      .bytes_before = journal.text_bytes,
      .logged = journal.documents,
      .start = start,
      .log = run.log,
      .progress = ThrottledProgress(run.progress, input.at.empty() ? 0 : total_bytes)};
  try {
    run_pipeline(reader, encoders, writer, reports);
  } catch (...) {
    run.progress.finish();
    if (writer.suspend()) {
      run.log.info(
          fmt::format("preprocess: stopped after {} documents, which are kept; the same command "
                      "continues there",
                      writer.journal().documents));
    }
    throw;
  }
  reports.finish();
  run.progress.finish();
  if (!finished_journal.empty()) writer.journal().store(finished_journal);
  PreprocessReport report = report_of(writer.journal(), writer.prefixes());
  report.set_documents = writer.journal().set_documents;
  report.seconds = seconds_since(start);
  report.resumed = going.has_value();
  return report;
}

// Two passes, the second of which packs or mixes.
PreprocessReport run_passes(const Run& run) {
  const auto start = Clock::now();
  OutputPrefix output(run.options.output_prefix, corpus_prefixes(run.options));
  output.refuse_existing(corpus_prefixes(run.options), run.options.overwrite);
  PreprocessOptions first = run.options;
  first.output_prefix = first_pass_prefix(run.options);
  first.overwrite = true;  // these files are no one else's
  const std::string done = first.output_prefix + ".done";
  PreprocessReport report = run_pass(
      {first, run.tokenizer, run.files, run.plan, run.set_of_file, run.log, run.progress, run.rule},
      done);
  const SpecialIds& special = run.tokenizer.special();
  output.start_unresumable(corpus_suffixes(run.options));
  const std::vector<std::string> prefixes = corpus_prefixes(run.options);
  const SecondPassCounts counts =
      run_second_pass(run.options, {.from = report.prefixes,
                                    .to = prefixes,
                                    .set_documents = report.set_documents,
                                    .pad = special.pad ? *special.pad : special.eos.value_or(0)});
  report.samples = counts.sequences;
  report.taught_tokens = counts.taught_tokens;
  std::error_code ignored;
  for (const std::string& prefix : report.prefixes) {
    for (const char* ending : {".bin", ".idx"}) std::filesystem::remove(prefix + ending, ignored);
  }
  std::filesystem::remove(PreprocessJournal::path(done), ignored);
  report.prefixes = prefixes;
  for (std::size_t i = 0; i < prefixes.size(); ++i) {
    const auto corpus = IndexedDataset::open(prefixes[i], IndexedDataset::Check::kHeader);
    report.tokens[i] = corpus.tokens();
    report.documents = corpus.documents();
  }
  report.seconds = seconds_since(start);
  return report;
}

}  // namespace

PreprocessReport preprocess(const PreprocessOptions& options, const Tokenizer& tokenizer, Log& log,
                            Progress& progress, CheckpointRule rule) {
  check(options, tokenizer);
  PreprocessOptions resolved = options;
  const std::vector<InputFile> files = files_of_partition(options, log);
  const auto plan = make_instruct_plan(options, tokenizer, files, log);
  if (plan && plan->prompt == nullptr) resolved.json_keys = {"text"};
  if (plan) resolved.sample_columns = sample_columns(plan->handler->form);
  std::vector<std::size_t> set_of_file;
  if (options.instruct.max_samples || options.instruct.mix_strategy != MixStrategy::kConcat) {
    set_of_file = sets_of_files(options);
    PITON_ASSERT(set_of_file.size() == files.size(), "{} files of {}", files.size(),
                 set_of_file.size());
  }
  // Wrong ones are refused before the input is read.
  if (!options.instruct.interleave_probs.empty()) {
    mix_probabilities(options.instruct.interleave_probs, set_of_file.back() + 1,
                      options.instruct.mix_strategy);
  }
  const Run run{resolved, tokenizer, files, plan, set_of_file, log, progress, rule};
  PreprocessReport report = needs_second_pass(resolved) ? run_passes(run) : run_pass(run, "");
  if (plan) {
    report.handler = plan->handler->name;
    report.prompt = plan->prompt_name;
    report.chat_template = plan->chat_template;
  }
  return report;
}

}  // namespace piton
