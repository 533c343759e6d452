// Files of conversations as data of a run: --data-path chats.jsonl, in place of the prefix that
// `piton preprocess --input chats.jsonl` wrote. They are converted as that command does, with the
// tokenizer and the chat template of the run, so the run has the same bits.
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "base/log.h"
#include "comm/communicator.h"
#include "data/corpus/corpus_files.h"
#include "data/samples/data_options.h"
#include "text/chat/chat_template_files.h"
#include "text/tokenizer.h"
#include "train/run/pretrain_options.h"
#include "train/run/run_tokenizer.h"

namespace piton {

// Corpora that were made of files. The destructor removes them, unless they are in
// --data-cache-path.
class RecordCorpora {
 public:
  RecordCorpora() = default;
  ~RecordCorpora();
  RecordCorpora(RecordCorpora&& other) noexcept;
  RecordCorpora& operator=(RecordCorpora&&) = delete;
  void swap(RecordCorpora& other) noexcept;

  // By the path of the file: the prefix of its corpora.
  std::map<std::string, std::string> prefixes;
  std::filesystem::path temporary;  // folder of all of them; "": they are kept
};

struct RecordReading {
  const Tokenizer* tokenizer = nullptr;  // null: the run has none
  ModelChatTemplates chat_templates;     // of the model
  int workers = 1;                       // threads; the corpora do not depend on it
};

// The paths among those of the data options that are files of records: regular files, of
// instruction data only. Throws Error(kUsage) where files go with options of corpora, and
// Error(kData) for folders and for names of files that are not there.
std::vector<std::string> record_files_of(const PretrainOptions& options);

// chat_templates_of_run() of a run that reads files or prompts, or continues adapters. None for
// others: they do not need the checkpoint that has them, which may be damaged.
RunTemplates used_templates(const PretrainOptions& options,
                            const std::optional<OpenedModel>& foreign);

// Converts `files`. Corpora of --data-cache-path that are there already are taken, if they were
// made of the same bytes in the same way; another run that makes them now is waited for. Throws
// Error(kUsage, kData) as preprocess() does; records that do not fit --stage are Error(kData).
RecordCorpora convert_record_files(const PretrainOptions& options,
                                   const std::vector<std::string>& files, RecordReading reading,
                                   Log& log);

// Collective over `everyone`: the first rank converts the files of the run, and keeps the corpora
// in `made`. Returns the prefixes by file; none if there are no files, with a line in the log if
// options are given that are of files. Throws on all ranks as convert_record_files(), and where a
// rank does not see the corpora.
std::map<std::string, std::string> convert_on_first_rank(
    const PretrainOptions& options, const std::function<RecordReading()>& reading,
    Communicator& everyone, Log& log, RecordCorpora& made);

// The files of corpora, from the prefixes by file.
CorpusFiles files_by_prefix(const std::map<std::string, std::string>& prefixes);

// `data` with the prefixes in place of the files.
DataOptions with_prefixes(DataOptions data, const std::map<std::string, std::string>& prefixes);

}  // namespace piton
