#include "gguf/gguf_file.h"

#include <array>
#include <fstream>
#include <string>
#include <system_error>
#include <utility>

#include "base/error.h"
#include "base/files/lfs_pointer.h"

namespace piton {

namespace fs = std::filesystem;

bool is_gguf_file(const fs::path& path) {
  std::error_code ignored;
  if (!fs::is_regular_file(path, ignored)) return false;
  if (path.extension() == ".gguf") return true;
  std::array<char, 4> magic{};
  std::ifstream(path, std::ios::binary).read(magic.data(), magic.size());
  return std::string_view(magic.data(), magic.size()) == "GGUF";
}

GgufFile::GgufFile(const fs::path& path) : file_(path) {
  refuse_lfs_pointer(file_);
  header_ =
      parse_gguf([&](std::int64_t offset, std::span<std::byte> out) { file_.read_at(offset, out); },
                 file_.size_bytes(), where());
  const GgufValue* parts = header_.find("split.count");
  if (parts != nullptr && parts->is_integer() && parts->integer() > 1) {
    throw Error(Fault::kData,
                "{}: is one of {} parts of a model, wanted a whole one; join them with "
                "llama-gguf-split --merge",
                where(), parts->integer());
  }
}

GgufWriter::GgufWriter(const fs::path& path, GgufHeader header)
    : file_(path), header_(std::move(header)) {
  file_.write(make_gguf_header(header_));
  if (!header_.tensors.empty()) left_ = header_.tensors[0].bytes();
  end_tensors();
}

// Writes the zeros after each complete tensor and goes to the next tensor.
void GgufWriter::end_tensors() {
  while (tensor_ < header_.tensors.size() && left_ == 0) {
    const std::int64_t bytes = header_.tensors[tensor_].bytes();
    file_.write(
        std::string(static_cast<std::size_t>(aligned(bytes, header_.alignment) - bytes), '\0'));
    ++tensor_;
    if (tensor_ < header_.tensors.size()) left_ = header_.tensors[tensor_].bytes();
  }
}

void GgufWriter::append(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    PITON_ASSERT(tensor_ < header_.tensors.size(), "more bytes than tensors");
    const auto count = std::min(bytes.size(), static_cast<std::size_t>(left_));
    file_.write(bytes.first(count));
    bytes = bytes.subspan(count);
    left_ -= static_cast<std::int64_t>(count);
    end_tensors();
  }
}

void GgufWriter::commit() {
  PITON_ASSERT(tensor_ == header_.tensors.size(), "{} of {} tensors were written", tensor_,
               header_.tensors.size());
  file_.commit();
}

}  // namespace piton
