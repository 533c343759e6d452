// The header of a GGUF file: it is read as it was written, and false values are refused in one
// line.
#include "gguf/gguf_header.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <functional>

#include "support/errors.h"

namespace piton {
namespace {

using testing::HasSubstr;

GgufHeader small_header() {
  GgufHeader header;
  header.entries = {{"general.architecture", GgufValue::string("llama")},
                    {"a.count", GgufValue::u32(7)},
                    {"a.eps", GgufValue::f32(1e-6)},
                    {"a.flag", GgufValue::boolean(true)},
                    {"a.words", GgufValue::strings({"one", "", "three"})},
                    {"a.numbers", GgufValue::numbers(std::vector<std::int32_t>{-1, 2})},
                    {"a.none", GgufValue::strings({})}};
  header.tensors = {{"first", {3, 5}, GgmlType::kF32}, {"second", {2, 64}, GgmlType::kQ80}};
  return header;
}

GgufHeader parse(const std::string& bytes, std::int64_t file_bytes = -1) {
  const auto read = [&](std::int64_t offset, std::span<std::byte> out) {
    ASSERT_LE(offset + std::ssize(out), std::ssize(bytes));
    std::memcpy(out.data(), bytes.data() + offset, out.size());
  };
  return parse_gguf(read, file_bytes < 0 ? std::ssize(bytes) : file_bytes, "x.gguf");
}

// The head and as many zeros as its tensors take.
std::string whole_file(GgufHeader header) {
  std::string bytes = make_gguf_header(header);
  for (const GgufTensor& tensor : header.tensors)
    bytes.resize(bytes.size() +
                 static_cast<std::size_t>(aligned(tensor.bytes(), header.alignment)));
  return bytes;
}

template <typename T>
void set(std::string& bytes, std::size_t at, T value) {
  std::memcpy(bytes.data() + at, &value, sizeof(T));
}

std::string refusal(const std::string& bytes) {
  const std::string message = message_of(Fault::kData, [&] { parse(bytes); });
  EXPECT_TRUE(message.starts_with("x.gguf: ")) << message;
  return message;
}

TEST(GgufHeader, MayEndWithItsLastValue) {
  for (const std::size_t size : {std::size_t{0}, std::size_t{32}}) {
    // 24 bytes, the key of 20 and its length, the kind, the length of the text, the text.
    const std::string name(size, 'x');
    GgufHeader written{.entries = {{"general.architecture", GgufValue::string(name)}}};
    const std::string bytes = make_gguf_header(written);
    ASSERT_EQ(bytes.size(), 64 + size);
    const GgufHeader header = parse(bytes);
    EXPECT_EQ(header.find("general.architecture")->text, name);
    EXPECT_EQ(header.data_begin, std::ssize(bytes));
  }
}

TEST(GgufHeader, IsReadAsItWasWritten) {
  const std::string bytes = whole_file(small_header());
  const GgufHeader header = parse(bytes);
  const GgufHeader wanted = small_header();
  ASSERT_EQ(header.entries.size(), wanted.entries.size());
  for (std::size_t i = 0; i < wanted.entries.size(); ++i) {
    EXPECT_EQ(header.entries[i].key, wanted.entries[i].key);
    EXPECT_EQ(header.entries[i].value, wanted.entries[i].value) << wanted.entries[i].key;
  }
  ASSERT_EQ(header.tensors.size(), 2U);
  EXPECT_EQ(header.tensors[1].name, "second");
  EXPECT_EQ(header.tensors[1].shape, (std::vector<std::int64_t>{2, 64}));
  EXPECT_EQ(header.tensors[1].type, GgmlType::kQ80);
  EXPECT_EQ(header.tensors[1].offset, 64);  // 60 bytes, to the next multiple of 32
  EXPECT_EQ(header.data_begin % 32, 0);
  EXPECT_EQ(header.find("a.eps")->number(), 1e-6);
  EXPECT_EQ(header.find("a.numbers")->integers(), (std::vector<std::int64_t>{-1, 2}));
  EXPECT_EQ(header.find("a.words")->count(), 3);
  EXPECT_EQ(header.find("b"), nullptr);
}

TEST(GgufHeader, OfEveryLengthButItsOwnIsRefused) {
  const std::string bytes = whole_file(small_header());
  for (std::size_t size = 0; size + 24 < bytes.size(); ++size) refusal(bytes.substr(0, size));
}

TEST(GgufHeader, CountsThatLieAreRefusedBeforeMemoryIsTaken) {
  const std::string bytes = whole_file(small_header());
  for (const std::size_t at : {8U, 16U}) {  // of tensors, of entries
    for (const std::uint64_t count :
         {std::uint64_t{1} << 40, ~std::uint64_t{0}, std::uint64_t{1} << 63}) {
      std::string lies = bytes;
      set(lies, at, count);
      EXPECT_THAT(refusal(lies), HasSubstr("bytes follow"));
    }
  }
  std::string lies = bytes;
  set(lies, 24, std::uint64_t{1} << 50);  // the length of the first key
  EXPECT_THAT(refusal(lies), HasSubstr("the length of key 0"));
  const std::size_t words = bytes.find("a.words") + 7;
  set(lies = bytes, words + 8, std::uint64_t{1} << 60);
  EXPECT_THAT(refusal(lies), HasSubstr("the length of a.words: got 1152921504606846976"));
}

TEST(GgufHeader, OtherFilesAreToldApart) {
  std::string bytes = whole_file(small_header());
  std::string other = bytes;
  other[0] = 'P';
  EXPECT_THAT(refusal(other), HasSubstr("does not start with \"GGUF\""));
  set(other = bytes, 4, std::uint32_t{1});
  EXPECT_THAT(refusal(other), HasSubstr("version 1, wanted 2 or 3"));
  set(other = bytes, 4, std::uint32_t{0x03000000});
  EXPECT_THAT(refusal(other), HasSubstr("is big-endian"));
  set(other = bytes, 4, std::uint32_t{2});
  EXPECT_EQ(parse(other).tensors.size(), 2U);
}

TEST(GgufHeader, KeysTensorsAndTypesAreChecked) {
  GgufHeader header = small_header();
  header.entries.push_back({"a.count", GgufValue::u32(8)});
  EXPECT_THAT(refusal(whole_file(header)), HasSubstr("the key a.count is there twice"));
  header = small_header();
  header.tensors.push_back(header.tensors[0]);
  EXPECT_THAT(refusal(whole_file(header)), HasSubstr("the tensor first is there twice"));
  std::string bytes = whole_file(small_header());
  const std::size_t kind = bytes.find("a.count") + 7;
  set(bytes, kind, std::uint32_t{13});
  EXPECT_THAT(refusal(bytes), HasSubstr("a.count: kind 13, wanted 0 to 12"));
  bytes = whole_file(small_header());
  set(bytes, bytes.find("a.words") + 7 + 4, std::uint32_t{9});
  EXPECT_THAT(refusal(bytes), HasSubstr("a.words: a list of lists"));
  bytes = whole_file(small_header());
  bytes[bytes.find("a.flag") + 6 + 4] = 2;
  EXPECT_THAT(refusal(bytes), HasSubstr("a.flag: got 2, wanted true or false"));
  bytes = whole_file(small_header());
  const std::size_t type = bytes.find("first") + 5 + 4 + 16;
  set(bytes, type, std::uint32_t{16});
  EXPECT_THAT(refusal(bytes), HasSubstr("first is of type IQ2_XXS, wanted F32"));
  set(bytes, type, std::uint32_t{8});
  EXPECT_THAT(refusal(bytes), HasSubstr("first: rows of 5, wanted a multiple of 32 for Q8_0"));
}

TEST(GgufHeader, ShapesAndOffsetsThatLieAreRefused) {
  const std::string bytes = whole_file(small_header());
  const std::size_t first = bytes.find("first") + 5;
  std::string lies = bytes;
  set(lies, first, std::uint32_t{9});
  EXPECT_THAT(refusal(lies), HasSubstr("first: 9 dims, wanted 1 to 4"));
  set(lies = bytes, first, std::uint32_t{0});
  EXPECT_THAT(refusal(lies), HasSubstr("first: 0 dims"));
  set(lies = bytes, first + 4, std::uint64_t{1} << 40);
  set(lies, first + 12, std::uint64_t{1} << 40);
  EXPECT_THAT(refusal(lies), HasSubstr("first: size 1099511627776 of dim 1 cannot be"));
  set(lies = bytes, first + 12, std::uint64_t{1} << 30);
  EXPECT_THAT(refusal(lies), HasSubstr("pass the end of the file"));
  set(lies = bytes, first + 4 + 16 + 4, std::uint64_t{32});
  EXPECT_THAT(refusal(lies), HasSubstr("first: at offset 32, wanted 0"));
}

TEST(GgufHeader, AlignmentIsAPowerOfTwo) {
  for (const std::int64_t alignment : {0, 3, 48, 1 << 21}) {
    GgufHeader header = small_header();
    header.entries.push_back({"general.alignment", GgufValue::u32(alignment)});
    EXPECT_THAT(refusal(whole_file(header)),
                HasSubstr(fmt::format("general.alignment: {}, wanted a power of 2", alignment)));
  }
  GgufHeader header = small_header();
  header.alignment = 128;
  header.entries.push_back({"general.alignment", GgufValue::u32(128)});
  EXPECT_EQ(parse(whole_file(header)).tensors[1].offset, 128);
}

}  // namespace
}  // namespace piton
