// Descriptions of corpora and samples for `piton inspect`, as text and as JSON.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "data/corpus/indexed_dataset.h"
#include "data/samples/batch.h"
#include "text/tokenizer.h"

namespace piton {

struct CorpusDescription {
  std::string prefix;
  std::string id_type;  // "uint16", "int32", ...
  std::int64_t documents = 0;
  std::int64_t empty_documents = 0;
  std::int64_t sequences = 0;
  std::int64_t tokens = 0;
  std::int64_t bytes = 0;  // of ids and index
  std::int64_t largest_id = 0;
  std::int64_t shortest = 0;  // sequences, in ids
  std::int64_t longest = 0;
  double mean = 0;
  // Sequences of 0, 1, 2..3, 4..7, ... ids: entry k counts lengths from 2^(k-1) to 2^k - 1.
  std::vector<std::int64_t> histogram;
  std::vector<std::string> first_texts;              // decoded, if a tokenizer was given
  std::vector<std::vector<std::int32_t>> first_ids;  // of the same sequences, at most 64
};

// Reads every length, and every id once if `scan_ids` (largest_id is -1 otherwise). `tokenizer` may
// be null. Throws Error(kData) as IndexedDataset::open does.
CorpusDescription describe_corpus(const std::string& prefix, const Tokenizer* tokenizer, int texts,
                                  bool scan_ids);

std::string to_text(const CorpusDescription& corpus);
std::string to_json(const CorpusDescription& corpus);  // one line

// True if `path` is a corpus prefix: PATH.idx exists.
bool is_corpus(const std::string& path);

// Rows of `batch` as training sees them. JSON: one object per line, {"index", "ids", "labels",
// "loss_mask", "positions", "segments" (if any), "text" (with a tokenizer)}. Text: the first token
// and those that follow each token; those that are not learned are in [- -]; a new line follows
// each end of a document. `colors` dims them instead, for terminals. Texts that do not see each
// other have a line each with their first and last token. Padding is only counted. Without a
// tokenizer, ids take the place of tokens.
std::string samples_to_json(const MicroBatch& batch, std::int64_t first_index,
                            const Tokenizer* tokenizer);
std::string samples_to_text(const MicroBatch& batch, std::int64_t first_index,
                            const Tokenizer* tokenizer, bool colors);

}  // namespace piton
