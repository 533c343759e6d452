#include "data/corpus/indexed_dataset.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>

#include "base/error.h"
#include "base/files/files.h"
#include "support/temp_folder.h"
#include "unit/data/small_corpora.h"

namespace piton {
namespace {

using ::testing::HasSubstr;

std::string bytes_from_hex(std::string_view hex) {
  std::string bytes;
  std::string digits;
  for (const char c : hex) {
    if (std::isxdigit(static_cast<unsigned char>(c)) == 0) continue;
    digits += c;
    if (digits.size() == 2) {
      bytes += static_cast<char>(std::stoi(digits, nullptr, 16));
      digits.clear();
    }
  }
  return bytes;
}

void write_file(const std::string& path, std::string_view bytes) {
  std::ofstream(path, std::ios::binary)
      .write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

std::string error_of(const std::string& prefix) {
  try {
    IndexedDataset::open(prefix);
  } catch (const Error& error) {
    EXPECT_EQ(error.fault(), Fault::kData);
    return error.what();
  }
  return "";
}

// Two documents, {[1, 2, 3], [4]} and {[500]}, written down by hand from the format's table.
constexpr std::string_view kIndex =
    "4d4d4944494458 0000  0100000000000000  08  0300000000000000  0300000000000000"
    "03000000 01000000 01000000"
    "0000000000000000 0600000000000000 0800000000000000"
    "0000000000000000 0200000000000000 0300000000000000";
constexpr std::string_view kIds = "0100 0200 0300 0400 f401";

TEST(IndexedDataset, ReadsAFileWrittenByHand) {
  TempFolder folder;
  write_file(folder / "hand.idx", bytes_from_hex(kIndex));
  write_file(folder / "hand.bin", bytes_from_hex(kIds));
  const auto corpus = IndexedDataset::open(folder / "hand");
  EXPECT_EQ(corpus.sequences(), 3);
  EXPECT_EQ(corpus.documents(), 2);
  EXPECT_EQ(corpus.tokens(), 5);
  std::vector<std::int32_t> ids(2);
  corpus.read(0, 1, ids);
  EXPECT_EQ(ids, (std::vector<std::int32_t>{2, 3}));
  ids.resize(1);
  corpus.read(2, 0, ids);
  EXPECT_EQ(ids[0], 500);
}

TEST(IndexedWriter, WritesTheFileWrittenByHand) {
  TempFolder folder;
  write_corpus(folder / "deep/er/hand", IdType::kUint16, {{{1, 2, 3}, {4}}, {{500}}});
  EXPECT_EQ(read_text_file(folder / "deep/er/hand.idx"), bytes_from_hex(kIndex));
  EXPECT_EQ(read_text_file(folder / "deep/er/hand.bin"), bytes_from_hex(kIds));
  int files = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(folder / "deep/er"))
    ++files;
  EXPECT_EQ(files, 2);
}

TEST(IndexedDataset, ReadsTheOlderFormat) {
  TempFolder folder;
  std::string index = std::string("TNTIDX\0\0", 8);
  const auto add = [&](std::initializer_list<std::uint64_t> values) {
    for (const std::uint64_t value : values) index.append(reinterpret_cast<const char*>(&value), 8);
  };
  add({1, 4, 4, 3, 3, 3});  // version, int32, 4 bytes, 3 sequences, 3 sizes, 3 boundaries
  add({0, 1, 2, 3});        // dim offsets
  add({0, 3, 4, 5});        // data offsets
  add({3, 1, 1});           // sizes
  add({0, 2, 3});           // documents
  write_file(folder / "old.idx", index);
  write_file(folder / "old.bin", bytes_from_hex("01000000 02000000 03000000 04000000 f4010000"));
  const auto corpus = IndexedDataset::open(folder / "old");
  EXPECT_EQ(corpus.sequences(), 3);
  EXPECT_EQ(corpus.documents(), 2);
  std::vector<std::int32_t> ids(1);
  corpus.read(2, 0, ids);
  EXPECT_EQ(ids[0], 500);
  for (std::size_t cut = 0; cut < index.size(); ++cut) {
    write_file(folder / "old.idx", index.substr(0, cut));
    EXPECT_NE(error_of(folder / "old"), "") << cut;
  }
}

TEST(IndexedDataset, ReadsIdsOf64Bits) {
  TempFolder folder;
  write_file(folder / "wide.idx",
             bytes_from_hex("4d4d4944494458 0000  0100000000000000  05  0100000000000000"
                            "0200000000000000  02000000  0000000000000000"
                            "0000000000000000 0100000000000000"));
  write_file(folder / "wide.bin", bytes_from_hex("0500000000000000 ffff010000000000"));
  const auto corpus = IndexedDataset::open(folder / "wide");
  std::vector<std::int32_t> ids(2);
  corpus.read(0, 0, ids);
  EXPECT_EQ(ids, (std::vector<std::int32_t>{5, 0x1ffff}));
  write_file(folder / "wide.bin", bytes_from_hex("0500000000000000 0000000001000000"));
  EXPECT_THROW(corpus.read(0, 0, ids), Error);
}

TEST(IndexedDataset, ReadsAsMuchAsASequenceHas) {
  TempFolder folder;
  write_corpus(folder / "x", IdType::kInt32, {{{}, {7, 8, 9}}});
  const auto corpus = IndexedDataset::open(folder / "x");
  std::vector<std::int32_t> ids(5, -1);
  EXPECT_EQ(corpus.read_some(0, 0, ids), 0);
  EXPECT_EQ(corpus.read_some(0, 1, ids), -1);
  EXPECT_EQ(corpus.read_some(1, -1, ids), -1);
  EXPECT_EQ(corpus.read_some(1, 3, ids), 0);
  EXPECT_EQ(corpus.read_some(1, 4, ids), -1);
  EXPECT_EQ(ids, std::vector<std::int32_t>(5, -1));
  EXPECT_EQ(corpus.read_some(1, 1, ids), 2);
  EXPECT_EQ(ids, (std::vector<std::int32_t>{8, 9, -1, -1, -1}));
}

TEST(IndexedDataset, RefusesEveryTruncation) {
  TempFolder folder;
  const std::string index = bytes_from_hex(kIndex), ids = bytes_from_hex(kIds);
  for (std::size_t cut = 0; cut < index.size(); ++cut) {
    write_file(folder / "x.idx", index.substr(0, cut));
    write_file(folder / "x.bin", ids);
    EXPECT_NE(error_of(folder / "x"), "") << cut;
  }
  write_file(folder / "x.idx", index);
  for (std::size_t cut = 0; cut < ids.size(); ++cut) {
    write_file(folder / "x.bin", ids.substr(0, cut));
    EXPECT_THAT(error_of(folder / "x"),
                HasSubstr(fmt::format("x.bin: has {} bytes, but by ", cut)));
    EXPECT_THAT(error_of(folder / "x"),
                HasSubstr(fmt::format("x.idx the ids end at byte {}; one of", ids.size())));
  }
}

TEST(IndexedDataset, NamesFileOffsetAndWhatWasWanted) {
  TempFolder folder;
  const auto with = [&](std::size_t offset, std::string_view hex) {
    std::string index = bytes_from_hex(kIndex);
    const std::string bytes = bytes_from_hex(hex);
    index.replace(offset, bytes.size(), bytes);
    write_file(folder / "x.idx", index);
    write_file(folder / "x.bin", bytes_from_hex(kIds));
    return error_of(folder / "x");
  };
  EXPECT_THAT(with(0, "504b0304"),
              HasSubstr("x.idx: not a token index: starts with \"PK\\x03\\x04IDX\\x00\" (a zip "
                        "archive?), wanted \"MMIDIDX"));
  EXPECT_THAT(with(9, "02"), HasSubstr("byte 9: unknown version of the format: got 2, wanted 1"));
  EXPECT_THAT(with(17, "06"), HasSubstr("byte 17: ids are floating-point numbers (type 6)"));
  EXPECT_THAT(with(17, "09"), HasSubstr("byte 17: unknown type of ids: got 9"));
  EXPECT_THAT(with(18, "ffffffffffffffff"), HasSubstr("byte 18: 18446744073709551615 sequences"));
  EXPECT_THAT(with(26, "0000000000000080"), HasSubstr("do not fit"));
  EXPECT_THAT(with(34, "ffffffff"), HasSubstr("byte 34: sequence 0 has a negative length: got -1"));
  EXPECT_THAT(with(34, "02000000"),
              HasSubstr("byte 54: sequence 1 starts at byte 6 of the ids, wanted 4"));
  EXPECT_THAT(with(54, "00000000000000f0"), HasSubstr("byte 54: sequence 1 starts"));
  EXPECT_THAT(with(70, "01"), HasSubstr("byte 70: document boundary 0 of 3 is 1"));
  EXPECT_THAT(with(78, "04"), HasSubstr("byte 78: document boundary 1 of 3 is 4"));
  EXPECT_THAT(with(86, "02"), HasSubstr("byte 86: document boundary 2 of 3 is 2"));
  EXPECT_EQ(with(34, "03000000"), "");
}

TEST(IndexedDataset, NamesASequenceFarFromTheFirstOne) {
  constexpr std::int64_t kSequences = TokenSequences::kBlock + 1000, kWrong = kSequences - 10;
  TempFolder folder;
  {
    IndexedWriter writer(folder / "x", IdType::kUint16);
    for (std::int64_t i = 0; i < kSequences; ++i) writer.add_sequence(std::vector<std::int32_t>{7});
    writer.end_document();
    writer.finish();
  }
  const std::string index = read_text_file(folder / "x.idx");
  const auto with = [&](std::int64_t offset, std::int32_t value) {
    std::string wrong = index;
    std::memcpy(wrong.data() + offset, &value, 4);
    write_file(folder / "x.idx", wrong);
    return error_of(folder / "x");
  };
  const std::int64_t length = 34 + 4 * kWrong, pointer = 34 + 4 * kSequences + 8 * kWrong;
  EXPECT_EQ(with(length, 1), "");
  EXPECT_THAT(with(length, -5), HasSubstr(fmt::format("x.idx: byte {}: sequence {} has a negative "
                                                      "length: got -5",
                                                      length, kWrong)));
  EXPECT_THAT(with(length, 3),
              HasSubstr(fmt::format("x.idx: byte {}: sequence {} starts at byte {} of the ids, "
                                    "wanted {}",
                                    pointer + 8, kWrong + 1, 2 * (kWrong + 1), 2 * (kWrong + 3))));
  EXPECT_THAT(
      with(length, 1 << 30),
      HasSubstr(fmt::format("x.idx: byte {}: sequence {} ends at byte {} of the ids, which "
                            "have {}",
                            length, kWrong, 2 * kWrong + (std::int64_t{1} << 31), 2 * kSequences)));
  EXPECT_THAT(with(pointer, 6), HasSubstr(fmt::format("x.idx: byte {}: sequence {} starts at byte "
                                                      "6 of the ids, wanted {}",
                                                      pointer, kWrong, 2 * kWrong)));
}

TEST(IndexedDataset, FingerprintChangesWithAnyOfTheFirstBytes) {
  TempFolder folder;
  write_corpus(folder / "x", IdType::kInt32, {{{1, 2, 3}}});
  const auto before = IndexedDataset::open(folder / "x").fingerprint();
  const auto time = std::filesystem::last_write_time(folder / "x.bin");
  std::fstream(folder / "x.bin", std::ios::in | std::ios::out | std::ios::binary).put(9);
  std::filesystem::last_write_time(folder / "x.bin", time);
  EXPECT_NE(IndexedDataset::open(folder / "x").fingerprint(), before);
}

TEST(IndexedDataset, FingerprintIsOfTheContentsAlone) {
  TempFolder folder;
  write_corpus(folder / "x", IdType::kInt32, {{{1, 2, 3}}});
  write_corpus(folder / "y", IdType::kInt32, {{{1, 2, 3}}});
  const auto corpus = IndexedDataset::open(folder / "x");
  const std::string before = corpus.fingerprint(), stamp = corpus.stamp();
  EXPECT_EQ(IndexedDataset::open(folder / "y").fingerprint(), before) << "another name and time";
  const auto later = std::filesystem::file_time_type::clock::now() + std::chrono::hours(5);
  for (const char* name : {"x.bin", "x.idx"}) {
    std::filesystem::last_write_time(folder / name, later);
  }
  EXPECT_EQ(IndexedDataset::open(folder / "x").fingerprint(), before);
  EXPECT_NE(corpus.stamp(), stamp);
}

TEST(IndexedDataset, ThatIsCutShortWhileItIsReadIsAnErrorThatNamesIt) {
  for (const IdType type : {IdType::kInt32, IdType::kUint16}) {
    TempFolder folder;
    Documents documents;
    for (int i = 0; i < 5000; ++i) documents.push_back({{1, 2, i % 60000}});
    write_corpus(folder / "x", type, documents);
    const auto corpus = IndexedDataset::open(folder / "x");
    std::vector<std::int32_t> ids(3);
    std::filesystem::resize_file(folder / "x.bin", 5000);
    corpus.read(0, 0, ids);
    EXPECT_EQ(ids, (std::vector<std::int32_t>{1, 2, 0}));
    const auto message = [&] {
      try {
        corpus.read(4999, 0, ids);
      } catch (const Error& error) {
        return std::string(error.what());
      }
      return std::string();
    };
    EXPECT_THAT(message(), HasSubstr("x.bin: cut short while it was in use"));
    std::filesystem::resize_file(folder / "x.idx", 5000);
    EXPECT_THAT(message(), HasSubstr("x.idx: cut short while it was in use"));
    EXPECT_THROW(corpus.fingerprint(), Error);
  }
}

TEST(IndexedWriter, DoesNotTakeAPartialFileOfSomebodyElse) {
  TempFolder folder;
  write_file(folder / "x.lengths.partial", "precious");
  EXPECT_THROW(IndexedWriter(folder / "x", IdType::kInt32), Error);
  EXPECT_EQ(read_text_file(folder / "x.lengths.partial"), "precious");
}

TEST(IndexedWriter, LeavesNothingWhenDroppedAndGoesOnWhereItWasLeft) {
  TempFolder folder;
  { IndexedWriter(folder / "x", IdType::kInt32).add_sequence(std::vector<std::int32_t>{1, 2}); }
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));

  const Documents documents = {{{1, 2, 3}, {4}}, {{500}}, {{}, {7, 8}}};
  write_corpus(folder / "whole", IdType::kInt32, documents);
  std::optional<IndexedWriter::Position> place;
  for (std::size_t first = 0; first < documents.size(); ++first) {
    IndexedWriter writer(folder / "parts", IdType::kInt32, place);
    writer.keep_partial();
    for (const auto& ids : documents[first]) writer.add_sequence(ids);
    writer.end_document();
    writer.flush();
    place = writer.position();
    writer.add_sequence(
        std::vector<std::int32_t>{9, 9, 9});  // after the flush: lost with the writer
    writer.end_document();
  }
  IndexedWriter(folder / "parts", IdType::kInt32, place).finish();
  EXPECT_EQ(read_text_file(folder / "parts.bin"), read_text_file(folder / "whole.bin"));
  EXPECT_EQ(read_text_file(folder / "parts.idx"), read_text_file(folder / "whole.idx"));
}

// Killed in finish() between its two renames.
TEST(IndexedWriter, GoesOnWhereOneFileHasItsNameAlready) {
  TempFolder folder;
  IndexedWriter::Position place;
  {
    IndexedWriter writer(folder / "x", IdType::kInt32);
    writer.keep_partial();
    writer.add_sequence(std::vector<std::int32_t>{1, 2});
    writer.end_document();
    writer.flush();
    place = writer.position();
  }
  const std::string partial = partial_names(folder / "x")[0];
  std::filesystem::rename(partial, folder / "x.bin");
  IndexedWriter::Position longer = place;
  longer.ids_bytes += 4;
  restore_partial_files(folder / "x", longer);
  EXPECT_TRUE(std::filesystem::exists(folder / "x.bin")) << "of another length: somebody else's";
  restore_partial_files(folder / "x", place);
  EXPECT_FALSE(std::filesystem::exists(folder / "x.bin"));
  EXPECT_TRUE(partial_files_reach(folder / "x", place));
  IndexedWriter(folder / "x", IdType::kInt32, place).finish();
  EXPECT_EQ(IndexedDataset::open(folder / "x").tokens(), 2);
}

TEST(IndexedWriter, Chooses16BitsBelow65500Ids) {
  EXPECT_EQ(id_type_for(65499), IdType::kUint16);
  EXPECT_EQ(id_type_for(65500), IdType::kInt32);
}

}  // namespace
}  // namespace piton
