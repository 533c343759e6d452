#include "pickle/torch_writer.h"

#include <algorithm>
#include <bit>

#include "base/error.h"
#include "pickle/torch_file.h"

namespace piton {
namespace {

constexpr std::string_view kFolder = "archive/";

std::string_view storage_class(std::string_view dtype) {
  if (dtype == "F32") return "FloatStorage";
  if (dtype == "BF16") return "BFloat16Storage";
  if (dtype == "F16") return "HalfStorage";
  if (dtype == "F64") return "DoubleStorage";
  PITON_ASSERT(dtype == "I64", "no storage of {}", dtype);
  return "LongStorage";
}

void put_number(std::string& text, std::uint64_t value, int bytes) {
  for (int i = 0; i < bytes; ++i) text += static_cast<char>(value >> (8 * i));
}

}  // namespace

TorchWriter::TorchWriter(const std::filesystem::path& path) : zip_(path), pickle_("\x80\x02") {}

void TorchWriter::integer(std::int64_t value) {
  if (value >= INT32_MIN && value <= INT32_MAX) {
    pickle_ += 'J';
    put_number(pickle_, static_cast<std::uint64_t>(value), 4);
  } else {
    pickle_ += "\x8a\x08";
    put_number(pickle_, static_cast<std::uint64_t>(value), 8);
  }
}

void TorchWriter::number(double value) {
  pickle_ += 'G';
  const auto bits = std::bit_cast<std::uint64_t>(value);
  for (int i = 7; i >= 0; --i) pickle_ += static_cast<char>(bits >> (8 * i));
}

void TorchWriter::text(std::string_view value) {
  pickle_ += 'X';
  put_number(pickle_, value.size(), 4);
  pickle_ += value;
}

void TorchWriter::numbers(std::span<const std::int64_t> values) {
  pickle_ += '(';
  for (const std::int64_t value : values) integer(value);
  pickle_ += 't';
}

void TorchWriter::tensor(std::string_view dtype, std::span<const std::int64_t> shape) {
  std::vector<std::int64_t> strides(shape.size());
  std::int64_t elements = 1;
  for (std::size_t i = shape.size(); i-- > 0;) {
    strides[i] = elements;
    elements *= shape[i];
  }
  pickle_ += "ctorch._utils\n_rebuild_tensor_v2\n((";
  text("storage");
  pickle_ += fmt::format("ctorch\n{}\n", storage_class(dtype));
  text(fmt::format("{}", storages_.size()));
  text("cpu");
  integer(elements);
  pickle_ += "tQ";
  integer(0);
  numbers(shape);
  numbers(strides);
  boolean(false);
  pickle_ += "ccollections\nOrderedDict\n)RtR";
  storages_.push_back(elements * torch_width(dtype));
}

void TorchWriter::end_tree() {
  if (tree_ended_) return;
  tree_ended_ = true;
  pickle_ += '.';
  zip_.add(std::string(kFolder) + "data.pkl", pickle_);
  zip_.add(std::string(kFolder) + "byteorder", "little");
  next_storage();
}

// Begins the next storage; ends storages without bytes at once.
void TorchWriter::next_storage() {
  for (; storage_ < storages_.size(); ++storage_) {
    zip_.begin(fmt::format("{}data/{}", kFolder, storage_));
    left_ = storages_[storage_];
    if (left_ > 0) return;
    zip_.end();
  }
}

void TorchWriter::append(std::span<const std::byte> bytes) {
  end_tree();
  while (!bytes.empty()) {
    PITON_ASSERT(storage_ < storages_.size(), "more bytes than tensors");
    const auto count = std::min(bytes.size(), static_cast<std::size_t>(left_));
    zip_.append(bytes.first(count));
    bytes = bytes.subspan(count);
    left_ -= static_cast<std::int64_t>(count);
    if (left_ > 0) continue;
    zip_.end();
    ++storage_;
    next_storage();
  }
}

void TorchWriter::commit() {
  end_tree();
  PITON_ASSERT(storage_ == storages_.size(), "{} of {} tensors were written", storage_,
               storages_.size());
  zip_.add(std::string(kFolder) + "version", "3\n");
  zip_.commit();
}

}  // namespace piton
