// Keeps sample orders and checks between runs. File names are hashes of the contents: a changed
// corpus or request has another name, so a stale file is never read.
//
//   CACHE/<hash>.samples   the lists of one GptIndex
//   CACHE/<hash>.checked   empty: the index with this fingerprint was checked whole
//
//   .samples, little-endian: "PITONIDX", u64 version 1, 32 + 32 hex digits (corpus, request),
//   i64 epochs, i64 last apart, i64 order entries n, i64 samples m, then i64 [m+1] places,
//   i64 [m] shuffle, i32 [m+1] first tokens, i32 [n] order.
//
// Files are replaced atomically, so any number of ranks may build the same cache at once.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "data/corpus/indexed_dataset.h"
#include "data/samples/gpt_dataset.h"

namespace piton {

// Opens a corpus. With `cache`, a corpus that was checked whole before is not checked again.
std::shared_ptr<const IndexedDataset> open_corpus(
    const std::string& prefix, const std::optional<std::filesystem::path>& cache);

// Reads the lists from `cache`, or builds and stores them. If the cache cannot be written, the
// lists stay in memory. If its file is truncated later, while samples are read, the Error(kData)
// names it.
GptIndex cached_gpt_index(const TokenSequences& corpus, const GptRequest& request,
                          const std::filesystem::path& cache);

}  // namespace piton
