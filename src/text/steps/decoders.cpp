#include "text/steps/decoders.h"

#include <charconv>
#include <utility>

#include "text/unicode/byte_level.h"
#include "text/unicode/utf8.h"

namespace piton {
namespace {

// A decoder that is a function of the list of pieces.
template <typename F>
class DecoderStep final : public PieceDecoder {
 public:
  explicit DecoderStep(F f) : f_(std::move(f)) {}
  void apply(std::vector<std::string>& pieces) const override { f_(pieces); }

 private:
  F f_;
};

template <typename F>
std::unique_ptr<PieceDecoder> step(F f) {
  return std::make_unique<DecoderStep<F>>(std::move(f));
}

std::string replaced(const std::string& text, std::string_view from, std::string_view to) {
  if (from.empty() || text.find(from) == std::string::npos) return text;
  std::string out;
  std::size_t done = 0;
  for (std::size_t at = text.find(from); at != std::string::npos; at = text.find(from, done)) {
    out.append(text, done, at - done);
    out.append(to);
    done = at + from.size();
  }
  out.append(text, done);
  return out;
}

}  // namespace

int fallback_byte(std::string_view piece) {
  if (piece.size() != 6 || !piece.starts_with("<0x") || piece.back() != '>') return -1;
  int value = -1;
  const auto [end, error] = std::from_chars(piece.data() + 3, piece.data() + 5, value, 16);
  return error == std::errc{} && end == piece.data() + 5 && value >= 0 ? value : -1;
}

std::unique_ptr<PieceDecoder> make_decoder_sequence(
    std::vector<std::unique_ptr<PieceDecoder>> steps) {
  return step([steps = std::move(steps)](std::vector<std::string>& pieces) {
    for (const auto& one : steps) one->apply(pieces);
  });
}

std::unique_ptr<PieceDecoder> make_byte_level_decoder() {
  return step([alphabet = ByteAlphabet()](std::vector<std::string>& pieces) {
    std::string text;
    for (const std::string& piece : pieces) text += alphabet.bytes(piece).value_or(piece);
    pieces.assign(1, std::move(text));
  });
}

std::unique_ptr<PieceDecoder> make_replace_decoder(std::string from, std::string to) {
  return step([from = std::move(from), to = std::move(to)](std::vector<std::string>& pieces) {
    for (std::string& piece : pieces) piece = replaced(piece, from, to);
  });
}

std::unique_ptr<PieceDecoder> make_replace_decoder(Pattern from, std::string to) {
  return step([from = std::make_shared<const Pattern>(std::move(from)),
               to = std::move(to)](std::vector<std::string>& pieces) {
    for (std::string& piece : pieces) {
      std::string out;
      std::size_t done = 0;
      for (const auto& [begin, end] : from->matches(piece)) {
        out.append(piece, done, begin - done);
        out.append(to);
        done = end;
      }
      out.append(piece, done);
      piece = std::move(out);
    }
  });
}

std::unique_ptr<PieceDecoder> make_metaspace_decoder(std::string replacement, bool prepended) {
  return step([replacement = std::move(replacement), prepended](std::vector<std::string>& pieces) {
    for (std::size_t i = 0; i < pieces.size(); ++i) {
      pieces[i] = replaced(pieces[i], replacement, i == 0 && prepended ? "" : " ");
    }
  });
}

std::unique_ptr<PieceDecoder> make_byte_fallback_decoder() {
  return step([](std::vector<std::string>& pieces) {
    std::vector<std::string> out;
    std::string run;
    const auto flush = [&] {
      if (run.empty()) return;
      if (valid_utf8_prefix(run) == run.size()) {
        out.push_back(run);
      } else {
        for (std::size_t i = 0; i < run.size(); ++i) out.emplace_back("\xEF\xBF\xBD");
      }
      run.clear();
    };
    for (std::string& piece : pieces) {
      if (const int byte = fallback_byte(piece); byte >= 0) {
        run.push_back(static_cast<char>(byte));
        continue;
      }
      flush();
      out.push_back(std::move(piece));
    }
    flush();
    pieces = std::move(out);
  });
}

std::unique_ptr<PieceDecoder> make_fuse_decoder() {
  return step([](std::vector<std::string>& pieces) {
    std::string text;
    for (const std::string& piece : pieces) text += piece;
    pieces.assign(1, std::move(text));
  });
}

std::unique_ptr<PieceDecoder> make_strip_decoder(std::string content, std::size_t start,
                                                 std::size_t stop) {
  return step([content = std::move(content), start, stop](std::vector<std::string>& pieces) {
    if (content.empty()) return;
    for (std::string& piece : pieces) {
      std::string_view text = piece;
      for (std::size_t i = 0; i < start && text.starts_with(content); ++i) {
        text.remove_prefix(content.size());
      }
      for (std::size_t i = 0; i < stop && text.ends_with(content); ++i) {
        text.remove_suffix(content.size());
      }
      piece = std::string(text);
    }
  });
}

std::unique_ptr<PieceDecoder> make_word_piece_decoder(std::string prefix, bool cleanup) {
  return step([prefix = std::move(prefix), cleanup](std::vector<std::string>& pieces) {
    // Applied in this order, to restore English punctuation and contractions.
    constexpr std::pair<std::string_view, std::string_view> kCleanups[] = {
        {" .", "."},   {" ?", "?"},     {" !", "!"},     {" ,", ","},
        {" ' ", "'"},  {" n't", "n't"}, {" 'm", "'m"},   {" do not", " don't"},
        {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"},
    };
    for (std::size_t i = 0; i < pieces.size(); ++i) {
      std::string& piece = pieces[i];
      if (i > 0) {
        if (piece.starts_with(prefix)) {
          piece.erase(0, prefix.size());
        } else {
          piece.insert(0, " ");
        }
      }
      if (!cleanup) continue;
      for (const auto& [from, to] : kCleanups) piece = replaced(piece, from, to);
    }
  });
}

std::unique_ptr<PieceDecoder> make_bpe_decoder(std::string suffix) {
  return step([suffix = std::move(suffix)](std::vector<std::string>& pieces) {
    for (std::size_t i = 0; i < pieces.size(); ++i) {
      pieces[i] = replaced(pieces[i], suffix, i + 1 == pieces.size() ? "" : " ");
    }
  });
}

}  // namespace piton
