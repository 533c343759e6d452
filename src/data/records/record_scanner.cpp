#include "data/records/record_scanner.h"

#include <cstring>

#include "base/error.h"

namespace piton {
namespace {

class LineScanner final : public RecordScanner {
 public:
  std::size_t scan(std::string_view bytes) override {
    const auto end = bytes.find('\n');
    return end == std::string_view::npos ? kNone : end + 1;
  }
};

// A record ends before the first line that follows a blank one.
class ParagraphScanner final : public RecordScanner {
 public:
  std::size_t scan(std::string_view bytes) override {
    for (std::size_t i = 0; i < bytes.size(); ++i) {
      const char c = bytes[i];
      if (c == '\n') {
        blank_ = line_empty_ && seen_;
        line_empty_ = true;
      } else if (c != '\r') {
        if (blank_) {
          blank_ = false;
          seen_ = false;
          line_empty_ = true;
          return i;
        }
        line_empty_ = false;
        seen_ = true;
      }
    }
    return kNone;
  }

 private:
  bool line_empty_ = true;
  bool seen_ = false;   // a byte that is not a line end
  bool blank_ = false;  // a blank line after it
};

class WholeScanner final : public RecordScanner {
 public:
  std::size_t scan(std::string_view) override { return kNone; }
};

// A quote opens a field only as its first byte. Two quotes inside a field are one quote (RFC 4180).
class CsvScanner final : public RecordScanner {
 public:
  explicit CsvScanner(char separator) : separator_(separator) {}
  std::size_t scan(std::string_view bytes) override {
    for (std::size_t i = 0; i < bytes.size(); ++i) {
      const char c = bytes[i];
      if (place_ == Place::kQuoted) {
        const void* quote = std::memchr(bytes.data() + i, '"', bytes.size() - i);
        if (quote == nullptr) return kNone;
        i = static_cast<std::size_t>(static_cast<const char*>(quote) - bytes.data());
        place_ = Place::kQuote;
      } else if (c == '\n') {
        place_ = Place::kStart;
        return i + 1;
      } else if (c == '"' && place_ != Place::kPlain) {
        place_ = Place::kQuoted;
      } else {
        place_ = c == separator_ ? Place::kStart : Place::kPlain;
      }
    }
    return kNone;
  }

 private:
  enum class Place { kStart, kPlain, kQuoted, kQuote };
  char separator_;
  Place place_ = Place::kStart;
};

class JsonScanner final : public RecordScanner {
 public:
  std::size_t scan(std::string_view bytes) override {
    for (std::size_t i = 0; i < bytes.size(); ++i) {
      const char c = bytes[i];
      if (in_string_) {
        if (escaped_) {
          escaped_ = false;
        } else if (c == '\\') {
          escaped_ = true;
        } else if (c == '"') {
          in_string_ = false;
        }
        continue;
      }
      switch (c) {
        case '"':
          in_string_ = true;
          begun_ = true;
          break;
        case '{':
        case '[':
          if (c == '[' && depth_ == 0 && !begun_ && !array_ && first_) {
            array_ = true;  // the outermost array is not itself a record
            break;
          }
          ++depth_;
          begun_ = true;
          break;
        case '}':
        case ']':
          if (depth_ > 0 && --depth_ == 0) return end(i + 1);
          if (c == ']' && depth_ == 0 && array_ && !begun_) closed_ = true;
          break;
        case ',':
        case '\n':
          // A bare number or word is not a record; it ends here and is reported.
          if (depth_ == 0 && begun_) return end(i);
          break;
        case ' ':
        case '\t':
        case '\r':
          break;
        default:
          begun_ = true;
          break;
      }
    }
    return kNone;
  }

  std::string_view unfinished() const override {
    return array_ && !closed_ ? "the outermost array is not closed; is the file cut off?" : "";
  }

 private:
  std::size_t end(std::size_t size) {
    begun_ = false;
    first_ = false;
    return size;
  }
  bool array_ = false;
  bool closed_ = false;
  bool first_ = true;
  bool begun_ = false;
  bool in_string_ = false;
  bool escaped_ = false;
  int depth_ = 0;
};

// `literal` begins with its only '<', so after a failed match the next one can only begin there.
class TagScanner final : public RecordScanner {
 public:
  explicit TagScanner(std::string_view literal) : literal_(literal) {}
  std::size_t scan(std::string_view bytes) override {
    for (std::size_t i = 0; i < bytes.size(); ++i) {
      if (matched_ == 0) {
        i = bytes.find('<', i);
        if (i == std::string_view::npos) return kNone;
      }
      if (bytes[i] == literal_[matched_]) {
        if (++matched_ == literal_.size()) {
          matched_ = 0;
          return i + 1;
        }
      } else {
        matched_ = bytes[i] == '<' ? 1 : 0;
      }
    }
    return kNone;
  }

 private:
  std::string_view literal_;
  std::size_t matched_ = 0;
};

}  // namespace

std::unique_ptr<RecordScanner> make_record_scanner(InputFormat format, SampleBy sample_by) {
  switch (format) {
    case InputFormat::kText:
      if (sample_by == SampleBy::kParagraph) return std::make_unique<ParagraphScanner>();
      if (sample_by == SampleBy::kDocument) return std::make_unique<WholeScanner>();
      return std::make_unique<LineScanner>();
    case InputFormat::kJsonLines:
      return std::make_unique<LineScanner>();
    case InputFormat::kJson:
      return std::make_unique<JsonScanner>();
    case InputFormat::kCsv:
      return std::make_unique<CsvScanner>(',');
    case InputFormat::kTsv:
      return std::make_unique<CsvScanner>('\t');
    case InputFormat::kWikiExtractor:
      return std::make_unique<TagScanner>("</doc>");
    case InputFormat::kWikiXml:
      return std::make_unique<TagScanner>("</page>");
    case InputFormat::kParquet:
      break;
  }
  PITON_ASSERT(false, "no scanner for {}", name(format));
  return nullptr;
}

}  // namespace piton
