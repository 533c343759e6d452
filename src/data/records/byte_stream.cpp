#include "data/records/byte_stream.h"

#include <bzlib.h>
#include <fcntl.h>
#include <lzma.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <limits>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"

namespace piton {
namespace {

constexpr std::size_t kInputBytes = 1 << 18;
// Memory limit for unpacking one file, equal to zstd's own limit on windows: all of preprocessing
// must stay below 512 MB. xz -9 needs 65 MiB.
constexpr std::uint64_t kUnpackMemoryBytes = 128 << 20;

// Packed bytes of the file, with a window that decoders take from.
class RawFile {
 public:
  explicit RawFile(const std::string& path) : name_(path == "-" ? "standard input" : path) {
    if (path == "-") {
      file_ = STDIN_FILENO;
    } else {
      file_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
      if (file_ < 0) fail("cannot be opened");
      ::posix_fadvise(file_, 0, 0, POSIX_FADV_SEQUENTIAL);
    }
    buffer_.resize(kInputBytes);
  }
  ~RawFile() {
    if (file_ > STDIN_FILENO) ::close(file_);
  }
  RawFile(const RawFile&) = delete;
  RawFile& operator=(const RawFile&) = delete;

  // Bytes not yet taken; refilled when empty, still empty at the end of the file.
  std::string_view window() {
    if (begin_ == end_ && !ended_) refill(0);
    return {buffer_.data() + begin_, end_ - begin_};
  }
  // As window(), with at least `count` bytes if the file has them.
  std::string_view window(std::size_t count) {
    while (end_ - begin_ < count && !ended_) {
      std::memmove(buffer_.data(), buffer_.data() + begin_, end_ - begin_);
      end_ -= begin_;
      begin_ = 0;
      refill(end_);
    }
    return {buffer_.data() + begin_, end_ - begin_};
  }
  void take(std::size_t count) {
    begin_ += count;
    consumed_ += static_cast<std::int64_t>(count);
  }
  std::int64_t consumed() const { return consumed_; }
  const std::string& name() const { return name_; }

  [[noreturn]] void damaged(std::string_view packer, std::string_view what) const {
    throw Error(Fault::kData, "{}: byte {} of the packed file: {}: {}; fetch the file again", name_,
                consumed_, packer, what);
  }

 private:
  void refill(std::size_t from) {
    while (true) {
      const ssize_t got = ::read(file_, buffer_.data() + from, buffer_.size() - from);
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) fail("cannot be read");
      begin_ = from == 0 ? 0 : begin_;
      end_ = from + static_cast<std::size_t>(got);
      ended_ = got == 0;
      return;
    }
  }
  [[noreturn]] void fail(const char* what) const {
    throw Error(Fault::kData, "{}: {}: {}", name_, what, system_message(errno));
  }

  std::string name_;
  int file_ = -1;
  std::vector<char> buffer_;
  std::size_t begin_ = 0;
  std::size_t end_ = 0;
  bool ended_ = false;
  std::int64_t consumed_ = 0;
};

class FileStream : public ByteStream {
 public:
  explicit FileStream(std::unique_ptr<RawFile> file) : file_(std::move(file)) {}
  std::int64_t consumed_bytes() const override { return file_->consumed(); }

 protected:
  std::unique_ptr<RawFile> file_;
};

class PlainStream final : public FileStream {
 public:
  using FileStream::FileStream;
  std::size_t read(std::span<char> out) override {
    const std::string_view bytes = file_->window();
    const std::size_t count = std::min(bytes.size(), out.size());
    std::memcpy(out.data(), bytes.data(), count);
    file_->take(count);
    return count;
  }
};

// A packed file is a sequence of members; zero bytes after the last one are padding (tapes).
// Decoders implement step(): unpack part of `in` into `out` and return how far they came.
class PackedStream : public FileStream {
 public:
  PackedStream(std::unique_ptr<RawFile> file, std::string_view packer)
      : FileStream(std::move(file)), packer_(packer) {}

  std::size_t read(std::span<char> out) final {
    while (!finished_) {
      std::string_view in = file_->window();
      if (!inside_) {
        if (in.empty()) {
          finished_ = true;
          break;
        }
        if (members_ > 0 && in[0] == '\0') {
          file_->take(1);
          continue;
        }
        restart();
        inside_ = true;
        in = file_->window();
      }
      const Step step = this->step(in, out);
      file_->take(step.taken);
      if (step.ended) {
        inside_ = false;
        ++members_;
      } else if (in.empty() && step.given == 0) {
        file_->damaged(packer_, "the file ends in the middle of its data");
      }
      if (step.given > 0) return step.given;
    }
    return 0;
  }

 protected:
  struct Step {
    std::size_t taken = 0;
    std::size_t given = 0;
    bool ended = false;  // the member
  };
  virtual void restart() = 0;
  virtual Step step(std::string_view in, std::span<char> out) = 0;
  [[noreturn]] void damaged(std::string_view what) const { file_->damaged(packer_, what); }

 private:
  std::string_view packer_;
  bool inside_ = false;
  bool finished_ = false;
  std::int64_t members_ = 0;
};

class GzipStream final : public PackedStream {
 public:
  explicit GzipStream(std::unique_ptr<RawFile> file) : PackedStream(std::move(file), "gzip") {
    PITON_ASSERT(::inflateInit2(&state_, 15 + 16) == Z_OK, "inflateInit2");
  }
  ~GzipStream() override { ::inflateEnd(&state_); }

 private:
  void restart() override { ::inflateReset(&state_); }
  Step step(std::string_view in, std::span<char> out) override {
    state_.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(in.data()));
    state_.avail_in = static_cast<uInt>(in.size());
    state_.next_out = reinterpret_cast<Bytef*>(out.data());
    state_.avail_out =
        static_cast<uInt>(std::min<std::size_t>(out.size(), std::numeric_limits<uInt>::max()));
    const uInt room = state_.avail_out;
    const int code = ::inflate(&state_, Z_NO_FLUSH);
    if (code != Z_OK && code != Z_STREAM_END && code != Z_BUF_ERROR) {
      damaged(state_.msg != nullptr ? state_.msg : "the data is damaged");
    }
    return {in.size() - state_.avail_in, room - state_.avail_out, code == Z_STREAM_END};
  }
  z_stream state_{};
};

class ZstdStream final : public PackedStream {
 public:
  explicit ZstdStream(std::unique_ptr<RawFile> file)
      : PackedStream(std::move(file), "zstd"), state_(::ZSTD_createDStream()) {
    PITON_ASSERT(state_ != nullptr, "ZSTD_createDStream");
    // The library has its own limit on windows.
  }
  ~ZstdStream() override { ::ZSTD_freeDStream(state_); }

 private:
  // Of the longest header of a frame (RFC 8878, 3.1.1.1), with the magic number.
  static constexpr std::size_t kHeaderBytes = 18;

  void restart() override {
    ::ZSTD_initDStream(state_);
    const std::string_view head = file_->window(kHeaderBytes);
    size_ = ::ZSTD_getFrameContentSize(head.data(), head.size());
    taken_ = given_ = 0;
  }
  Step step(std::string_view in, std::span<char> out) override {
    // The library unpacks a frame at once if all of it is there and `out` has room, and then
    // refuses some damage that it does not see otherwise. It does not do so where a header comes in
    // pieces.
    const std::size_t most = taken_ < kHeaderBytes ? 1 : in.size();
    ZSTD_inBuffer input{in.data(), std::min(most, in.size()), 0};
    ZSTD_outBuffer output{out.data(), out.size(), 0};
    const std::size_t code = ::ZSTD_decompressStream(state_, &output, &input);
    if (::ZSTD_isError(code) != 0) damaged(::ZSTD_getErrorName(code));
    taken_ += input.pos;
    given_ += output.pos;
    const bool known = size_ != ZSTD_CONTENTSIZE_UNKNOWN && size_ != ZSTD_CONTENTSIZE_ERROR;
    if (code == 0 && known && given_ != size_)
      damaged(fmt::format("{} bytes, and its header says {}", given_, size_));
    return {input.pos, output.pos, code == 0};
  }
  ZSTD_DStream* state_;
  unsigned long long size_ = 0;  // of the frame, as its header says it
  std::uint64_t taken_ = 0;      // of its packed bytes
  std::uint64_t given_ = 0;
};

class Bzip2Stream final : public PackedStream {
 public:
  explicit Bzip2Stream(std::unique_ptr<RawFile> file) : PackedStream(std::move(file), "bzip2") {}
  ~Bzip2Stream() override {
    if (open_) ::BZ2_bzDecompressEnd(&state_);
  }

 private:
  void restart() override {
    if (open_) ::BZ2_bzDecompressEnd(&state_);
    state_ = {};
    PITON_ASSERT(::BZ2_bzDecompressInit(&state_, 0, 0) == BZ_OK, "BZ2_bzDecompressInit");
    open_ = true;
  }
  Step step(std::string_view in, std::span<char> out) override {
    state_.next_in = const_cast<char*>(in.data());
    state_.avail_in = static_cast<unsigned>(in.size());
    state_.next_out = out.data();
    state_.avail_out = static_cast<unsigned>(
        std::min<std::size_t>(out.size(), std::numeric_limits<unsigned>::max()));
    const unsigned room = state_.avail_out;
    const int code = ::BZ2_bzDecompress(&state_);
    if (code != BZ_OK && code != BZ_STREAM_END) {
      damaged(code == BZ_DATA_ERROR_MAGIC ? "not bzip2 data" : "the data is damaged");
    }
    return {in.size() - state_.avail_in, room - state_.avail_out, code == BZ_STREAM_END};
  }
  bz_stream state_{};
  bool open_ = false;
};

class XzStream final : public PackedStream {
 public:
  explicit XzStream(std::unique_ptr<RawFile> file) : PackedStream(std::move(file), "xz") {}
  ~XzStream() override { ::lzma_end(&state_); }

 private:
  void restart() override {
    PITON_ASSERT(::lzma_stream_decoder(&state_, kUnpackMemoryBytes, 0) == LZMA_OK,
                 "lzma_stream_decoder");
  }
  Step step(std::string_view in, std::span<char> out) override {
    state_.next_in = reinterpret_cast<const std::uint8_t*>(in.data());
    state_.avail_in = in.size();
    state_.next_out = reinterpret_cast<std::uint8_t*>(out.data());
    state_.avail_out = out.size();
    const lzma_ret code = ::lzma_code(&state_, LZMA_RUN);
    if (code == LZMA_MEMLIMIT_ERROR) {
      throw Error(Fault::kData,
                  "{}: unpacking takes {} MiB, wanted at most {}; pack it again with xz -9 or less",
                  file_->name(), ::lzma_memusage(&state_) >> 20, kUnpackMemoryBytes >> 20);
    }
    if (code != LZMA_OK && code != LZMA_STREAM_END && code != LZMA_BUF_ERROR) {
      damaged(code == LZMA_MEM_ERROR ? "out of memory" : "the data is damaged");
    }
    return {in.size() - state_.avail_in, out.size() - state_.avail_out, code == LZMA_STREAM_END};
  }
  lzma_stream state_ = LZMA_STREAM_INIT;
};

}  // namespace

std::unique_ptr<ByteStream> open_byte_stream(const std::string& path) {
  auto file = std::make_unique<RawFile>(path);
  const std::string_view head = file->window(6);
  if (head.starts_with("\x1f\x8b")) return std::make_unique<GzipStream>(std::move(file));
  if (head.starts_with("\x28\xb5\x2f\xfd")) return std::make_unique<ZstdStream>(std::move(file));
  if (head.size() > 3 && head.starts_with("BZh") && head[3] >= '1' && head[3] <= '9') {
    return std::make_unique<Bzip2Stream>(std::move(file));
  }
  if (head.starts_with(std::string_view("\xfd\x37zXZ\0", 6)))
    return std::make_unique<XzStream>(std::move(file));
  return std::make_unique<PlainStream>(std::move(file));
}

std::string unpacked_name(const std::string& path) {
  for (const std::string_view ending : {".gz", ".zst", ".zstd", ".bz2", ".xz"}) {
    if (path.ends_with(ending)) return path.substr(0, path.size() - ending.size());
  }
  return path;
}

}  // namespace piton
