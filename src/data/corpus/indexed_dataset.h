// A corpus of token ids on disk, in Megatron-LM's format: NAME.bin has the ids, NAME.idx the starts
// of sequences and documents.
//
//   NAME.idx, little-endian
//   bytes      field
//   0..8       "MMIDIDX" and two zero bytes
//   9..16      u64  version, 1
//   17         u8   type of one id: 1 u8, 2 i8, 3 i16, 4 i32, 5 i64, 8 u16 (6 and 7, floats, are
//                   refused)
//   18..25     u64  sequences, n
//   26..33     u64  document boundaries, m
//   34..       i32  [n] length of each sequence, in ids
//              i64  [n] where each starts in NAME.bin, in bytes: the sum of those before
//              i64  [m] first sequence of each document; the first is 0, the last n
//              i8   [n] mode of each sequence, in multimodal corpora only; not read
//
// Also read: the older TNTIDX form ("lazy", "cached"; its index is copied into memory)
//   0..7 "TNTIDX" and two zero bytes, then u64 version 1, u64 type, u64 bytes of one id, u64 n,
//   u64 number of sizes, u64 m, i64 [n+1] first size of each sequence, i64 [n+1] its first id,
//   i64 [sizes] the sizes, i64 [m] document boundaries.
//
// Opening reads only the header; ids are read on demand. Files are read by calls, not
// memory-mapped: if a file is truncated while in use, or its network drive fails, the error names
// it. For the cost see docs/benchmarks.md, "Reading a corpus".
#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/files/regular_file.h"
#include "data/corpus/id_type.h"
#include "data/corpus/token_sequences.h"

namespace piton {

// Appends ids in the form of a .bin of `type`, kUint16 or kInt32. Asserts that every id fits.
void append_ids(std::span<const std::int32_t> ids, IdType type, std::vector<std::byte>& out);

class IndexedDataset final : public TokenSequences {
 public:
  enum class Check {
    kWhole,   // every length, pointer and boundary: reads the whole index once
    kHeader,  // header and file sizes only: for an index whose fingerprint() was checked before
  };

  // Throws Error(kData) with the file and the offset if the header is not as above, if lengths,
  // pointers and boundaries contradict each other, or if a file has the wrong size: a truncated
  // copy must not be trained on.
  static IndexedDataset open(const std::string& prefix, Check check = Check::kWhole);

  // Restricts the corpus to the ids [first, end), counted over all sequences. Sequences are cut at
  // both ends, and each becomes a document. Copies the index, so it is meant for corpora of few
  // sequences. Asserts 0 <= first <= end <= tokens().
  void narrow(std::int64_t first, std::int64_t end);

  const std::string& prefix() const { return prefix_; }
  const std::string& name() const override { return prefix_; }
  IdType type() const { return type_; }
  std::int64_t sequences() const override { return sequences_; }
  std::int64_t documents() const { return boundaries_ - 1; }
  std::int64_t tokens() const { return tokens_; }

  std::vector<std::int32_t> lengths(std::int64_t first, std::int64_t count) const override;
  std::int32_t length(std::int64_t sequence) const { return lengths(sequence, 1)[0]; }
  // The same into `out`, as many as it has places.
  void read_lengths(std::int64_t first, std::span<std::int32_t> out) const;
  // First sequences of `count` documents from `first` on. Entry documents() is sequences().
  std::vector<std::int64_t> document_starts(std::int64_t first, std::int64_t count) const;
  void read_document_starts(std::int64_t first, std::span<std::int64_t> out) const;
  std::int64_t document_start(std::int64_t document) const {
    return document_starts(document, 1)[0];
  }

  // Location of a sequence, found by one read.
  struct Place {
    std::int64_t byte = 0;    // of its first id in NAME.bin
    std::int64_t length = 0;  // in ids
  };
  Place place(std::int64_t sequence) const;

  // Copies ids [first, first + out.size()) of a sequence. Throws Error(kData) if it does not have
  // them, or if an int64 id does not fit into 32 bits.
  void read(std::int64_t sequence, std::int64_t first, std::span<std::int32_t> out) const {
    read(place(sequence), first, out);
  }
  void read(const Place& place, std::int64_t first, std::span<std::int32_t> out) const;

  std::int64_t read_some(std::int64_t sequence, std::int64_t first,
                         std::span<std::int32_t> out) const override;

  std::int64_t announce(std::int64_t sequence, std::int64_t first,
                        std::int64_t count) const override;

  // Copies raw bytes of NAME.bin.
  void read_bytes(std::int64_t byte, std::span<std::byte> out) const { ids_.read_at(byte, out); }

  // The checks of Check::kWhole beyond the header.
  void check_arrays() const;

  // Identifies the contents, whatever the names and times of the files: sizes, a hash of the index
  // (of 1024 pages spread over it if it is longer than 64 MB), and of 256 pages spread over the
  // ids. Equal strings mean equal corpora, unless someone forged them.
  std::string fingerprint() const override;

  // Changes when the files are written, even if the contents stay the same.
  std::string stamp() const { return index_.stamp() + " " + ids_.stamp(); }

 private:
  IndexedDataset(RegularFile index, RegularFile ids)
      : index_(std::move(index)), ids_(std::move(ids)) {}
  void read_header(std::span<const std::byte> head);
  void convert_old_index();
  // Sequences from `first` on, of which the first starts at byte `pointer` of the ids.
  struct SequenceBlock {
    std::int64_t first = 0;
    std::int64_t pointer = 0;
    std::span<const std::int32_t> lengths;
    std::span<const std::int64_t> pointers;
  };
  void check_sequences() const;
  [[noreturn]] void refuse(const SequenceBlock& block) const;  // a block with a wrong number
  void check_documents() const;
  void read_wide(std::int64_t start, std::span<std::int32_t> out) const;  // int64 ids
  // Reads the index file, or converted_ if there is one.
  void read_index(std::int64_t offset, std::span<std::byte> out) const;
  template <typename T>
  void read_array(std::int64_t array, std::int64_t first, std::span<T> out) const;
  template <typename T>
  std::vector<T> read_array(std::int64_t array, std::int64_t first, std::int64_t count) const;

  // The arrays start at odd offsets; memcpy is the load that may be unaligned.
  template <typename T>
  static T load(const std::byte* base, std::int64_t index) {
    T value;
    std::memcpy(&value, base + index * static_cast<std::int64_t>(sizeof(T)), sizeof(T));
    return value;
  }

  std::string prefix_;
  std::string narrowed_;           // "" or the range of narrow(), part of the fingerprint
  std::int64_t narrowed_end_ = 0;  // where its last id ends in NAME.bin
  RegularFile index_;
  RegularFile ids_;
  std::vector<std::byte> converted_;  // TNTIDX, narrow(): the arrays in the form of MMIDIDX
  IdType type_ = IdType::kInt32;
  std::int64_t sequences_ = 0;
  std::int64_t boundaries_ = 0;
  std::int64_t tokens_ = 0;
  std::int64_t lengths_ = 0;  // bytes from the start of the index, or of converted_
  std::int64_t pointers_ = 0;
  std::int64_t documents_ = 0;
};

// Writes NAME.bin and NAME.idx in constant memory: ids go to NAME.bin.partial, lengths and
// boundaries to NAME.lengths.partial and NAME.documents.partial, from which finish() makes the
// index. A writer destroyed before finish() removes its partial files, unless keep_partial() was
// called: then a later writer may continue from a Position taken after flush().
class IndexedWriter {
 public:
  struct Position {
    std::int64_t ids_bytes = 0;
    std::int64_t sequences = 0;
    std::int64_t documents = 0;
  };

  // Creates missing folders. Throws Error(kUsage) if a partial file exists: it belongs to another
  // run. With `resume`, truncates the partial files to that position; throws Error(kData) if they
  // are shorter.
  IndexedWriter(std::string prefix, IdType type, std::optional<Position> resume = {});
  ~IndexedWriter();
  IndexedWriter(IndexedWriter&&) noexcept;
  IndexedWriter& operator=(IndexedWriter&&) = delete;

  // Appends one sequence to the open document. Asserts that every id fits the type.
  void add_sequence(std::span<const std::int32_t> ids);
  void end_document();
  // Appends documents that are already in the form of the file: `ids` from append_ids(), the length
  // of each sequence, and the number of sequences of each document. Asserts that they agree.
  void add_documents(std::span<const std::byte> ids, std::span<const std::int32_t> lengths,
                     std::span<const std::int32_t> sequences);
  // For merging: appends a whole corpus of the same type (Error(kUsage) otherwise).
  void add_corpus(const IndexedDataset& corpus);

  const Position& position() const;
  // After flush(), everything added so far survives a crash.
  void flush();
  void keep_partial();
  // Renames both files into place: a reader sees a whole corpus or none. Does not close an open
  // document.
  void finish();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// The partial files of a corpus.
std::array<std::string, 3> partial_names(const std::string& prefix);

// True if the partial files reach `position`, so that a writer can continue from it.
bool partial_files_reach(const std::string& prefix, const IndexedWriter::Position& position);

// For a writer that was killed in finish() between its two renames: gives NAME.bin its partial name
// again. Otherwise does nothing.
void restore_partial_files(const std::string& prefix, const IndexedWriter::Position& position);

// True if the corpus is in place and ends at `position`.
bool corpus_is_finished(const std::string& prefix, const IndexedWriter::Position& position);

// Removes partial files that an interrupted writer left.
void remove_partial_files(const std::string& prefix);

}  // namespace piton
