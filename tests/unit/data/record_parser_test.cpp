// Record readers on made-up input, and on real files of other programs.
#include "data/records/record_parser.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <set>

#include "base/error.h"
#include "base/files/files.h"
#include "data/preprocess/duplicate_filter.h"
#include "data/records/block_reader.h"
#include "data/records/byte_stream.h"
#include "data/records/csv_fields.h"
#include "data/records/input_files.h"
#include "data/records/record_scanner.h"
#include "data/records/wiki_records.h"
#include "packing.h"
#include "support/errors.h"
#include "support/temp_folder.h"

namespace piton {
namespace {

const std::string kShared = PITON_SOURCE_DIR "/../shared/data/";

// Ends of records when `text` comes in pieces of `piece` bytes.
std::vector<std::size_t> ends(InputFormat format, SampleBy by, std::string_view text,
                              std::size_t piece) {
  const auto scanner = make_record_scanner(format, by);
  std::vector<std::size_t> found;
  std::size_t at = 0;
  for (std::size_t start = 0; start < text.size(); start += piece) {
    const std::size_t stop = std::min(text.size(), start + piece);
    while (true) {
      const auto end = scanner->scan(text.substr(at, stop - at));
      if (end == RecordScanner::kNone) break;
      at += end;
      found.push_back(at);
    }
    at = stop;
  }
  return found;
}

TEST(RecordScanner, EndsDoNotDependOnHowTheBytesArrive) {
  const std::vector<std::tuple<InputFormat, SampleBy, std::string, std::vector<std::size_t>>>
      cases = {
          {InputFormat::kText, SampleBy::kLine, "ab\n\ncd", {3, 4}},
          {InputFormat::kText, SampleBy::kParagraph, "a\nb\n\n\nc\n\nd", {6, 9}},
          {InputFormat::kCsv, SampleBy::kLine, "a,\"x\ny\"\"\n\",b\n5\" pipe,c\nd", {13, 23}},
          {InputFormat::kJson,
           SampleBy::kLine,
           "[{\"a\": \"}]\\\"\"}, {\"b\": [1, {}]} ]",
           {14, 30}},
          {InputFormat::kJson, SampleBy::kLine, "{\"a\":1}\n{\"a\":\n2}", {7, 16}},
          {InputFormat::kJson, SampleBy::kLine, "[1, 2]", {2}},
          {InputFormat::kWikiExtractor,
           SampleBy::kLine,
           "<doc id=\"1\">\n<</doc</doc>\n</doc>",
           {25, 32}},
      };
  for (const auto& [format, by, text, wanted] : cases) {
    for (std::size_t piece = 1; piece <= text.size(); ++piece) {
      EXPECT_EQ(ends(format, by, text, piece), wanted) << text << " in pieces of " << piece;
    }
  }
}

TEST(CsvFields, FollowTheRulesOfQuotes) {
  std::vector<std::string> fields;
  EXPECT_FALSE(split_csv_fields("a,\"b \"\"x\"\", c\",,\r\n", ',', fields));
  EXPECT_EQ(fields, (std::vector<std::string>{"a", "b \"x\", c", "", ""}));
  EXPECT_FALSE(split_csv_fields("5\" pipe\t\"\"", '\t', fields));
  EXPECT_EQ(fields, (std::vector<std::string>{"5\" pipe", ""}));
  // A field that ends with its record ends there, whatever follows.
  EXPECT_FALSE(split_csv_fields(std::string_view("a,\"").substr(0, 2), ',', fields));
  EXPECT_EQ(fields, (std::vector<std::string>{"a", ""}));
  EXPECT_FALSE(split_csv_fields(std::string_view("\"").substr(0, 0), ',', fields));
  EXPECT_EQ(fields, (std::vector<std::string>{""}));
  EXPECT_TRUE(split_csv_fields("\"a", ',', fields));
  EXPECT_TRUE(split_csv_fields("\"a\"b,c", ',', fields));
}

TEST(Utf8, NamesTheFirstByteThatIsWrong) {
  EXPECT_EQ(first_bad_utf8("a\xC3\xA9\xE7\xBA\xA2\xF0\x9F\x98\x80"), std::string_view::npos);
  EXPECT_EQ(first_bad_utf8("ab\xC3"), 2U);
  EXPECT_EQ(first_bad_utf8("\xED\xA0\x80"), 0U);  // a surrogate
  EXPECT_EQ(first_bad_utf8("x\xC0\xAF"), 1U);     // overlong
  EXPECT_EQ(first_bad_utf8("xy\xF4\x90\x80\x80"), 2U);
}

TEST(WikiText, BecomesWhatAReaderSees) {
  EXPECT_EQ(
      plain_text_of_wikitext(
          "'''Anarchism''' is a [[political philosophy|philosophy]] and "
          "[[Movement]].{{cite|{{x}}}}\n"
          "== History ==\n* one<ref name=\"a\">gone [[x]]</ref>\n* two<ref name=b /> &amp; three\n"
          "[[File:A.jpg|thumb|A [[link]] here]]\n{| class=x\n| cell {{t}}\n|}\n<!-- note -->"
          "See [http://x.org the site] and [http://y.org].\n[[Category:Ideas]]"),
      "Anarchism is a philosophy and Movement.\nHistory\none\ntwo & three\n\nSee the site and .");
  EXPECT_EQ(plain_text_of_wikitext("&#65;&#x6f;&#X4F;&#39;&#0;&lt;"), "AoO'&#0;<");
  EXPECT_EQ(plain_text_of_wikitext("[[|shown]] and [[a|b|c]]"), "shown and c");
  // Nothing that nests wrongly costs more than its marks, and nothing costs more than linear time.
  EXPECT_EQ(plain_text_of_wikitext("a [[b {{c"), "a [[b {{c");
  for (const char* mark : {"[[", "{{", "<ref>", "{|", "<", "&", "'", "[http", "[[a|", "<!--"}) {
    std::string text;
    for (int i = 0; i < 50000; ++i) text += mark;
    plain_text_of_wikitext(text);
  }
}

std::vector<std::vector<std::string>> records(const std::string& file,
                                              const std::vector<std::string>& keys,
                                              std::vector<std::string>* bad = nullptr) {
  BlockReader reader(find_input_files({file}, {}), {.columns = keys, .block_bytes = 20000}, {});
  std::vector<std::vector<std::string>> all;
  ParsedRecord record;
  std::string reason;
  while (auto block = reader.next()) {
    const auto parser = make_record_parser(*block->file, keys, SampleBy::kLine);
    for (std::size_t i = 0; i < records_of(*block, keys.size()); ++i) {
      const Parsed parsed = parser->parse(*block, i, record, reason);
      if (parsed == Parsed::kBad && bad != nullptr) bad->push_back(reason);
      if (parsed != Parsed::kRecord) continue;
      all.emplace_back();
      for (const auto& texts : record.texts) all.back().emplace_back(texts.at(0));
    }
  }
  return all;
}

TEST(WikiXml, ArticlesAreReadAndOtherPagesLeftOut) {
  TempFolder folder;
  put_file(folder / "enwiki.xml.bz2",
           packed(".bz2",
                  "<mediawiki xml:lang=\"en\">\n  <siteinfo><sitename>W</sitename></siteinfo>\n"
                  "  <page><title>A &amp; B</title><ns>0</ns><id>12</id><revision><id>9</id>"
                  "<text bytes=\"5\" xml:space=\"preserve\">'''A''' &lt;b&gt;is&lt;/b&gt; "
                  "[[B]].</text></revision></page>\n"
                  "  <page><title>C</title><ns>0</ns><id>13</id><redirect title=\"A\" "
                  "/><revision><text>#REDIRECT [[A]]</text></revision></page>\n"
                  "  "
                  "<page><title>Talk:A</title><ns>1</ns><id>14</id><revision><text>talk</text></"
                  "revision></page>\n"
                  "  <page><title>D</title><ns>0</ns><id>15</id><revision><text bytes=\"0\" "
                  "/></revision></page>\n</mediawiki>\n"));
  const auto all = records(folder / "enwiki.xml.bz2", {"id", "title", "text"});
  EXPECT_EQ(all,
            (std::vector<std::vector<std::string>>{{"12", "A & B", "A is B."}, {"15", "D", ""}}));
}

TEST(RealFiles, WikiExtractorsOutputAndC4AreReadWhole) {
  if (!std::filesystem::exists(kShared)) GTEST_SKIP() << "no shared test data at " << kShared;
  std::vector<std::string> bad;
  const auto articles =
      records(kShared + "text/wikiextractor_wiki_00.txt", {"id", "title", "text"}, &bad);
  const std::string raw = read_text_file(kShared + "text/wikiextractor_wiki_00.txt");
  std::size_t docs = 0;
  for (auto at = raw.find("<doc id="); at != std::string::npos; at = raw.find("<doc id=", at + 1))
    ++docs;
  EXPECT_EQ(articles.size(), docs);
  EXPECT_EQ(articles.at(0).at(0), "12");
  EXPECT_EQ(articles.at(0).at(1), "Anarchism");
  EXPECT_TRUE(articles.at(0).at(2).starts_with("Anarchism\n\nAnarchism is a political philosophy"));
  const auto rows = records(kShared + "text/c4_demo.jsonl", {"text"}, &bad);
  const std::string lines = read_text_file(kShared + "text/c4_demo.jsonl");
  EXPECT_EQ(static_cast<std::ptrdiff_t>(rows.size()),
            std::count(lines.begin(), lines.end(), '\n') + (lines.ends_with('\n') ? 0 : 1));
  EXPECT_TRUE(bad.empty());
}

TEST(BlockReader, AnArrayThatIsNotClosedIsReportedOnce) {
  TempFolder folder;
  put_file(folder / "cut.json", R"([{"text": "a"}, {"text": "b"})");
  BlockReader reader({{folder / "cut.json", 29, InputFormat::kJson}}, {.columns = {"text"}}, {});
  int blocks = 0, records = 0, faults = 0;
  while (auto block = reader.next()) {
    ASSERT_LT(++blocks, 10);
    records += static_cast<int>(block->ends.size());
    faults += static_cast<int>(block->unusable.size());
  }
  EXPECT_EQ(records, 2);
  EXPECT_EQ(faults, 1);
}

TEST(DetectFormat, LooksBehindTheMarkOfUtf8) {
  EXPECT_EQ(detect_format("x", "\xEF\xBB\xBF<doc id=\"1\">"), InputFormat::kWikiExtractor);
  EXPECT_EQ(detect_format("x", "\xEF\xBB\xBF<mediawiki>"), InputFormat::kWikiXml);
}

// (Zstandard has no checksum unless its packer was asked for one.)
TEST(ByteStream, NamesDamageInTheMiddle) {
  TempFolder folder;
  std::mt19937 random(5);
  std::string text(20000, ' ');
  for (char& c : text) c = static_cast<char>(random() % 256);
  for (const std::string ending : {".gz", ".bz2", ".xz"}) {
    std::string bytes = packed(ending, text);
    for (std::size_t i = bytes.size() / 2; i < bytes.size() / 2 + 200; ++i) bytes[i] ^= 0x5A;
    put_file(folder / ("x" + ending), bytes);
    EXPECT_THAT(message_of(Fault::kData,
                           [&] {
                             const auto stream = open_byte_stream(folder / ("x" + ending));
                             std::string buffer(4096, ' ');
                             for (int reads = 0; reads < 100; ++reads) {
                               if (stream->read(buffer) == 0) return;
                             }
                           }),
                testing::AllOf(testing::HasSubstr("of the packed file"),
                               testing::Not(testing::HasSubstr("ends in the middle"))))
        << ending;
  }
}

TEST(ByteStream, RefusesAnXzFileThatWantsTooMuchMemory) {
  TempFolder folder;
  lzma_options_lzma options;
  lzma_lzma_preset(&options, 1);
  options.dict_size = 512U << 20;
  const lzma_filter filters[] = {{LZMA_FILTER_LZMA2, &options}, {LZMA_VLI_UNKNOWN, nullptr}};
  std::uint8_t bytes[256];
  std::size_t size = 0;
  ASSERT_EQ(lzma_stream_buffer_encode(const_cast<lzma_filter*>(filters), LZMA_CHECK_CRC32, nullptr,
                                      reinterpret_cast<const std::uint8_t*>("text"), 4, bytes,
                                      &size, sizeof(bytes)),
            LZMA_OK);
  const std::string file = folder / "large.xz";
  put_file(file, {reinterpret_cast<const char*>(bytes), size});
  try {
    const auto stream = open_byte_stream(file);
    std::string buffer(64, '\0');
    stream->read(buffer);
    FAIL() << "unpacked";
  } catch (const Error& error) {
    EXPECT_EQ(error.fault(), Fault::kData);
    EXPECT_THAT(error.what(),
                testing::HasSubstr("large.xz: unpacking takes 512 MiB, wanted at most 128"));
  }
}

TEST(DuplicateFilter, RemembersAcrossRunsOnDiskAndRestarts) {
  TempFolder folder;
  std::mt19937_64 random(3);  // tiny tables: many runs, joined many times
  std::vector<ContentHash> hashes(5000);
  for (auto& hash : hashes) hash = {random(), random() % 3};
  std::set<ContentHash> reference;
  std::int64_t kept = 0;
  for (int part = 0; part < 5; ++part) {
    DuplicateFilter filter(folder / "f", kept, 500);
    filter.keep();
    for (int i = 0; i < 2000; ++i) {
      const ContentHash& hash = hashes[random() % hashes.size()];
      EXPECT_EQ(filter.insert(hash), reference.insert(hash).second);
    }
    filter.flush();
    kept = filter.size();
    EXPECT_EQ(kept, static_cast<std::int64_t>(reference.size()));
  }
  { DuplicateFilter(folder / "f", kept, 50); }
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

TEST(DuplicateFilter, NamesARunThatIsCutWhileItIsSearched) {
  TempFolder folder;
  DuplicateFilter filter(folder / "f", 0, 500);
  for (std::uint64_t i = 0; i < 600; ++i) ASSERT_TRUE(filter.insert({i, i}));
  std::filesystem::resize_file(folder / "f.run-0", 16);
  try {
    for (std::uint64_t i = 0; i < 500; ++i) filter.insert({i, i});
    FAIL() << "searched";
  } catch (const Error& error) {
    EXPECT_EQ(error.fault(), Fault::kData);
    EXPECT_THAT(error.what(), testing::HasSubstr("f.run-0: cut short while it was in use"));
  }
}

}  // namespace
}  // namespace piton
