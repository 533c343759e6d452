#include "data/preprocess/preprocess.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
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
#include "data/preprocess/ordered_pipeline.h"
#include "data/preprocess/output_prefix.h"
#include "data/preprocess/preprocess_journal.h"
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
    throw Error(
        Fault::kUsage,
        "preprocess: no --output-prefix; the corpora are written to PREFIX_KEY_document.bin and "
        ".idx");
  }
  check_record_options(options, "preprocess");
  if (options.log_interval < 0) {
    throw Error(Fault::kUsage, "preprocess: --log-interval: got {}, wanted 0 or more",
                options.log_interval);
  }
  if (options.workers < 1 || options.workers > 1024) {
    throw Error(Fault::kUsage, "preprocess: --workers: got {}, wanted 1 to 1024", options.workers);
  }
  if (options.partitions < 1 ||
      (options.partition_index &&
       (*options.partition_index < 0 || *options.partition_index >= options.partitions))) {
    throw Error(
        Fault::kUsage,
        "preprocess: --partition-index {} of --partitions {}; wanted an index from 0 and below "
        "the number of partitions",
        options.partition_index.value_or(0), options.partitions);
  }
  if (options.append_eod && !tokenizer.special().eod) {
    throw Error(
        Fault::kUsage,
        "preprocess: --append-eod: the tokenizer ({}) has no end-of-document token; leave the flag "
        "out or use another tokenizer",
        tokenizer.name());
  }
  if (options.keep_newlines && !options.split_sentences) {
    throw Error(
        Fault::kUsage,
        "preprocess: --keep-newlines says how sentences are cut; it needs --split-sentences");
  }
}

std::vector<InputFile> files_of_partition(const PreprocessOptions& options, Log& log) {
  const std::vector<InputFile> files = files_of(options, "preprocess", log);
  if (!options.partition_index) return files;
  const auto count = static_cast<std::int64_t>(files.size());
  const auto edge = [&](std::int64_t part) { return count * part / options.partitions; };
  if (count < options.partitions) {
    throw Error(Fault::kUsage,
                "preprocess: {} partitions of {} files; a partition is whole files: use fewer",
                options.partitions, count);
  }
  return {files.begin() + edge(*options.partition_index),
          files.begin() + edge(*options.partition_index + 1)};
}

// Hash of everything that determines the output, except the inputs. Workers and the treatment of
// bad records do not: a run may resume with more workers, or with --on-error skip.
std::string work_of(const PreprocessOptions& options, const Tokenizer& tokenizer,
                    const std::string& splitter) {
  std::string text = fmt::format(
      "{}|{}|{}|{}|{}|{}|{}|{}|{}|{}|{}|", tokenizer.content_hash(), tokenizer.vocabulary_size(),
      options.input_format, static_cast<int>(options.sample_by), options.map_keys,
      options.append_eod, options.add_special_tokens, options.parse_special_tokens,
      options.remove_duplicates, options.max_record_bytes, splitter);
  for (const std::string& key : options.json_keys) text += key + "|";
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
  const BlockReader::Rules usual;
  return {.sample_by = options.sample_by,
          .columns = names,
          // Small enough that each worker has one in flight and the next one waits.
          .block_bytes = std::clamp<std::int64_t>(kInFlightBytes / (2 * options.workers), 1 << 18,
                                                  usual.block_bytes),
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
    throw Error(
        Fault::kUsage,
        "preprocess: --split-sentences learns from the input, and standard input cannot be read "
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

// Removes the journal of a merge when it ends or fails: the files in it no longer exist.
struct JournalRemoval {
  std::string path;
  ~JournalRemoval() {
    std::error_code ignored;
    std::filesystem::remove(path, ignored);
  }
};

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
  std::int64_t total_bytes = 0;   // of the input; 0: unknown
  std::int64_t bytes_before = 0;  // of text, when the run began
  std::int64_t logged = 0;        // documents at the last look
  Clock::time_point start;
  Clock::time_point shown = start;
  Log& log;
  Progress& progress;

  // After `consumed` bytes of input.
  void look(const PreprocessJournal& journal, std::int64_t consumed) {
    const double seconds = seconds_since(start);
    const double speed = static_cast<double>(journal.text_bytes - bytes_before) / 1e6 / seconds;
    if (log_interval > 0 && journal.documents / log_interval > logged / log_interval) {
      log.info(fmt::format("preprocess: {} documents, {:.1f} MB/s", journal.documents, speed));
    }
    logged = journal.documents;
    if (seconds_since(shown) < 0.25) return;
    shown = Clock::now();
    progress.update({consumed, total_bytes, seconds,
                     fmt::format("{:.1f} MB/s, {} documents", speed, journal.documents)});
  }
};

using BlockPipeline = OrderedPipeline<RecordBlock, EncodedBlock>;

// Reads, encodes and writes all that the reader gives, with one worker for each encoder.
void run_pipeline(BlockReader& reader, std::vector<DocumentEncoder>& encoders, CorpusWriter& writer,
                  RunReports& reports) {
  Spares<EncodedBlock> spares;
  BlockPipeline pipeline;
  pipeline.run(
      static_cast<int>(encoders.size()), kInFlightBytes,
      [&]() -> std::optional<BlockPipeline::Made> {
        auto block = reader.next();
        if (!block) return {};
        const auto weight = static_cast<std::int64_t>(block->bytes.size());
        return {{*std::move(block), weight}};
      },
      [&](int worker, RecordBlock block) {
        EncodedBlock encoded = spares.take();
        encoders[static_cast<std::size_t>(worker)].encode(block, encoded);
        reader.recycle(std::move(block));
        return encoded;
      },
      [&](EncodedBlock block) {
        const std::int64_t consumed = block.consumed_bytes;
        writer.add(block);
        spares.give(std::move(block));
        reports.look(writer.journal(), consumed);
      });
  writer.finish();
}

PreprocessReport report_of(const CorpusWriter& writer) {
  const PreprocessJournal& journal = writer.journal();
  PreprocessReport report;
  report.prefixes = writer.prefixes();
  for (const std::string& prefix : report.prefixes) {
    report.tokens.push_back(IndexedDataset::open(prefix, IndexedDataset::Check::kHeader).tokens());
  }
  report.documents = journal.documents;
  report.duplicates = journal.duplicates;
  report.bad_records = journal.bad_records;
  report.first_bad = journal.first_bad;
  report.text_bytes = journal.text_bytes;
  return report;
}

}  // namespace

PreprocessReport preprocess(const PreprocessOptions& options, const Tokenizer& tokenizer, Log& log,
                            Progress& progress, CheckpointRule rule) {
  check(options, tokenizer);
  const auto start = Clock::now();
  const std::vector<std::string> names = names_in_files(options, "preprocess");
  const std::vector<InputFile> files = files_of_partition(options, log);
  std::int64_t total_bytes = 0;
  bool resumable = true;
  for (const InputFile& file : files) {
    total_bytes += file.bytes;
    resumable = resumable && file.path != "-";
  }
  std::unique_ptr<PunktSplitter> splitter;
  std::string splitter_hash;
  if (options.split_sentences) {
    auto parameters = punkt_parameters(options, files, names, log);
    splitter_hash = parameters.content_hash() + (options.keep_newlines ? "n" : "");
    splitter = std::make_unique<PunktSplitter>(std::move(parameters), options.keep_newlines);
  }

  const std::string work = work_of(options, tokenizer, splitter_hash);
  const InputMarks input = input_marks(files);
  OutputPrefix output(options.output_prefix, corpus_prefixes(options));
  const auto going = going_on(options, output.journal(), work, input);
  PreprocessJournal journal = first_journal(options, output, going, files, log);
  journal.work = work;

  CorpusWriter writer(
      options, id_type_for(tokenizer.vocabulary_size()),
      {.journal = journal, .resumed = going.has_value(), .input = input, .rule = rule});
  const EncodeRules rules{.keys = names,
                          .sample_by = options.sample_by,
                          .encode = {options.add_special_tokens, options.parse_special_tokens},
                          .append_eod = options.append_eod,
                          .type = writer.id_type(),
                          .hash_documents = options.remove_duplicates,
                          .splitter = splitter.get()};
  BlockReader reader(journal.complete ? std::vector<InputFile>{} : files,
                     reader_rules(options, names),
                     journal.complete ? BlockReader::Place{} : journal.place);
  std::vector<DocumentEncoder> encoders;
  for (int i = 0; i < options.workers; ++i) encoders.emplace_back(tokenizer, rules);
  RunReports reports{.log_interval = options.log_interval,
                     .total_bytes = resumable ? total_bytes : 0,
                     .bytes_before = journal.text_bytes,
                     .logged = journal.documents,
                     .start = start,
                     .log = log,
                     .progress = progress};
  try {
    run_pipeline(reader, encoders, writer, reports);
  } catch (...) {
    progress.finish();
    if (writer.suspend()) {
      log.info(
          fmt::format("preprocess: stopped after {} documents, which are kept; the same command "
                      "continues there",
                      writer.journal().documents));
    }
    throw;
  }
  progress.finish();
  PreprocessReport report = report_of(writer);
  report.seconds = seconds_since(start);
  report.resumed = going.has_value();
  return report;
}

PreprocessReport merge_corpora(const std::vector<std::string>& prefixes,
                               const std::string& output_prefix, bool overwrite) {
  if (output_prefix.empty())
    throw Error(Fault::kUsage, "preprocess: --merge needs --output-prefix");
  const auto start = Clock::now();
  PreprocessReport report;
  std::vector<IndexedDataset> corpora;
  for (const std::string& prefix : prefixes) {
    if (prefix == output_prefix) {
      throw Error(Fault::kUsage,
                  "preprocess: --merge: {} is read and written; choose another --output-prefix",
                  prefix);
    }
    corpora.push_back(IndexedDataset::open(prefix));
    if (corpora.back().type() != corpora.front().type()) {
      throw Error(
          Fault::kUsage,
          "preprocess: --merge: {} has ids of type {}, {} of type {}; corpora of one tokenizer "
          "have one type",
          prefix, static_cast<int>(corpora.back().type()), prefixes.front(),
          static_cast<int>(corpora.front().type()));
    }
  }
  PITON_ASSERT(!corpora.empty(), "nothing to merge");
  OutputPrefix output(output_prefix, {output_prefix});
  output.refuse_existing({output_prefix}, overwrite);
  // A merge cannot resume; the journal tells the next run which files to remove.
  PreprocessJournal journal;
  journal.work = "merge";
  journal.corpora = {""};
  output.start_afresh(journal.files(output_prefix));
  journal.store(output_prefix);
  const JournalRemoval at_the_end{PreprocessJournal::path(output_prefix)};
  IndexedWriter writer(output_prefix, corpora.front().type());
  for (const IndexedDataset& corpus : corpora) writer.add_corpus(corpus);
  report.documents = writer.position().documents;
  report.tokens = {writer.position().ids_bytes / bytes_of(corpora.front().type())};
  writer.finish();
  report.prefixes = {output_prefix};
  report.seconds = seconds_since(start);
  return report;
}

}  // namespace piton
