#include "data/corpus/indexed_dataset.h"

#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <limits>
#include <vector>

#include "base/error.h"
#include "base/hash.h"

namespace piton {
namespace {

constexpr std::string_view kMagic{"MMIDIDX\0\0", 9};
constexpr std::string_view kOldMagic{"TNTIDX\0\0", 8};
constexpr std::int64_t kHeaderBytes = 34;
constexpr std::int64_t kOldHeaderBytes = 56;

std::string printable(std::string_view bytes) {
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

IdType checked_type(std::uint64_t code, const std::string& file, int offset) {
  switch (code) {
    case 1:
    case 2:
    case 3:
    case 4:
    case 5:
    case 8:
      return static_cast<IdType>(code);
    case 6:
    case 7:
      throw Error(Fault::kData,
                  "{}: byte {}: ids are floating-point numbers (type {}); wanted an integer "
                  "type, 1..5 or 8; write the corpus again with integer ids",
                  file, offset, code);
    default:
      throw Error(Fault::kData,
                  "{}: byte {}: unknown type of ids: got {}, wanted 1..5 or 8; is the file "
                  "damaged?",
                  file, offset, code);
  }
}

template <typename T>
void convert(const std::byte* source, std::span<std::int32_t> out) {
  for (std::size_t i = 0; i < out.size(); ++i) {
    T value;
    std::memcpy(&value, source + i * sizeof(T), sizeof(T));
    out[i] = static_cast<std::int32_t>(value);
  }
}

}  // namespace

int bytes_of(IdType type) {
  switch (type) {
    case IdType::kUint8:
    case IdType::kInt8:
      return 1;
    case IdType::kInt16:
    case IdType::kUint16:
      return 2;
    case IdType::kInt32:
      return 4;
    case IdType::kInt64:
      return 8;
  }
  PITON_ASSERT(false, "id type {}", static_cast<int>(type));
  return 0;
}

IdType id_type_for(std::int64_t vocabulary) {
  return vocabulary < 65500 ? IdType::kUint16 : IdType::kInt32;
}

IndexedDataset IndexedDataset::open(const std::string& prefix, Check check) {
  IndexedDataset corpus{MappedFile(prefix + ".idx"), MappedFile(prefix + ".bin")};
  corpus.prefix_ = prefix;
  if (corpus.index_.text().starts_with(kOldMagic)) {
    corpus.convert_old_index();
  } else {
    corpus.read_mapped_header();
  }
  if (check == Check::kWhole) corpus.check_arrays();
  return corpus;
}

void IndexedDataset::read_mapped_header() {
  const std::string file = index_.path().string();
  const std::string_view head = index_.text().substr(0, kMagic.size());
  if (head != kMagic) {
    throw Error(Fault::kData,
                "{}: not a token index: starts with \"{}\"{}, wanted \"MMIDIDX\\x00\\x00\" or "
                "\"TNTIDX\\x00\\x00\"; make it with piton preprocess",
                file, printable(head.substr(0, 8)), guess(index_.text()));
  }
  const auto size = static_cast<std::int64_t>(index_.bytes().size());
  if (size < kHeaderBytes) {
    throw Error(Fault::kData,
                "{}: the header is cut off: got {} bytes, wanted at least {}; copy the file "
                "again",
                file, size, kHeaderBytes);
  }
  const std::byte* base = index_.bytes().data();
  const auto version = load<std::uint64_t>(base + 9, 0);
  if (version != 1) {
    throw Error(Fault::kData, "{}: byte 9: unknown version of the format: got {}, wanted 1", file,
                version);
  }
  type_ = checked_type(std::to_integer<std::uint64_t>(base[17]), file, 17);
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
  lengths_ = base + kHeaderBytes;
  pointers_ = lengths_ + 4 * sequences_;
  documents_ = pointers_ + 8 * sequences_;

  // The last sequence's end is the size of the .bin, whatever the check.
  const auto ids_bytes = static_cast<std::int64_t>(ids_.bytes().size());
  std::int64_t end = 0;
  if (sequences_ > 0) {
    const auto last = load<std::int64_t>(pointers_, sequences_ - 1);
    const std::int64_t length = this->length(sequences_ - 1);
    if (last < 0 || length < 0 || last > ids_bytes)
      end = -1;
    else
      end = last + length * bytes_of(type_);
  }
  if (end != ids_bytes) {
    throw Error(Fault::kData,
                "{}: {} bytes, but {} ends at byte {}; one of the two is truncated or from "
                "another corpus, copy both again",
                ids_.path().string(), ids_bytes, file, end);
  }
  tokens_ = ids_bytes / bytes_of(type_);
}

void IndexedDataset::convert_old_index() {
  const std::string file = index_.path().string();
  const auto size = static_cast<std::uint64_t>(index_.bytes().size());
  if (size < kOldHeaderBytes) {
    throw Error(Fault::kData,
                "{}: the header is cut off: got {} bytes, wanted at least {}; copy the file "
                "again",
                file, size, kOldHeaderBytes);
  }
  const std::byte* base = index_.bytes().data();
  const auto field = [&](int i) { return load<std::uint64_t>(base + 8, i); };
  if (field(0) != 1) {
    throw Error(Fault::kData, "{}: byte 8: unknown version of the format: got {}, wanted 1", file,
                field(0));
  }
  type_ = checked_type(field(1), file, 16);
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
  converted_ = std::make_unique<std::byte[]>(12 * sequences + 8 * boundaries);
  std::byte* out_lengths = converted_.get();
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
                  "{}: sequence {}: {} ids from id {} to {}; wanted them to follow each other; "
                  "the file is damaged",
                  file, i, length, start, end);
    }
    const auto narrow = static_cast<std::int32_t>(length);
    const std::int64_t pointer = ids * bytes_of(type_);
    std::memcpy(out_lengths + 4 * i, &narrow, 4);
    std::memcpy(out_pointers + 8 * i, &pointer, 8);
    ids += length;
  }
  std::memcpy(out_documents, documents, 8 * boundaries);
  lengths_ = out_lengths;
  pointers_ = out_pointers;
  documents_ = out_documents;
  const auto ids_bytes = static_cast<std::int64_t>(ids_.bytes().size());
  if (ids * bytes_of(type_) != ids_bytes) {
    throw Error(Fault::kData,
                "{}: {} bytes, but {} ends at byte {}; one of the two is truncated or from "
                "another corpus, copy both again",
                ids_.path().string(), ids_bytes, file, ids * bytes_of(type_));
  }
  tokens_ = ids;
}

void IndexedDataset::check_arrays() const {
  const std::string file = index_.path().string();
  const bool mapped = converted_ == nullptr;
  const auto offset = [&](const std::byte* array, std::int64_t i, int width) {
    return mapped ? array - index_.bytes().data() + i * width : i * width;
  };
  const auto ids_bytes = static_cast<std::int64_t>(ids_.bytes().size());
  const int width = bytes_of(type_);
  std::int64_t pointer = 0;
  for (std::int64_t i = 0; i < sequences_; ++i) {
    const std::int64_t length = this->length(i);
    if (length < 0) {
      throw Error(Fault::kData,
                  "{}: byte {}: sequence {} has a negative length: got {}; the file is damaged, "
                  "copy it again",
                  file, offset(lengths_, i, 4), i, length);
    }
    if (load<std::int64_t>(pointers_, i) != pointer) {
      throw Error(Fault::kData,
                  "{}: byte {}: sequence {} starts at byte {} of the ids, wanted {}, the end of "
                  "the one before; the file is damaged, copy it again",
                  file, offset(pointers_, i, 8), i, load<std::int64_t>(pointers_, i), pointer);
    }
    // Stays below ids_bytes + 2^34, so the sum cannot wrap.
    pointer += length * width;
    if (pointer > ids_bytes) {
      throw Error(Fault::kData,
                  "{}: byte {}: sequence {} ends at byte {} of the ids, which have {}; copy both "
                  "files again",
                  file, offset(lengths_, i, 4), i, pointer, ids_bytes);
    }
  }
  std::int64_t before = 0;
  for (std::int64_t i = 0; i < boundaries_; ++i) {
    const std::int64_t start = document_start(i);
    const bool last = i == boundaries_ - 1;
    if ((i == 0 && start != 0) || start < before || start > sequences_ ||
        (last && start != sequences_)) {
      throw Error(Fault::kData,
                  "{}: byte {}: document boundary {} of {} is {}; wanted 0 first, {} last and "
                  "none below the one before ({}); the file is damaged, copy it again",
                  file, offset(documents_, i, 8), i, boundaries_, start, sequences_, before);
    }
    before = start;
  }
}

void IndexedDataset::read(std::int64_t sequence, std::int64_t first,
                          std::span<std::int32_t> out) const {
  PITON_ASSERT(sequence >= 0 && sequence < sequences_, "sequence {} of {}", sequence, sequences_);
  const auto count = static_cast<std::int64_t>(out.size());
  PITON_ASSERT(first >= 0 && first + count <= length(sequence), "ids {}+{} of a sequence of {}",
               first, count, length(sequence));
  const int width = bytes_of(type_);
  const std::int64_t start = load<std::int64_t>(pointers_, sequence) + first * width;
  // With kHeader a pointer was not looked at; a damaged index must still not read outside.
  if (start < 0 || start + count * width > static_cast<std::int64_t>(ids_.bytes().size())) {
    throw Error(Fault::kData,
                "{}: sequence {} lies outside the ids; the file changed after it was checked",
                index_.path().string(), sequence);
  }
  const std::byte* source = ids_.bytes().data() + start;
  switch (type_) {
    case IdType::kUint8:
      return convert<std::uint8_t>(source, out);
    case IdType::kInt8:
      return convert<std::int8_t>(source, out);
    case IdType::kInt16:
      return convert<std::int16_t>(source, out);
    case IdType::kUint16:
      return convert<std::uint16_t>(source, out);
    case IdType::kInt32:
      std::memcpy(out.data(), source, out.size_bytes());
      return;
    case IdType::kInt64:
      for (std::size_t i = 0; i < out.size(); ++i) {
        const auto id = load<std::int64_t>(source, static_cast<std::int64_t>(i));
        if (id != static_cast<std::int32_t>(id)) {
          throw Error(Fault::kData, "{}: byte {}: id {} does not fit 32 bits", ids_.path().string(),
                      start + static_cast<std::int64_t>(i) * 8, id);
        }
        out[i] = static_cast<std::int32_t>(id);
      }
  }
}

std::string IndexedDataset::fingerprint() const {
  StreamHash hash;
  const auto add = [&](auto value) { hash.add(std::as_bytes(std::span(&value, 1))); };
  for (const MappedFile* file : {&index_, &ids_}) {
    struct stat status {};
    if (::stat(file->path().c_str(), &status) != 0) {
      throw Error(Fault::kData, "{}: cannot be looked at: {}", file->path().string(),
                  system_message(errno));
    }
    add(static_cast<std::int64_t>(status.st_size));
    add(static_cast<std::int64_t>(status.st_mtim.tv_sec));
    add(static_cast<std::int64_t>(status.st_mtim.tv_nsec));
    const auto bytes = file->bytes();
    constexpr std::size_t kPage = 4096;
    constexpr std::size_t kPages = 64;
    if (bytes.size() <= kPage * kPages) {
      hash.add(bytes);
    } else {
      for (std::size_t i = 0; i < kPages; ++i) {
        hash.add(bytes.subspan((bytes.size() - kPage) / (kPages - 1) * i, kPage));
      }
      hash.add(bytes.last(kPage));
    }
  }
  return hash.hex();
}

}  // namespace piton
