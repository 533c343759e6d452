#include "data/corpus/indexed_dataset.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <limits>
#include <numeric>
#include <vector>

#include "base/error.h"
#include "base/hash.h"
#include "base/shell_word.h"

namespace piton {
namespace {

constexpr std::string_view kMagic{"MMIDIDX\0\0", 9};
constexpr std::string_view kOldMagic{"TNTIDX\0\0", 8};
constexpr std::int64_t kHeaderBytes = 34;
constexpr std::int64_t kOldHeaderBytes = 56;

std::string escaped_bytes(std::string_view bytes) {
  std::string text;
  for (const char c : bytes) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte >= 0x20 && byte < 0x7F) {
      text += c;
    } else {
      text += fmt::format("\\x{:02x}", byte);
    }
  }
  return text;
}

std::string_view guess(std::string_view head) {
  if (head.starts_with("PK\x03\x04")) return " (a zip archive?)";
  if (head.starts_with("\x1f\x8b")) return " (gzip?)";
  if (head.starts_with("\x93NUMPY")) return " (a NumPy array?)";
  if (head.starts_with("version https://git-lfs"))
    return " (a Git LFS pointer, not the file itself)";
  if (head.starts_with("{")) return " (JSON?)";
  return "";
}

std::string_view text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

template <typename T>
void convert(const std::byte* source, std::span<std::int32_t> out) {
  for (std::size_t i = 0; i < out.size(); ++i) {
    T value;
    std::memcpy(&value, source + i * sizeof(T), sizeof(T));
    out[i] = static_cast<std::int32_t>(value);
  }
}

// A text in place of the corpus that is made of it.
void refuse_text(const std::string& prefix) {
  std::error_code ignored;
  if (std::filesystem::exists(prefix + ".idx", ignored) ||
      !std::filesystem::is_regular_file(prefix, ignored)) {
    return;
  }
  throw Error(
      Fault::kData,
      "{}: is a file, wanted a corpus (NAME.idx and NAME.bin, given as NAME); make one with "
      "piton preprocess --input {}",
      prefix, shell_word(prefix));
}

}  // namespace

IndexedDataset IndexedDataset::open(const std::string& prefix, Check check) {
  refuse_text(prefix);
  IndexedDataset corpus{RegularFile(prefix + ".idx"), RegularFile(prefix + ".bin")};
  corpus.prefix_ = prefix;
  std::vector<std::byte> head(static_cast<std::size_t>(
      std::min<std::int64_t>(corpus.index_.size_bytes(), kOldHeaderBytes)));
  corpus.index_.read_at(0, head);
  if (text_of(head).starts_with(kOldMagic)) {
    corpus.convert_old_index();
  } else {
    corpus.read_header(head);
  }
  if (check == Check::kWhole) corpus.check_arrays();
  return corpus;
}

void IndexedDataset::read_header(std::span<const std::byte> head) {
  const std::string file = index_.path().string();
  if (text_of(head).substr(0, kMagic.size()) != kMagic) {
    throw Error(Fault::kData,
                "{}: not a token index: starts with \"{}\"{}, wanted \"MMIDIDX\\x00\\x00\" or "
                "\"TNTIDX\\x00\\x00\"; make it with piton preprocess",
                file, escaped_bytes(text_of(head).substr(0, 8)), guess(text_of(head)));
  }
  const std::int64_t size = index_.size_bytes();
  if (size < kHeaderBytes) {
    throw Error(Fault::kData,
                "{}: the header is cut off: got {} bytes, wanted at least {}; copy the file "
                "again",
                file, size, kHeaderBytes);
  }
  const std::byte* base = head.data();
  const auto version = load<std::uint64_t>(base + 9, 0);
  if (version != 1) {
    throw Error(Fault::kData, "{}: byte 9: unknown version of the format: got {}, wanted 1", file,
                version);
  }
  type_ = checked_id_type(std::to_integer<std::uint64_t>(base[17]), file, 17);
  const auto sequences = load<std::uint64_t>(base + 18, 0);
  const auto boundaries = load<std::uint64_t>(base + 26, 0);
  // Counts above size/4 cannot be real; testing them first keeps the products below from wrapping.
  const auto limit = static_cast<std::uint64_t>(size);
  if (sequences > limit / 12 || boundaries > limit / 8) {
    throw Error(Fault::kData,
                "{}: byte 18: {} sequences and {} document boundaries do not fit into {} bytes; "
                "the file is truncated or damaged, copy it again",
                file, sequences, boundaries, size);
  }
  sequences_ = static_cast<std::int64_t>(sequences);
  boundaries_ = static_cast<std::int64_t>(boundaries);
  const std::int64_t wanted = kHeaderBytes + 12 * sequences_ + 8 * boundaries_;
  if (size != wanted && size != wanted + sequences_) {
    throw Error(Fault::kData,
                "{}: {} sequences and {} document boundaries need {} bytes ({} with modes), the "
                "file has {}; it is truncated or damaged, copy it again",
                file, sequences_, boundaries_, wanted, wanted + sequences_, size);
  }
  if (boundaries_ < 1) {
    throw Error(Fault::kData, "{}: byte 26: no document boundaries: got 0, wanted at least 1",
                file);
  }
  lengths_ = kHeaderBytes;
  pointers_ = lengths_ + 4 * sequences_;
  documents_ = pointers_ + 8 * sequences_;

  // The end of the last sequence must be the size of the .bin, for both kinds of check.
  const std::int64_t ids_bytes = ids_.size_bytes();
  std::int64_t end = 0;
  if (sequences_ > 0) {
    const auto last = read_array<std::int64_t>(pointers_, sequences_ - 1, 1)[0];
    const std::int64_t length = this->length(sequences_ - 1);
    const bool overflows = __builtin_add_overflow(last, length * bytes_of(type_), &end);
    if (last < 0 || length < 0 || overflows) {
      throw Error(Fault::kData,
                  "{}: the last sequence begins at byte {} of the ids and has {} tokens, which "
                  "cannot be; the file is damaged, copy it again",
                  file, last, length);
    }
  }
  if (end != ids_bytes) {
    throw Error(
        Fault::kData,
        "{}: has {} bytes, but by {} the ids end at byte {}; one of the two is truncated or "
        "from another corpus, copy both again",
        ids_.path().string(), ids_bytes, file, end);
  }
  tokens_ = ids_bytes / bytes_of(type_);
}

void IndexedDataset::convert_old_index() {
  const std::string file = index_.path().string();
  const auto size = static_cast<std::uint64_t>(index_.size_bytes());
  if (size < kOldHeaderBytes) {
    throw Error(Fault::kData,
                "{}: the header is cut off: got {} bytes, wanted at least {}; copy the file "
                "again",
                file, size, kOldHeaderBytes);
  }
  std::vector<std::byte> whole(size);
  index_.read_at(0, whole);
  const std::byte* base = whole.data();
  const auto field = [&](int i) { return load<std::uint64_t>(base + 8, i); };
  if (field(0) != 1) {
    throw Error(Fault::kData, "{}: byte 8: unknown version of the format: got {}, wanted 1", file,
                field(0));
  }
  type_ = checked_id_type(field(1), file, 16);
  if (field(2) != static_cast<std::uint64_t>(bytes_of(type_))) {
    throw Error(Fault::kData, "{}: byte 24: one id of type {} has {} bytes, the file says {}", file,
                field(1), bytes_of(type_), field(2));
  }
  const std::uint64_t sequences = field(3), sizes = field(4), boundaries = field(5);
  if (sequences > size / 16 || sizes > size / 8 || boundaries > size / 8 || boundaries < 1 ||
      size != kOldHeaderBytes + 8 * (2 * (sequences + 1) + sizes + boundaries)) {
    throw Error(Fault::kData,
                "{}: byte 32: {} sequences, {} sizes and {} document boundaries do not make the "
                "file's {} bytes; it is truncated or damaged, copy it again",
                file, sequences, sizes, boundaries, size);
  }
  const std::byte* dims = base + kOldHeaderBytes;
  const std::byte* starts = dims + 8 * (sequences + 1);
  const std::byte* lengths = starts + 8 * (sequences + 1);
  const std::byte* documents = lengths + 8 * sizes;
  sequences_ = static_cast<std::int64_t>(sequences);
  boundaries_ = static_cast<std::int64_t>(boundaries);
  converted_.resize(12 * sequences + 8 * boundaries);
  std::byte* out_lengths = converted_.data();
  std::byte* out_pointers = out_lengths + 4 * sequences;
  std::byte* out_documents = out_pointers + 8 * sequences;
  std::int64_t ids = 0;
  for (std::int64_t i = 0; i < sequences_; ++i) {
    const auto dim = load<std::int64_t>(dims, i), next_dim = load<std::int64_t>(dims, i + 1);
    if (dim != i || next_dim != i + 1 || i >= static_cast<std::int64_t>(sizes)) {
      throw Error(Fault::kData,
                  "{}: sequence {} is not one row of ids (sizes {}..{}); wanted one size a "
                  "sequence",
                  file, i, dim, next_dim);
    }
    const auto length = load<std::int64_t>(lengths, i);
    const auto start = load<std::int64_t>(starts, i), end = load<std::int64_t>(starts, i + 1);
    if (length < 0 || length > std::numeric_limits<std::int32_t>::max() || start != ids ||
        end != ids + length) {
      throw Error(Fault::kData,
                  "{}: sequence {} has the length {} and ids {} to {}; wanted that many ids from "
                  "id {} on; the file is damaged",
                  file, i, length, start, end, ids);
    }
    const auto narrow = static_cast<std::int32_t>(length);
    const std::int64_t pointer = ids * bytes_of(type_);
    std::memcpy(out_lengths + 4 * i, &narrow, 4);
    std::memcpy(out_pointers + 8 * i, &pointer, 8);
    ids += length;
  }
  std::memcpy(out_documents, documents, 8 * boundaries);
  lengths_ = 0;
  pointers_ = out_pointers - out_lengths;
  documents_ = out_documents - out_lengths;
  const std::int64_t ids_bytes = ids_.size_bytes();
  if (ids * bytes_of(type_) != ids_bytes) {
    throw Error(
        Fault::kData,
        "{}: has {} bytes, but by {} the ids end at byte {}; one of the two is truncated or "
        "from another corpus, copy both again",
        ids_.path().string(), ids_bytes, file, ids * bytes_of(type_));
  }
  tokens_ = ids;
}

void IndexedDataset::narrow(std::int64_t first, std::int64_t end) {
  PITON_ASSERT(first >= 0 && first <= end && end <= tokens_, "ids {} to {} of {}", first, end,
               tokens_);
  const std::vector<std::int32_t> all = lengths(0, sequences_);
  const auto starts = read_array<std::int64_t>(pointers_, 0, sequences_);
  std::vector<std::int32_t> kept;
  std::vector<std::int64_t> pointers;
  std::int64_t start = 0;  // of the sequence
  for (std::size_t i = 0; i < all.size(); ++i) {
    const std::int64_t from = std::max(first, start), to = std::min(end, start + all[i]);
    if (from < to) {
      kept.push_back(static_cast<std::int32_t>(to - from));
      pointers.push_back(starts[i] + (from - start) * bytes_of(type_));
    }
    start += all[i];
  }
  std::vector<std::int64_t> documents(kept.size() + 1);
  std::iota(documents.begin(), documents.end(), 0);
  converted_.clear();
  const auto append = [&](const auto& values) {
    const auto bytes = std::as_bytes(std::span(values));
    converted_.insert(converted_.end(), bytes.begin(), bytes.end());
  };
  append(kept);
  append(pointers);
  append(documents);
  lengths_ = 0;
  pointers_ = static_cast<std::int64_t>(4 * kept.size());
  documents_ = pointers_ + static_cast<std::int64_t>(8 * pointers.size());
  sequences_ = static_cast<std::int64_t>(kept.size());
  boundaries_ = sequences_ + 1;
  tokens_ = end - first;
  narrowed_end_ = kept.empty() ? 0 : pointers.back() + kept.back() * bytes_of(type_);
  narrowed_ += fmt::format("[{},{})", first, end);
}

void IndexedDataset::read_index(std::int64_t offset, std::span<std::byte> out) const {
  if (converted_.empty()) {
    index_.read_at(offset, out);
  } else if (!out.empty()) {
    std::memcpy(out.data(), converted_.data() + offset, out.size());
  }
}

template <typename T>
void IndexedDataset::read_array(std::int64_t array, std::int64_t first, std::span<T> out) const {
  read_index(array + first * static_cast<std::int64_t>(sizeof(T)), std::as_writable_bytes(out));
}

template <typename T>
std::vector<T> IndexedDataset::read_array(std::int64_t array, std::int64_t first,
                                          std::int64_t count) const {
  std::vector<T> values(static_cast<std::size_t>(count));
  read_array(array, first, std::span(values));
  return values;
}

void IndexedDataset::read_lengths(std::int64_t first, std::span<std::int32_t> out) const {
  PITON_ASSERT(first >= 0 && std::ssize(out) <= sequences_ - first, "sequences {}+{} of {}", first,
               out.size(), sequences_);
  read_array(lengths_, first, out);
}

std::vector<std::int32_t> IndexedDataset::lengths(std::int64_t first, std::int64_t count) const {
  PITON_ASSERT(count >= 0, "{} sequences", count);
  std::vector<std::int32_t> values(static_cast<std::size_t>(count));
  read_lengths(first, values);
  return values;
}

void IndexedDataset::read_document_starts(std::int64_t first, std::span<std::int64_t> out) const {
  PITON_ASSERT(first >= 0 && std::ssize(out) <= boundaries_ - first, "documents {}+{} of {}", first,
               out.size(), boundaries_);
  read_array(documents_, first, out);
}

std::vector<std::int64_t> IndexedDataset::document_starts(std::int64_t first,
                                                          std::int64_t count) const {
  PITON_ASSERT(count >= 0, "{} documents", count);
  std::vector<std::int64_t> values(static_cast<std::size_t>(count));
  read_document_starts(first, values);
  return values;
}

IndexedDataset::Place IndexedDataset::place(std::int64_t sequence) const {
  PITON_ASSERT(sequence >= 0 && sequence < sequences_, "sequence {} of {}", sequence, sequences_);
  // A sequence ends where the next one starts: one read instead of two.
  const bool last = sequence + 1 == sequences_;
  std::array<std::int64_t, 2> ends{0, narrowed_.empty() ? ids_.size_bytes() : narrowed_end_};
  read_index(pointers_ + 8 * sequence, std::as_writable_bytes(std::span(ends).first(last ? 1 : 2)));
  // kHeader does not check pointers: a damaged index must not cause reads outside the file.
  if (ends[0] < 0 || ends[1] < ends[0] || ends[1] > ids_.size_bytes()) {
    throw Error(Fault::kData,
                "{}: sequence {} is outside of the ids; the file changed after it was checked",
                index_.path().string(), sequence);
  }
  return {.byte = ends[0], .length = (ends[1] - ends[0]) / bytes_of(type_)};
}

void IndexedDataset::read(const Place& place, std::int64_t first,
                          std::span<std::int32_t> out) const {
  const auto count = static_cast<std::int64_t>(out.size());
  const int width = bytes_of(type_);
  const std::int64_t start = place.byte + first * width;
  if (first < 0 || first + count > place.length) {
    throw Error(Fault::kData,
                "{}: ids {}+{} of a sequence of {} at byte {}; the file changed after it was "
                "checked",
                index_.path().string(), first, count, place.length, place.byte);
  }
  if (width == 8) return read_wide(start, out);
  // Narrow ids are read into the end of `out` and widened from its front: no id is overwritten
  // before it is read.
  const std::span<std::byte> all = std::as_writable_bytes(out);
  const std::span<std::byte> narrow = all.last(static_cast<std::size_t>(count * width));
  ids_.read_at(start, narrow);
  switch (type_) {
    case IdType::kUint8:
      return convert<std::uint8_t>(narrow.data(), out);
    case IdType::kInt8:
      return convert<std::int8_t>(narrow.data(), out);
    case IdType::kInt16:
      return convert<std::int16_t>(narrow.data(), out);
    case IdType::kUint16:
      return convert<std::uint16_t>(narrow.data(), out);
    default:
      return;
  }
}

std::int64_t IndexedDataset::read_some(std::int64_t sequence, std::int64_t first,
                                       std::span<std::int32_t> out) const {
  const Place there = place(sequence);
  if (first < 0 || first > there.length) return -1;
  const std::int64_t count = std::min(there.length - first, static_cast<std::int64_t>(out.size()));
  if (count > 0) read(there, first, out.first(static_cast<std::size_t>(count)));
  return count;
}

std::int64_t IndexedDataset::announce(std::int64_t sequence, std::int64_t first,
                                      std::int64_t count) const {
  const Place there = place(sequence);
  if (first < 0 || first > there.length) return -1;
  const std::int64_t width = bytes_of(type_);
  count = std::min(there.length - first, count);
  if (count > 0) ids_.will_read(there.byte + first * width, count * width);
  return count;
}

void IndexedDataset::read_wide(std::int64_t start, std::span<std::int32_t> out) const {
  std::vector<std::int64_t> wide(out.size());
  ids_.read_at(start, std::as_writable_bytes(std::span(wide)));
  for (std::size_t i = 0; i < out.size(); ++i) {
    out[i] = static_cast<std::int32_t>(wide[i]);
    if (wide[i] == out[i]) continue;
    throw Error(Fault::kData, "{}: byte {}: id {} does not fit 32 bits", ids_.path().string(),
                start + static_cast<std::int64_t>(i) * 8, wide[i]);
  }
}

std::string IndexedDataset::fingerprint() const {
  StreamHash hash;
  std::vector<std::byte> piece;
  const auto read = [&](const RegularFile& file, std::int64_t at, std::int64_t bytes) {
    piece.resize(static_cast<std::size_t>(bytes));
    file.read_at(at, piece);
    hash.add(piece);
  };
  // Hashes all of a file of at most `whole` bytes, else `pages` of it, with the first and the last.
  const auto add = [&](const RegularFile& file, std::int64_t whole, std::int64_t pages) {
    constexpr std::int64_t kPiece = 1 << 20;
    constexpr std::int64_t kPage = 4096;
    const std::int64_t size = file.size_bytes();
    hash.add(std::as_bytes(std::span(&size, 1)));
    if (size <= whole) {
      for (std::int64_t at = 0; at < size; at += kPiece)
        read(file, at, std::min(kPiece, size - at));
      return;
    }
    for (std::int64_t i = 0; i < pages; ++i) {
      const double share = static_cast<double>(i) / static_cast<double>(pages - 1);
      read(file, static_cast<std::int64_t>(share * static_cast<double>(size - kPage)), kPage);
    }
  };
  add(index_, 64 << 20, 1024);
  add(ids_, 1 << 20, 256);
  hash.add(std::as_bytes(std::span(narrowed_)));
  return hash.hex();
}

}  // namespace piton
