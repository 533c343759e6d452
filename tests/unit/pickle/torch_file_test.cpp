// Files of torch.save, read and written; archives with false headers.
#include "pickle/torch_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>

#include "base/files/files.h"
#include "pickle/torch_writer.h"
#include "support/errors.h"
#include "support/temp_folder.h"

namespace piton {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;
using Numbers = std::vector<std::int64_t>;

fs::path golden(const std::string& name) {
  return fs::path(PITON_SOURCE_DIR) / "tests/golden/pickle" / name;
}

std::vector<float> first(const TorchFile& file, const TorchTensor& tensor, std::size_t count) {
  std::vector<float> values(count);
  file.file().read_at(tensor.offset, std::as_writable_bytes(std::span(values)));
  return values;
}

TEST(TorchFile, OfEveryFormatHoldsWhatWasSaved) {
  for (const char* name : {"archive.pt", "protocol4.pt", "stream.pt"}) {
    const TorchFile file(golden(name));
    const PickleValue& arguments = *file.root().find("args");
    EXPECT_EQ(arguments.text, "argparse.Namespace");
    EXPECT_EQ(arguments.find("num_layers")->integer, 2);
    EXPECT_EQ(arguments.find("lr")->number, 1e-3);
    EXPECT_EQ(arguments.find("name")->text, "tiny");
    EXPECT_EQ(arguments.find("params_dtype")->text, "torch.bfloat16");
    EXPECT_EQ(arguments.find("large")->integer, std::int64_t{1} << 40);
    EXPECT_EQ(arguments.find("negative")->integer, -5);
    EXPECT_EQ(file.root().find("iteration")->integer, 7);
    const PickleValue& model = *file.root().find("model");
    const auto tensor = [&](const char* key) { return file.tensor(*model.find(key), key); };
    const TorchTensor table = tensor("table");
    EXPECT_EQ(table.dtype, "F32");
    EXPECT_EQ(table.shape, Numbers({4, 6})) << name;
    EXPECT_TRUE(table.contiguous());
    EXPECT_THAT(first(file, table, 3), ElementsAre(0, 1, 2));
    EXPECT_THAT(first(file, tensor("rows"), 2), ElementsAre(6, 7));
    EXPECT_TRUE(tensor("rows").contiguous());
    EXPECT_THAT(first(file, tensor("columns"), 2), ElementsAre(2, 3));
    EXPECT_EQ(tensor("columns").strides, Numbers({6, 1}));
    EXPECT_FALSE(tensor("columns").contiguous());
    EXPECT_FALSE(tensor("turned").contiguous());
    EXPECT_EQ(tensor("half").dtype, "BF16");
    EXPECT_EQ(tensor("parameter").shape, Numbers({3}));
    EXPECT_EQ(tensor("empty").shape, Numbers({0, 5}));
    EXPECT_TRUE(tensor("scalar").shape.empty());
    EXPECT_EQ(tensor("count").dtype, "I64");
  }
}

class WrittenTorch : public testing::Test {
 protected:
  WrittenTorch() {
    TorchWriter out(path_);
    out.begin_dict();
    out.text("a");
    out.tensor("F32", Numbers{2, 3});
    out.text("none");
    out.tensor("BF16", Numbers{0});
    out.text("list");
    out.begin_list();
    out.integer(-1);
    out.integer(std::int64_t{1} << 40);
    out.number(0.5);
    out.boolean(true);
    out.none();
    out.end_list();
    out.text("b");
    out.tensor("I64", Numbers{1});
    out.end_dict();
    const std::vector<float> values = {1, 2, 3, 4, 5, 6};
    const std::int64_t last = 7;
    std::vector<std::byte> bytes(32);
    std::memcpy(bytes.data(), values.data(), 24);
    std::memcpy(bytes.data() + 24, &last, 8);
    out.append(std::span(bytes).first(5));
    out.append(std::span(bytes).subspan(5));
    out.commit();
    text_ = read_text_file(path_);
  }

  // The message about the file after `edit`.
  std::string refusal(const std::function<void(std::string&)>& edit) {
    std::string text = text_;
    edit(text);
    const fs::path spoiled = dir_ / "spoiled.pt";
    fs::remove(spoiled);
    std::ofstream(spoiled, std::ios::binary) << text;
    return message_of(Fault::kData, [&] {
      const TorchFile file(spoiled);
      for (const char* key : {"a", "none", "b"}) file.tensor(*file.root().find(key), key);
    });
  }
  static void put(std::string& text, std::size_t at, std::uint64_t value, std::size_t bytes) {
    std::memcpy(text.data() + at, &value, bytes);
  }
  // Of the record in the directory of the member whose name ends so, and of its local header.
  std::size_t directory(const std::string& end) const {
    const std::size_t mark = text_.rfind("PK\x01\x02");
    std::size_t at = text_.rfind(end);
    EXPECT_NE(at, std::string::npos);
    EXPECT_LT(text_.find("PK\x01\x02"), at);
    at = text_.rfind("PK\x01\x02", at);
    EXPECT_LE(at, mark);
    return at;
  }
  std::size_t local(const std::string& end) const {
    return text_.rfind("PK\x03\x04", text_.find(end));
  }

  TempFolder dir_;
  fs::path path_ = dir_ / "x.pt";
  std::string text_;
};

TEST_F(WrittenTorch, IsReadBack) {
  const TorchFile file(path_);
  const PickleValue& list = *file.root().find("list");
  EXPECT_EQ(list.items[0]->integer, -1);
  EXPECT_EQ(list.items[1]->integer, std::int64_t{1} << 40);
  EXPECT_EQ(list.items[2]->number, 0.5);
  EXPECT_TRUE(list.items[3]->truth);
  const TorchTensor a = file.tensor(*file.root().find("a"), "a");
  EXPECT_THAT(first(file, a, 6), ElementsAre(1, 2, 3, 4, 5, 6));
  EXPECT_EQ(a.offset % 64, 0);
}

TEST_F(WrittenTorch, ThatIsCutShortAnywhereIsRefused) {
  for (std::size_t size = 0; size < text_.size(); ++size)
    refusal([&](std::string& text) { text.resize(size); });
}

TEST_F(WrittenTorch, WhoseArchiveLiesIsRefused) {
  const auto field = [&](std::size_t at, std::uint64_t value, std::size_t bytes) {
    return refusal([&](std::string& text) { put(text, at, value, bytes); });
  };
  const std::size_t pickle = directory("archive/data.pkl");
  const std::size_t data = directory("archive/data/0");
  EXPECT_THAT(field(pickle + 10, 8, 2), HasSubstr("archive/data.pkl is compressed"));
  EXPECT_THAT(field(pickle + 8, 1, 2), HasSubstr("is encrypted"));
  EXPECT_THAT(field(pickle + 16, 5, 4), HasSubstr("data.pkl was changed: its CRC is another"));
  const std::size_t sizes = data + 46 + std::string("archive/data/0").size() + 4;
  EXPECT_THAT(field(sizes, 23, 8), HasSubstr("data/0 is of 23 bytes and of 24"));
  const std::size_t local_sizes =
      local("archive/data/0") + 30 + std::string("archive/data/0").size();
  const auto of_size = [&](std::uint64_t size) {
    return refusal([&](std::string& text) {
      for (const std::size_t at : {sizes, sizes + 8, local_sizes + 4, local_sizes + 12})
        put(text, at, size, 8);
    });
  };
  EXPECT_THAT(of_size(8), HasSubstr("a: its storage has 8 bytes, wanted 6 elements of F32"));
  EXPECT_THAT(of_size(std::uint64_t{1} << 60),
              HasSubstr("a member of 1152921504606846976, and the file has"));
  EXPECT_THAT(of_size(text_.size() - 100), HasSubstr("data/0 reaches into the directory"));
  EXPECT_THAT(of_size(130), HasSubstr("data/0 reaches into archive/data/"));
  EXPECT_THAT(field(sizes + 16, 1, 8), HasSubstr("data/0 is not where the directory says"));
  EXPECT_THAT(field(local("archive/data/0") + 30, 'b', 1), HasSubstr("has another name where it"));
  EXPECT_THAT(field(data + 46 + 13, '1', 1), HasSubstr("data/1 has another name where it is"));
}

TEST_F(WrittenTorch, WhoseSizesOf64And32BitsDifferIsRefused) {
  const auto field = [&](std::size_t at, std::uint64_t value, std::size_t bytes) {
    return refusal([&](std::string& text) { put(text, at, value, bytes); });
  };
  const auto number = [&](std::size_t at) {
    std::uint64_t value = 0;
    std::memcpy(&value, text_.data() + at, 8);
    return value;
  };
  const std::size_t end = text_.size() - 22;
  const std::size_t wide = end - 20 - 56;
  const std::uint64_t members = number(wide + 32);
  EXPECT_THAT(field(end + 10, members - 1, 2), HasSubstr("of 64 bits and of 32 bits differ"));
  EXPECT_THAT(field(end + 12, 77, 4), HasSubstr("of 64 bits and of 32 bits differ"));
  EXPECT_THAT(field(end + 16, 0, 4), HasSubstr("of 64 bits and of 32 bits differ"));
  EXPECT_THAT(field(wide + 24, members - 1, 8), HasSubstr("parts of another archive"));
  // The record of 64 bits counts, even where that of 32 bits needs none.
  const auto narrow_end = [&](std::string& text) {
    put(text, end + 8, members, 2);
    put(text, end + 10, members, 2);
    put(text, end + 12, number(wide + 40), 4);
    put(text, end + 16, number(wide + 48), 4);
  };
  EXPECT_THAT(refusal([&](std::string& text) {
                narrow_end(text);
                put(text, wide + 24, members - 1, 8);
                put(text, wide + 32, members - 1, 8);
              }),
              HasSubstr("of 64 bits and of 32 bits differ"));

  const std::size_t data = directory("archive/data/0");
  const std::string of_data = "data/0: its sizes of 64 bits and of 32 bits differ";
  for (const std::size_t at : {data + 20, data + 24, data + 42})
    EXPECT_THAT(field(at, 23, 4), HasSubstr(of_data));
  const std::size_t header = local("archive/data/0");
  const std::string of_header = "data/0 has another size where it is";
  EXPECT_THAT(field(header + 18, 23, 4), HasSubstr(of_header));
  EXPECT_THAT(field(header + 22, 23, 4), HasSubstr(of_header));
  const std::size_t sizes = header + 30 + std::string("archive/data/0").size() + 4;
  EXPECT_THAT(field(sizes, 23, 8), HasSubstr(of_header));
  EXPECT_THAT(field(sizes + 8, 23, 8), HasSubstr(of_header));
  EXPECT_THAT(field(sizes - 4, 2, 2), HasSubstr(of_header));  // no field of 64-bit sizes
  const std::size_t padding = sizes + 16;
  EXPECT_THAT(field(padding, 1, 2), HasSubstr("has its sizes of 64 bits twice"));

  // Sizes that are there twice and equal are read.
  std::string text = text_;
  narrow_end(text);
  put(text, data + 20, 24, 4);
  put(text, data + 24, 24, 4);
  put(text, data + 42, header, 4);
  put(text, header + 18, 24, 4);
  put(text, header + 22, 24, 4);
  const fs::path equal = dir_ / "equal.pt";
  std::ofstream(equal, std::ios::binary) << text;
  const TorchFile file(equal);
  EXPECT_THAT(first(file, file.tensor(*file.root().find("a"), "a"), 2), ElementsAre(1, 2));
}

TEST_F(WrittenTorch, WithAnotherByteIsReadOrRefused) {
  for (std::size_t at = 0; at < text_.size(); ++at) {
    std::string text = text_;
    text[at] = static_cast<char>(text[at] ^ 0x41);
    const fs::path spoiled = dir_ / "spoiled.pt";
    fs::remove(spoiled);
    std::ofstream(spoiled, std::ios::binary) << text;
    try {
      const TorchFile file(spoiled);
    } catch (const Error& error) {
      EXPECT_EQ(error.fault(), Fault::kData);
    }
  }
}

TEST_F(WrittenTorch, ThatIsNoneIsRefused) {
  const auto of = [&](const std::string& bytes) {
    return refusal([&](std::string& text) { text = bytes; });
  };
  EXPECT_THAT(of("hello"), HasSubstr("begins neither as a zip archive nor as a pickle"));
  EXPECT_THAT(of(""), HasSubstr("begins neither"));
  EXPECT_THAT(of(text_ + "more"), HasSubstr("not a valid zip archive"));
}

// APPNOTE 4.3.16: two bytes hold the size of the comment at the end.
TEST_F(WrittenTorch, WithTheLongestCommentIsRead) {
  const std::size_t end = text_.size() - 22;
  for (const std::size_t size : {std::size_t{1}, std::size_t{65534}, std::size_t{65535}}) {
    std::string text = text_ + std::string(size, 'c');
    put(text, end + 20, size, 2);
    const fs::path commented = dir_ / fmt::format("{}.pt", size);
    std::ofstream(commented, std::ios::binary) << text;
    const TorchFile file(commented);
    EXPECT_THAT(first(file, file.tensor(*file.root().find("a"), "a"), 2), ElementsAre(1, 2))
        << size;
  }
}

TEST(TorchWriter, NamesTheStorageOfEveryType) {
  // The classes are those of torch.
  const std::pair<const char*, const char*> types[] = {{"F32", "FloatStorage"},
                                                       {"BF16", "BFloat16Storage"},
                                                       {"F16", "HalfStorage"},
                                                       {"F64", "DoubleStorage"},
                                                       {"I64", "LongStorage"}};
  for (const auto& [type, storage] : types) {
    const TempFolder dir;
    const fs::path path = dir / "x.pt";
    TorchWriter out(path);
    out.tensor(type, Numbers{3});
    const std::vector<std::byte> bytes(static_cast<std::size_t>(3 * torch_width(type)));
    out.append(bytes);
    out.commit();
    EXPECT_THAT(read_text_file(path), HasSubstr(fmt::format("ctorch\n{}\n", storage)));
    const TorchFile file(path);
    EXPECT_EQ(file.tensor(file.root(), "it").dtype, type);
  }
}

// Other programs check a member by the number before its bytes.
TEST_F(WrittenTorch, HasTheCrcOfEveryMemberInBothPlaces) {
  for (const char* name : {"archive/data.pkl", "archive/data/0"}) {
    const std::string before = text_.substr(local(name) + 14, 4);
    EXPECT_NE(before, std::string(4, '\0')) << name;
    EXPECT_EQ(before, text_.substr(directory(name) + 16, 4)) << name;
  }
}

TEST_F(WrittenTorch, WhoseDirectoryIsNotWhereItsEndSaysIsRefused) {
  const std::size_t wide = text_.size() - 22 - 20 - 56;
  const std::size_t last = text_.size() - 10;
  EXPECT_THAT(refusal([&](std::string& text) { put(text, wide + 48, last, 8); }),
              testing::ContainsRegex(fmt::format("directory of [0-9]+ bytes at byte {}, and the "
                                                 "file has {}",
                                                 last, text_.size())));
  EXPECT_THAT(refusal([&](std::string& text) { put(text, wide, 0, 4); }),
              HasSubstr("no end record of 64 bits"));
}

}  // namespace
}  // namespace piton
