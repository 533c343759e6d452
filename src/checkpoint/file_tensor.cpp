#include "checkpoint/file_tensor.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <span>

#include "base/error.h"
#include "base/hash.h"
#include "checkpoint/values.h"

namespace piton {
namespace {

// Bytes of a buffer: it stays in the second-level cache until its bytes are used.
constexpr std::int64_t kBlockBytes = std::int64_t{1} << 18;
// A file system reads whole pages: bytes between two stretches in one page cost nothing.
constexpr std::int64_t kPageBytes = 4096;
// Stretches this close are fetched with what is between them: one large request takes a disk less
// time than many small ones.
constexpr std::int64_t kFetchedGap = std::int64_t{1} << 16;

std::unique_ptr<std::byte[]> block(std::int64_t bytes) {
  return std::make_unique_for_overwrite<std::byte[]>(static_cast<std::size_t>(bytes));
}

std::int64_t row_of(const Shape& shape) {
  std::int64_t elements = 1;
  for (int dim = 1; dim < shape.ndim(); ++dim) elements *= shape[dim];
  return elements;
}

// Buffered reading of a file: keeps the bytes around the last ones asked for.
class Window {
 public:
  // Bytes from `end` on are not read.
  Window(const RegularFile& file, std::int64_t end) : file_(file), end_(end) {}

  void copy(std::int64_t offset, std::int64_t bytes, std::byte* dst) {
    if (bytes > kBlockBytes) return file_.read_at(offset, {dst, static_cast<std::size_t>(bytes)});
    if (offset < begin_ || offset + bytes > begin_ + size_) fill(offset);
    std::memcpy(dst, buffer_.get() + (offset - begin_), static_cast<std::size_t>(bytes));
  }

 private:
  void fill(std::int64_t offset) {
    if (!buffer_) buffer_ = block(kBlockBytes);
    begin_ = offset;
    size_ = std::min(kBlockBytes, end_ - offset);
    file_.read_at(offset, {buffer_.get(), static_cast<std::size_t>(size_)});
  }

  const RegularFile& file_;
  std::int64_t end_;
  std::int64_t begin_ = 0;
  std::int64_t size_ = 0;
  std::unique_ptr<std::byte[]> buffer_;
};

// Bytes of a tensor between the elements of two rows of the run.
std::int64_t gap_of(const FileTensor& tensor, const TensorRun& run) {
  return (row_of(tensor.shape) - row_of(run.extent)) * size_bytes(tensor.dtype);
}

// Read-ahead of a run that is read part by part, if its bytes are one stretch.
class Announced {
 public:
  Announced(const FileTensor& tensor, const TensorRun& run)
      : width_(size_bytes(tensor.dtype)),
        origin_(tensor.offset + run.start[0] * row_of(tensor.shape) * width_),
        ahead_(tensor.file, origin_ + run.begin * width_,
               origin_ + (gap_of(tensor, run) == 0 ? run.end : run.begin) * width_) {}

  void reading(const TensorRun& part) { ahead_.reading(origin_ + part.begin * width_); }

 private:
  std::int64_t width_;
  std::int64_t origin_;  // of the run's element 0
  ReadAhead ahead_;
};

// Reads the run's bytes as stored.
void read_stored(const FileTensor& tensor, const TensorRun& run, std::byte* dst) {
  if (run.begin >= run.end) return;
  const std::int64_t width = size_bytes(tensor.dtype);
  const auto stretches = [&](std::int64_t begin, auto&& each) {
    for_each_stretch(tensor.shape, {run.start, run.extent, begin, run.end},
                     [&](std::int64_t at, std::int64_t element, std::int64_t count) {
                       each(tensor.offset + at * width, (element - run.begin) * width,
                            count * width);
                     });
  };
  const std::int64_t gap = gap_of(tensor, run);
  if (gap > kPageBytes && gap <= kFetchedGap) {
    const std::int64_t row = row_of(tensor.shape) * width;
    const std::int64_t first = run.start[0] + run.begin / row_of(run.extent);
    const std::int64_t last = run.start[0] + (run.end - 1) / row_of(run.extent);
    tensor.file.will_read(tensor.offset + first * row, (last + 1 - first) * row);
  }
  if (gap == 0 || gap > kPageBytes) {
    stretches(run.begin, [&](std::int64_t from, std::int64_t to, std::int64_t bytes) {
      tensor.file.read_at(from, {dst + to, static_cast<std::size_t>(bytes)});
    });
    return;
  }
  std::int64_t end = 0;
  stretches(run.end - 1,
            [&](std::int64_t from, std::int64_t, std::int64_t bytes) { end = from + bytes; });
  Window window(tensor.file, end);
  stretches(run.begin, [&](std::int64_t from, std::int64_t to, std::int64_t bytes) {
    window.copy(from, bytes, dst + to);
  });
}

// Calls each(part of the run, its bytes), block by block.
template <typename F>
void for_each_block(const FileTensor& tensor, const TensorRun& run, F&& each) {
  const std::int64_t width = size_bytes(tensor.dtype);
  const std::int64_t step = kBlockBytes / width;
  const std::unique_ptr<std::byte[]> buffer = block(std::min(run.size(), step) * width);
  Announced announced(tensor, run);
  for (TensorRun part = run; part.begin < run.end; part.begin = part.end) {
    part.end = std::min(run.end, part.begin + step);
    announced.reading(part);
    read_stored(tensor, part, buffer.get());
    each(part, buffer.get());
  }
}

}  // namespace

void read_run(const FileTensor& tensor, const TensorRun& run, DType dtype, std::byte* dst) {
  PITON_ASSERT(run.begin >= 0 && run.begin <= run.end && run.end <= run.extent.elements(),
               "elements {} to {} of {}", run.begin, run.end, to_string(run.extent));
  if (dtype == tensor.dtype) return read_stored(tensor, run, dst);
  for_each_block(tensor, run, [&](const TensorRun& part, const std::byte* bytes) {
    convert_values(bytes, tensor.dtype, dst + (part.begin - run.begin) * size_bytes(dtype), dtype,
                   part.size());
  });
}

std::string read_whole(const FileTensor& tensor, DType dtype, std::byte* dst) {
  const TensorRun whole = whole_run(tensor.shape);
  const std::int64_t width = size_bytes(dtype);
  StreamHash hash;
  const auto add = [&](const TensorRun& part, const std::byte* bytes) {
    hash.add({bytes, static_cast<std::size_t>(part.size() * size_bytes(tensor.dtype))});
  };
  if (dtype != tensor.dtype) {
    for_each_block(tensor, whole, [&](const TensorRun& part, const std::byte* bytes) {
      add(part, bytes);
      convert_values(bytes, tensor.dtype, dst + part.begin * width, dtype, part.size());
    });
    return hash.hex();
  }
  Announced announced(tensor, whole);
  for (TensorRun part = whole; part.begin < whole.end; part.begin = part.end) {
    part.end = std::min(whole.end, part.begin + kBlockBytes / width);
    announced.reading(part);
    read_stored(tensor, part, dst + part.begin * width);
    add(part, dst + part.begin * width);
  }
  return hash.hex();
}

std::string hash_of_run(const FileTensor& tensor, const TensorRun& run) {
  StreamHash hash;
  for_each_block(tensor, run, [&](const TensorRun& part, const std::byte* bytes) {
    hash.add({bytes, static_cast<std::size_t>(part.size() * size_bytes(tensor.dtype))});
  });
  return hash.hex();
}

std::string hash_of_bytes(const RegularFile& file, std::int64_t offset, std::int64_t bytes) {
  const Shape shape{bytes};
  return hash_of_run({.file = file, .offset = offset, .dtype = DType::kU8, .shape = shape},
                     whole_run(shape));
}

}  // namespace piton
