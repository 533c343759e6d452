#include "data/samples/describe.h"

#include <algorithm>
#include <bit>
#include <filesystem>
#include <span>

#include "base/amounts.h"
#include "base/error.h"
#include "base/json.h"
#include "data/samples/sample.h"

namespace piton {
namespace {

using nlohmann::ordered_json;

std::string type_name(IdType type) {
  switch (type) {
    case IdType::kUint8:
      return "uint8";
    case IdType::kInt8:
      return "int8";
    case IdType::kInt16:
      return "int16";
    case IdType::kInt32:
      return "int32";
    case IdType::kInt64:
      return "int64";
    case IdType::kUint16:
      return "uint16";
  }
  return "";
}

// JSON must be UTF-8; decoded bytes need not be, as an id may be a part of a character.
std::string json_text(const ordered_json& json) {
  return json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

std::string shortened(std::string_view text, std::size_t most) {
  std::string line;
  for (const char c : text.substr(0, most)) {
    if (c == '\n') {
      line += "\\n";
    } else if (static_cast<unsigned char>(c) >= 0x20) {
      line += c;
    }
  }
  line.resize(complete_utf8_prefix(line));
  return line + (text.size() > most ? " ..." : "");
}

template <typename T>
std::vector<T> row_of(const std::vector<T>& values, std::int64_t row, std::int64_t size) {
  const auto first = values.begin() + row * size;
  return {first, first + size};
}

Sample sample_of(const MicroBatch& batch, std::int64_t row) {
  Sample sample{.tokens = row_of(batch.tokens, row, batch.sequence),
                .labels = row_of(batch.labels, row, batch.sequence),
                .positions = {},
                .segments = {},
                .length = batch.sequence};
  if (!batch.segments.empty()) sample.segments = row_of(batch.segments, row, batch.sequence);
  return sample;
}

// Tokens [first, end) of a sample, which see each other.
struct Text {
  std::int64_t first = 0;
  std::int64_t end = 0;
  std::vector<std::int32_t> ids;  // the first token, and what follows each token
  std::vector<bool> learned;      // of each of `ids`
};

// The texts of a sample, without padding.
std::vector<Text> texts_of(const Sample& sample) {
  const auto segment = [&](std::size_t i) {
    return sample.segments.empty() ? 0 : sample.segments[i];
  };
  std::vector<Text> texts;
  for (std::size_t i = 0; i < sample.tokens.size(); ++i) {
    if (segment(i) == kPaddingSegment) continue;
    const auto at = static_cast<std::int64_t>(i);
    if (i == 0 || segment(i) != segment(i - 1)) {
      texts.push_back({at, at, {sample.tokens[i]}, {false}});
    }
    Text& text = texts.back();
    text.end = at + 1;
    const bool continues = i + 1 < sample.tokens.size() && segment(i + 1) == segment(i);
    const bool learned = sample.labels[i] != kNoLabel;
    if (!learned && !continues) continue;
    text.ids.push_back(learned ? sample.labels[i] : sample.tokens[i + 1]);
    text.learned.push_back(learned);
  }
  return texts;
}

std::string shown(const Text& text, const Tokenizer* tokenizer, bool colors) {
  const std::string_view open = colors ? "\x1b[2m" : "[-";
  const std::string_view close = colors ? "\x1b[0m" : "-]";
  const std::int32_t eod = tokenizer != nullptr ? tokenizer->special().eod.value_or(-1) : -1;
  const std::vector<std::int32_t>& ids = text.ids;
  std::string line;
  // Runs of tokens that are learned, or are not, are decoded together, so that characters of
  // several tokens stay whole.
  for (std::size_t i = 0; i < ids.size();) {
    std::size_t end = i + 1;
    while (end < ids.size() && text.learned[end] == text.learned[i] && ids[end - 1] != eod) ++end;
    const auto run = std::span(ids).subspan(i, end - i);
    const std::string part =
        tokenizer != nullptr ? tokenizer->decode(run) : fmt::format("{}", fmt::join(run, " "));
    if (i > 0 && tokenizer == nullptr) line += ' ';
    line += text.learned[i] ? part : fmt::format("{}{}{}", open, part, close);
    if (ids[end - 1] == eod && end < ids.size()) line += '\n';
    i = end;
  }
  return line;
}

}  // namespace

bool is_corpus(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::is_regular_file(path + ".idx", ignored);
}

CorpusDescription describe_corpus(const std::string& prefix, const Tokenizer* tokenizer, int texts,
                                  bool scan_ids) {
  const auto corpus = IndexedDataset::open(prefix);
  CorpusDescription about;
  about.prefix = prefix;
  about.id_type = type_name(corpus.type());
  about.documents = corpus.documents();
  about.sequences = corpus.sequences();
  about.tokens = corpus.tokens();
  about.bytes = static_cast<std::int64_t>(std::filesystem::file_size(prefix + ".idx") +
                                          std::filesystem::file_size(prefix + ".bin"));
  about.largest_id = -1;
  constexpr std::int64_t kBlock = IndexedDataset::kBlock;
  for (std::int64_t first = 0; first < corpus.documents(); first += kBlock) {
    const auto starts =
        corpus.document_starts(first, std::min(kBlock, corpus.documents() - first) + 1);
    for (std::size_t d = 0; d + 1 < starts.size(); ++d) {
      about.empty_documents += starts[d] == starts[d + 1] ? 1 : 0;
    }
  }
  std::vector<std::int32_t> ids, lengths;
  for (std::int64_t i = 0; i < corpus.sequences(); ++i) {
    if (i % kBlock == 0) lengths = corpus.lengths(i, std::min(kBlock, corpus.sequences() - i));
    const std::int64_t length = lengths[static_cast<std::size_t>(i % kBlock)];
    about.shortest = i == 0 ? length : std::min(about.shortest, length);
    about.longest = std::max(about.longest, length);
    const auto bucket =
        static_cast<std::size_t>(std::bit_width(static_cast<std::uint64_t>(length)));
    if (about.histogram.size() <= bucket) about.histogram.resize(bucket + 1, 0);
    ++about.histogram[bucket];
    if (scan_ids) {
      ids.resize(static_cast<std::size_t>(length));
      corpus.read(i, 0, ids);
      for (const std::int32_t id : ids)
        about.largest_id = std::max<std::int64_t>(about.largest_id, id);
    }
    if (i < texts) {
      ids.resize(static_cast<std::size_t>(std::min<std::int64_t>(length, 64)));
      corpus.read(i, 0, ids);
      about.first_ids.push_back(ids);
      if (tokenizer != nullptr) about.first_texts.push_back(tokenizer->decode(ids));
    }
  }
  if (about.sequences > 0)
    about.mean = static_cast<double>(about.tokens) / static_cast<double>(about.sequences);
  return about;
}

std::string to_text(const CorpusDescription& about) {
  std::string text =
      fmt::format("{}: {} documents ({} empty), {} sequences, {} tokens as {}, {:.1f} MiB\n",
                  about.prefix, about.documents, about.empty_documents, about.sequences,
                  about.tokens, about.id_type, mebibytes(about.bytes));
  if (about.largest_id >= 0) text += fmt::format("largest id {}\n", about.largest_id);
  text += fmt::format("tokens a sequence: {} to {}, mean {:.1f}\n", about.shortest, about.longest,
                      about.mean);
  const std::int64_t most =
      about.histogram.empty() ? 1
                              : std::max<std::int64_t>(1, *std::max_element(about.histogram.begin(),
                                                                            about.histogram.end()));
  for (std::size_t k = 0; k < about.histogram.size(); ++k) {
    if (about.histogram[k] == 0) continue;
    const std::int64_t low = k == 0 ? 0 : std::int64_t{1} << (k - 1);
    const std::int64_t high = k == 0 ? 0 : (std::int64_t{1} << k) - 1;
    text += fmt::format(
        "  {:>9} .. {:<9} {:>11} {}\n", low, high, about.histogram[k],
        std::string(static_cast<std::size_t>((about.histogram[k] * 40 + most - 1) / most), '#'));
  }
  for (std::size_t i = 0; i < about.first_ids.size(); ++i) {
    text += i < about.first_texts.size()
                ? fmt::format("sequence {}: {}\n", i, shortened(about.first_texts[i], 200))
                : fmt::format("sequence {}: {}\n", i, fmt::join(about.first_ids[i], " "));
  }
  return text;
}

std::string to_json(const CorpusDescription& about) {
  ordered_json json = {{"prefix", about.prefix},
                       {"documents", about.documents},
                       {"empty_documents", about.empty_documents},
                       {"sequences", about.sequences},
                       {"tokens", about.tokens},
                       {"id_type", about.id_type},
                       {"bytes", about.bytes},
                       {"shortest", about.shortest},
                       {"longest", about.longest},
                       {"mean", about.mean},
                       {"histogram", about.histogram},
                       {"first_ids", about.first_ids}};
  if (about.largest_id >= 0) json["largest_id"] = about.largest_id;
  if (!about.first_texts.empty()) json["first_texts"] = about.first_texts;
  return json_text(json);
}

std::string samples_to_json(const MicroBatch& batch, std::int64_t first_index,
                            const Tokenizer* tokenizer) {
  std::string lines;
  for (std::int64_t row = 0; row < batch.samples; ++row) {
    const auto ids = row_of(batch.tokens, row, batch.sequence);
    ordered_json json = {{"index", first_index + row},
                         {"ids", ids},
                         {"labels", row_of(batch.labels, row, batch.sequence)},
                         {"loss_mask", std::vector<int>{}},
                         {"positions", row_of(batch.positions, row, batch.sequence)}};
    for (const float counted : row_of(batch.loss_mask, row, batch.sequence)) {
      json["loss_mask"].push_back(counted != 0 ? 1 : 0);
    }
    if (!batch.segments.empty()) json["segments"] = row_of(batch.segments, row, batch.sequence);
    if (tokenizer != nullptr) json["text"] = tokenizer->decode(ids);
    lines += json_text(json) + "\n";
  }
  return lines;
}

std::string samples_to_text(const MicroBatch& batch, std::int64_t first_index,
                            const Tokenizer* tokenizer, bool colors) {
  std::string text;
  for (std::int64_t row = 0; row < batch.samples; ++row) {
    const Sample sample = sample_of(batch, row);
    const auto learned = std::count_if(sample.labels.begin(), sample.labels.end(),
                                       [](std::int32_t label) { return label != kNoLabel; });
    const std::vector<Text> texts = texts_of(sample);
    const auto padding = static_cast<std::int64_t>(
        std::count(sample.segments.begin(), sample.segments.end(), kPaddingSegment));
    text += fmt::format("--- sample {}: {} tokens, {} in the loss", first_index + row,
                        batch.sequence, learned);
    if (texts.size() > 1) text += fmt::format(", {} texts", texts.size());
    if (padding > 0) text += fmt::format(", {} of padding", padding);
    text += '\n';
    for (const Text& one : texts) {
      if (texts.size() > 1) text += fmt::format("--- tokens {} to {}\n", one.first, one.end - 1);
      text += shown(one, tokenizer, colors) + '\n';
    }
  }
  return text;
}

}  // namespace piton
