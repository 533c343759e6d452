// Golden Hugging Face folders as GGUF files, and the same with another header.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/files/files.h"
#include "gguf/gguf_source.h"
#include "gguf/gguf_writer.h"
#include "huggingface/hf_source.h"
#include "support/errors.h"
#include "support/temp_folder.h"

namespace piton::test {

class GgufWorkshop {
 public:
  // The path of a file that is written from `folder`.
  std::filesystem::path write(const std::filesystem::path& folder,
                              std::optional<GgmlType> type = {}) {
    HfSource source(folder);
    const GgufDescription description =
        describe_gguf(source.model(), source.config().word("model_type"), source.where());
    const std::filesystem::path path = dir_ / fmt::format("{}.gguf", ++files_);
    const GgufWriteOptions options{
        .type = type,
        .entries = {{"general.architecture", GgufValue::string(description.architecture)}}};
    written_ = write_gguf(path, source, model_in_gguf(source.model()), description, options);
    return path;
  }

  // What write_gguf() returned of the last one.
  const GgufWritten& written() const { return written_; }

  // The same file with another header. Bytes of tensors that are added are 0.
  void edit(const std::filesystem::path& path, const std::function<void(GgufHeader&)>& change) {
    GgufFile file(path);
    GgufHeader header = file.header();
    std::string data(static_cast<std::size_t>(file.file().size_bytes() - header.data_begin), 0);
    file.file().read_at(header.data_begin, std::as_writable_bytes(std::span(data)));
    change(header);
    const std::string head = make_gguf_header(header);
    std::int64_t end = 0;
    for (const GgufTensor& tensor : header.tensors)
      end = std::max(end, aligned(tensor.offset + tensor.bytes(), header.alignment));
    data.resize(static_cast<std::size_t>(end));
    write_text_file(path, head + data);
  }

  // What is wrong with the file of `folder` whose header is changed.
  std::string refusal(const std::filesystem::path& folder,
                      const std::function<void(GgufHeader&)>& change) {
    const std::filesystem::path path = write(folder);
    edit(path, change);
    return message_of(Fault::kData, [&] { GgufSource source(path); });
  }

 private:
  TempFolder dir_;
  GgufWritten written_;
  int files_ = 0;
};

// By its key without the architecture; null: there is none.
inline const GgufValue* entry_of(const GgufDescription& description, const std::string& key) {
  const auto found =
      std::ranges::find(description.entries, description.architecture + "." + key, &GgufEntry::key);
  return found == description.entries.end() ? nullptr : &found->value;
}

inline void set_entry(GgufHeader& header, const std::string& key, GgufValue value) {
  for (GgufEntry& entry : header.entries) {
    if (entry.key == key) {
      entry.value = std::move(value);
      return;
    }
  }
  header.entries.push_back({key, std::move(value)});
}

inline void erase_entry(GgufHeader& header, const std::string& key) {
  std::erase_if(header.entries, [&](const GgufEntry& entry) { return entry.key == key; });
}

inline GgufTensor& tensor_of(GgufHeader& header, const std::string& name) {
  return *std::ranges::find(header.tensors, name, &GgufTensor::name);
}

inline std::vector<float> values_of(TensorSource& source, const std::string& name,
                                    const TensorRun& run) {
  std::vector<float> values(static_cast<std::size_t>(run.size()));
  source.read(name, run, DType::kF32, reinterpret_cast<std::byte*>(values.data()));
  return values;
}

inline const CanonicalTensor& tensor_named(const std::vector<CanonicalTensor>& tensors,
                                           const std::string& name) {
  return *std::ranges::find(tensors, name, &CanonicalTensor::name);
}

inline void expect_equal(TensorSource& got, TensorSource& wanted) {
  const auto tensors = wanted.tensors(TensorKind::kWeight);
  ASSERT_EQ(got.tensors(TensorKind::kWeight).size(), tensors.size());
  for (const CanonicalTensor& tensor : tensors) {
    const TensorRun all = whole_run(tensor.shape);
    const std::vector<float> a = values_of(got, tensor.name, all);
    const std::vector<float> b = values_of(wanted, tensor.name, all);
    EXPECT_EQ(std::memcmp(a.data(), b.data(), a.size() * 4), 0) << tensor.name;
  }
}

// All values of a tensor.
inline std::vector<float> floats_of(TensorSource& source, const CanonicalTensor& tensor) {
  return values_of(source, tensor.name, whole_run(tensor.shape));
}

}  // namespace piton::test
