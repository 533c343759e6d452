#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <limits>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/files/files.h"
#include "base/files/interrupted.h"
#include "data/corpus/indexed_dataset.h"

namespace piton {
namespace {

// A buffered file that grows at its end and can be truncated. After sync(), its contents survive a
// crash.
class GrowingFile {
 public:
  // `keep`: bytes to keep of an existing file; absent: creates a new file.
  GrowingFile(std::string path, std::optional<std::int64_t> keep)
      : path_(std::move(path)), size_(keep.value_or(0)) {
    const std::int64_t keep_bytes = size_;
    file_ = until_uninterrupted([&] {
      return ::open(path_.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW | (keep ? 0 : O_CREAT | O_EXCL),
                    0640);
    });
    if (file_ < 0 && errno == EEXIST) {
      throw Error(Fault::kUsage,
                  "{}: is there already, and no journal says that it is this run's; move it away, "
                  "or choose another prefix",
                  path_);
    }
    if (file_ < 0) fail(keep ? "cannot be opened" : "cannot be created");
    ::fchmod(file_, 0640);
    struct stat status {};
    if (::fstat(file_, &status) != 0) fail("cannot be looked at");
    if (status.st_size < keep_bytes) {
      const auto got = static_cast<std::int64_t>(status.st_size);
      ::close(file_);
      throw Error(Fault::kData,
                  "{}: shorter than when it was left: got {} bytes, wanted {}; remove it and "
                  "start again",
                  path_, got, keep_bytes);
    }
    if (until_uninterrupted([&] { return ::ftruncate(file_, keep_bytes); }) != 0) {
      fail("cannot be cut back");
    }
    buffer_.reserve(kBufferBytes);
  }
  ~GrowingFile() {
    if (file_ >= 0) ::close(file_);
  }
  GrowingFile(const GrowingFile&) = delete;
  GrowingFile& operator=(const GrowingFile&) = delete;

  void write(std::span<const std::byte> bytes) {
    if (buffer_.size() + bytes.size() > kBufferBytes || bytes.size() >= kDirectBytes) drain();
    if (bytes.size() >= kDirectBytes) {
      put(bytes);
    } else {
      buffer_.insert(buffer_.end(), bytes.begin(), bytes.end());
    }
    size_ += static_cast<std::int64_t>(bytes.size());
  }

  template <typename T>
  void write_value(T value) {
    write(std::as_bytes(std::span(&value, 1)));
  }

  void sync() {
    drain();
    if (until_uninterrupted([&] { return ::fdatasync(file_); }) != 0)
      fail("cannot be flushed to the disk");
  }

  // Calls `use` on all bytes from the start, in pieces of whole 8-byte items.
  template <typename F>
  void read_all(const F& use) {
    drain();
    std::vector<std::byte> piece(kBufferBytes);
    for (std::int64_t at = 0; at < size_;) {
      std::size_t filled = 0;
      while (filled < piece.size() && at + static_cast<std::int64_t>(filled) < size_) {
        const ssize_t got = until_uninterrupted([&] {
          return ::pread(file_, piece.data() + filled, piece.size() - filled,
                         at + static_cast<std::int64_t>(filled));
        });
        if (got <= 0) fail("cannot be read back");
        filled += static_cast<std::size_t>(got);
      }
      use(std::span<const std::byte>(piece.data(), filled));
      at += static_cast<std::int64_t>(filled);
    }
  }

  const std::string& path() const { return path_; }
  std::int64_t size() const { return size_; }

 private:
  static constexpr std::size_t kBufferBytes = 1 << 16;
  // From this size on, a system call costs less than a copy into the buffer.
  static constexpr std::size_t kDirectBytes = 1 << 14;

  void drain() {
    put(buffer_);
    buffer_.clear();
  }

  // If it throws, nothing has changed: bytes that were written are written again.
  void put(std::span<const std::byte> bytes) {
    std::int64_t at = written_;
    while (!bytes.empty()) {
      const ssize_t done =
          until_uninterrupted([&] { return ::pwrite(file_, bytes.data(), bytes.size(), at); });
      if (done < 0) fail("cannot be written");
      bytes = bytes.subspan(static_cast<std::size_t>(done));
      at += done;
    }
    written_ = at;
  }

  [[noreturn]] void fail(const char* what) const {
    throw Error(Fault::kData, "{}: {}: {}", path_, what, system_message(errno));
  }

  std::string path_;
  int file_ = -1;
  std::int64_t size_ = 0;
  std::int64_t written_ = size_;  // bytes in the file, without the buffer
  std::vector<std::byte> buffer_;
};

std::string with_folders(std::string prefix) {
  const auto folder = std::filesystem::path(prefix).parent_path();
  if (!folder.empty()) create_folders(folder);
  return prefix;
}

}  // namespace

std::array<std::string, 3> partial_names(const std::string& prefix) {
  return {prefix + ".bin.partial", prefix + ".lengths.partial", prefix + ".documents.partial"};
}

void append_ids(std::span<const std::int32_t> ids, IdType type, std::vector<std::byte>& out) {
  PITON_ASSERT(type == IdType::kUint16 || type == IdType::kInt32, "ids of type {}",
               static_cast<int>(type));
  if (type == IdType::kInt32) {
    const auto bytes = std::as_bytes(ids);
    out.insert(out.end(), bytes.begin(), bytes.end());
    return;
  }
  const std::size_t before = out.size();
  out.resize(before + ids.size() * 2);
  std::byte* const to = out.data() + before;
  std::uint32_t all = 0;  // one check after the loop, so that the loop is vectorized
  for (std::size_t i = 0; i < ids.size(); ++i) {
    all |= static_cast<std::uint32_t>(ids[i]);
    const auto id = static_cast<std::uint16_t>(ids[i]);
    std::memcpy(to + 2 * i, &id, 2);
  }
  PITON_ASSERT(all <= 0xFFFF, "an id beyond 65535 in a corpus of 16-bit ids");
}

struct IndexedWriter::State {
  State(std::string name, IdType id_type, const std::optional<Position>& from)
      : prefix(with_folders(std::move(name))),
        type(id_type),
        position(from.value_or(Position{})),
        ids(partial_names(prefix)[0], kept(from, position.ids_bytes)),
        lengths(partial_names(prefix)[1], kept(from, position.sequences * 4)),
        documents(partial_names(prefix)[2], kept(from, position.documents * 8)) {}

  static std::optional<std::int64_t> kept(const std::optional<Position>& from, std::int64_t bytes) {
    return from ? std::optional(bytes) : std::nullopt;
  }

  ~State() {
    if (!finished && !keep) remove_partial_files(prefix);
  }

  std::string prefix;
  IdType type;
  Position position;
  GrowingFile ids;
  GrowingFile lengths;    // i32 each
  GrowingFile documents;  // i64 each: the end of the document
  std::vector<std::byte> converted;
  bool keep = false;
  bool finished = false;
};

IndexedWriter::IndexedWriter(std::string prefix, IdType type, std::optional<Position> resume)
    : state_(std::make_unique<State>(std::move(prefix), type, resume)) {
  PITON_ASSERT(type == IdType::kUint16 || type == IdType::kInt32, "writer of type {}",
               static_cast<int>(type));
}

IndexedWriter::~IndexedWriter() = default;
IndexedWriter::IndexedWriter(IndexedWriter&&) noexcept = default;

void IndexedWriter::add_sequence(std::span<const std::int32_t> ids) {
  State& s = *state_;
  if (ids.size() > static_cast<std::size_t>(std::numeric_limits<std::int32_t>::max())) {
    throw Error(Fault::kData,
                "{}: a sequence of {} ids; the format holds at most 2147483647 in one", s.prefix,
                ids.size());
  }
  s.converted.clear();
  append_ids(ids, s.type, s.converted);
  s.ids.write(s.converted);
  s.lengths.write_value(static_cast<std::int32_t>(ids.size()));
  s.position.ids_bytes = s.ids.size();
  ++s.position.sequences;
}

void IndexedWriter::end_document() {
  state_->documents.write_value(state_->position.sequences);
  ++state_->position.documents;
}

void IndexedWriter::add_documents(std::span<const std::byte> ids,
                                  std::span<const std::int32_t> lengths,
                                  std::span<const std::int32_t> sequences) {
  State& s = *state_;
  std::int64_t length = 0;
  for (const std::int32_t one : lengths) length += one;
  PITON_ASSERT(length * bytes_of(s.type) == static_cast<std::int64_t>(ids.size()),
               "{} bytes of ids, lengths say {}", ids.size(), length * bytes_of(s.type));
  const std::int64_t first = s.position.sequences;
  s.ids.write(ids);
  s.lengths.write(std::as_bytes(lengths));
  s.position.ids_bytes = s.ids.size();
  for (const std::int32_t count : sequences) {
    s.position.sequences += count;
    end_document();
  }
  PITON_ASSERT(s.position.sequences - first == static_cast<std::int64_t>(lengths.size()),
               "{} sequences, documents say {}", lengths.size(), s.position.sequences - first);
}

void IndexedWriter::add_corpus(const IndexedDataset& corpus) {
  State& s = *state_;
  if (corpus.type() != s.type) {
    throw Error(Fault::kUsage,
                "{}: ids of type {} cannot be merged into {} with type {}; corpora of one "
                "tokenizer have one type",
                corpus.prefix(), static_cast<int>(corpus.type()), s.prefix,
                static_cast<int>(s.type));
  }
  // Sequences have no gaps, so bytes and lengths are copied as they are.
  constexpr std::int64_t kBytes = 1 << 20;
  const std::int64_t first_sequence = s.position.sequences;
  const std::int64_t ids_bytes = corpus.tokens() * bytes_of(s.type);
  std::vector<std::byte> bytes;
  for (std::int64_t at = 0; at < ids_bytes; at += kBytes) {
    bytes.resize(static_cast<std::size_t>(std::min(kBytes, ids_bytes - at)));
    corpus.read_bytes(at, bytes);
    s.ids.write(bytes);
  }
  s.position.ids_bytes = s.ids.size();
  constexpr std::int64_t kBlock = IndexedDataset::kBlock;
  for (std::int64_t at = 0; at < corpus.sequences(); at += kBlock) {
    const std::vector<std::int32_t> lengths =
        corpus.lengths(at, std::min(kBlock, corpus.sequences() - at));
    s.lengths.write(std::as_bytes(std::span(lengths)));
  }
  s.position.sequences += corpus.sequences();
  // The entry of a document is its end, the start of the next one.
  for (std::int64_t at = 1; at <= corpus.documents(); at += kBlock) {
    for (const std::int64_t start :
         corpus.document_starts(at, std::min(kBlock, corpus.documents() + 1 - at))) {
      s.documents.write_value(first_sequence + start);
      ++s.position.documents;
    }
  }
}

const IndexedWriter::Position& IndexedWriter::position() const { return state_->position; }

void IndexedWriter::flush() {
  state_->ids.sync();
  state_->lengths.sync();
  state_->documents.sync();
}

void IndexedWriter::keep_partial() { state_->keep = true; }

void IndexedWriter::finish() {
  State& s = *state_;
  PITON_ASSERT(!s.finished, "corpus {} finished twice", s.prefix);
  AtomicFile index(s.prefix + ".idx");
  const auto write_value = [&](auto value) { index.write(std::as_bytes(std::span(&value, 1))); };
  index.write(std::string_view("MMIDIDX\0\0", 9));
  write_value(std::uint64_t{1});
  write_value(static_cast<std::uint8_t>(s.type));
  write_value(static_cast<std::uint64_t>(s.position.sequences));
  write_value(static_cast<std::uint64_t>(s.position.documents + 1));
  s.lengths.read_all([&](std::span<const std::byte> piece) { index.write(piece); });
  std::int64_t pointer = 0;
  std::vector<std::int64_t> pointers;
  s.lengths.read_all([&](std::span<const std::byte> piece) {
    pointers.clear();
    for (std::size_t at = 0; at < piece.size(); at += 4) {
      std::int32_t length;
      std::memcpy(&length, piece.data() + at, 4);
      pointers.push_back(pointer);
      pointer += std::int64_t{length} * bytes_of(s.type);
    }
    index.write(std::as_bytes(std::span<const std::int64_t>(pointers)));
  });
  write_value(std::int64_t{0});
  s.documents.read_all([&](std::span<const std::byte> piece) { index.write(piece); });
  PITON_ASSERT(pointer == s.position.ids_bytes, "{} bytes of ids, lengths say {}",
               s.position.ids_bytes, pointer);

  s.ids.sync();
  // An index of an earlier corpus of this name must not remain next to the new ids.
  std::error_code ignored;
  std::filesystem::remove(s.prefix + ".idx", ignored);
  std::error_code failure;
  std::filesystem::rename(s.ids.path(), s.prefix + ".bin", failure);
  if (failure)
    throw Error(Fault::kData, "{}.bin: cannot be put in place: {}", s.prefix, failure.message());
  index.commit();
  s.finished = true;
  std::filesystem::remove(s.lengths.path(), ignored);
  std::filesystem::remove(s.documents.path(), ignored);
}

bool partial_files_reach(const std::string& prefix, const IndexedWriter::Position& position) {
  const auto names = partial_names(prefix);
  const std::array<std::int64_t, 3> wanted = {position.ids_bytes, position.sequences * 4,
                                              position.documents * 8};
  for (std::size_t i = 0; i < names.size(); ++i) {
    std::error_code code;
    const auto size = std::filesystem::file_size(names[i], code);
    if (code || static_cast<std::int64_t>(size) < wanted[i]) return false;
  }
  return true;
}

void restore_partial_files(const std::string& prefix, const IndexedWriter::Position& position) {
  const auto names = partial_names(prefix);
  std::error_code code;
  if (std::filesystem::exists(names[0], code) || std::filesystem::exists(prefix + ".idx", code) ||
      !std::filesystem::exists(names[1], code) || !std::filesystem::exists(names[2], code)) {
    return;
  }
  const auto size = std::filesystem::file_size(prefix + ".bin", code);
  if (code || static_cast<std::int64_t>(size) != position.ids_bytes) return;
  std::filesystem::rename(prefix + ".bin", names[0], code);
}

bool corpus_is_finished(const std::string& prefix, const IndexedWriter::Position& position) {
  std::error_code absent;
  if (!std::filesystem::exists(prefix + ".idx", absent)) return false;
  try {
    const auto corpus = IndexedDataset::open(prefix, IndexedDataset::Check::kHeader);
    return corpus.sequences() == position.sequences && corpus.documents() == position.documents &&
           corpus.tokens() * bytes_of(corpus.type()) == position.ids_bytes;
  } catch (const Error&) {
    return false;
  }
}

void remove_partial_files(const std::string& prefix) {
  std::error_code ignored;
  for (const std::string& name : partial_names(prefix)) std::filesystem::remove(name, ignored);
}

}  // namespace piton
