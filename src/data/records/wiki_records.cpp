#include "data/records/wiki_records.h"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "base/error.h"
#include "base/trimmed.h"

namespace piton {
namespace {

// The text between `open` and `close`; nothing if either is missing.
std::optional<std::string_view> between(std::string_view text, std::string_view open,
                                        std::string_view close) {
  const auto begin = text.find(open);
  if (begin == std::string_view::npos) return {};
  const auto from = begin + open.size();
  const auto end = text.find(close, from);
  if (end == std::string_view::npos) return {};
  return text.substr(from, end - from);
}

// Returns fields by name, with the checks that both formats need.
class WikiParser : public RecordParser {
 public:
  explicit WikiParser(std::vector<std::string> keys) : keys_(std::move(keys)) {}

 protected:
  using Fields = std::vector<std::pair<std::string_view, std::string>>;

  Parsed give(Fields fields, ParsedRecord& record, std::string& reason) {
    fields_ = std::move(fields);
    record.texts.resize(keys_.size());
    for (std::size_t i = 0; i < keys_.size(); ++i) {
      record.texts[i].clear();
      std::string names;
      for (const auto& [name, text] : fields_) {
        if (name == keys_[i]) record.texts[i].push_back(text);
        names += (names.empty() ? "" : ", ") + std::string(name);
      }
      if (record.texts[i].empty()) {
        reason = fmt::format("no key \"{}\"; an article has {}", keys_[i], names);
        return Parsed::kBad;
      }
      if (const auto at = first_bad_utf8(record.texts[i][0]); at != std::string_view::npos) {
        reason = fmt::format("byte {} of the {} is not UTF-8", at, keys_[i]);
        return Parsed::kBad;
      }
    }
    return Parsed::kRecord;
  }

 private:
  std::vector<std::string> keys_;
  Fields fields_;
};

class WikiExtractorParser final : public WikiParser {
 public:
  using WikiParser::WikiParser;

  Parsed parse(RecordBlock& block, std::size_t index, ParsedRecord& record,
               std::string& reason) override {
    const std::string_view text = trimmed(block.record(index));
    if (text.empty()) return Parsed::kNothing;
    const auto tag_end = text.find(">\n");
    if (!text.starts_with("<doc ") || tag_end == std::string_view::npos) {
      reason = "an article does not begin with <doc id=\"...\" ...>";
      return Parsed::kBad;
    }
    if (!text.ends_with("</doc>")) {
      reason = "the article has no </doc>; is the file cut off?";
      return Parsed::kBad;
    }
    const std::string_view tag = text.substr(0, tag_end);
    const auto attribute = [&](std::string_view name) {
      return without_entities(between(tag, fmt::format("{}=\"", name), "\"").value_or(""));
    };
    // The title ends at the last quote of the tag, because it may contain quotes.
    std::string title;
    if (const auto at = tag.find("title=\""); at != std::string_view::npos) {
      const std::string_view rest = tag.substr(at + 7);
      title = without_entities(rest.substr(0, rest.rfind('"')));
    }
    std::string_view body = text.substr(tag_end + 2);
    body.remove_suffix(std::string_view("</doc>").size());
    return give({{"id", attribute("id")},
                 {"url", attribute("url")},
                 {"title", std::move(title)},
                 {"text", std::string(trimmed(body))}},
                record, reason);
  }
};

class WikiXmlParser final : public WikiParser {
 public:
  using WikiParser::WikiParser;

  Parsed parse(RecordBlock& block, std::size_t index, ParsedRecord& record,
               std::string& reason) override {
    const std::string_view text = block.record(index);
    const auto begin = text.find("<page>");
    const bool tail = block.open_end && index + 1 == block.ends.size();
    if (begin == std::string_view::npos && tail) {
      if (text.find("</mediawiki>") != std::string_view::npos || trimmed(text).empty())
        return Parsed::kNothing;
      reason = "the dump has no </mediawiki>; is the file cut off?";
      return Parsed::kBad;
    }
    if (begin == std::string_view::npos || tail) {
      reason = tail ? "the page has no </page>; is the file cut off?" : "no <page> before </page>";
      return Parsed::kBad;
    }
    const std::string_view page = text.substr(begin);
    if (const auto space = between(page, "<ns>", "</ns>"); space && trimmed(*space) != "0")
      return Parsed::kNothing;
    if (page.find("<redirect ") != std::string_view::npos) return Parsed::kNothing;
    // <text bytes="10" xml:space="preserve">...</text>, or <text ... /> where it is empty.
    std::string_view body;
    if (const auto at = page.find("<text"); at != std::string_view::npos) {
      const auto close = page.find('>', at);
      if (close != std::string_view::npos && page[close - 1] != '/') {
        const auto end = page.find("</text>", close);
        if (end == std::string_view::npos) {
          reason = "the page's text has no </text>";
          return Parsed::kBad;
        }
        body = page.substr(close + 1, end - close - 1);
      }
    }
    return give({{"id", std::string(between(page, "<id>", "</id>").value_or(""))},
                 {"title", without_entities(between(page, "<title>", "</title>").value_or(""))},
                 {"text", plain_text_of_wikitext(without_entities(body))}},
                record, reason);
  }
};

void append_utf8(std::string& out, std::uint32_t code) {
  if (code < 0x80) {
    out += static_cast<char>(code);
  } else if (code < 0x800) {
    out += static_cast<char>(0xC0 | (code >> 6));
    out += static_cast<char>(0x80 | (code & 0x3F));
  } else if (code < 0x10000) {
    out += static_cast<char>(0xE0 | (code >> 12));
    out += static_cast<char>(0x80 | ((code >> 6) & 0x3F));
    out += static_cast<char>(0x80 | (code & 0x3F));
  } else {
    out += static_cast<char>(0xF0 | (code >> 18));
    out += static_cast<char>(0x80 | ((code >> 12) & 0x3F));
    out += static_cast<char>(0x80 | ((code >> 6) & 0x3F));
    out += static_cast<char>(0x80 | (code & 0x3F));
  }
}

// Removes [open ... close] pairs, including nested ones. Of an opening without an end, only its two
// characters are removed.
std::string without_nested(std::string_view text, std::string_view open, std::string_view close) {
  // Where each opening ends, found in one pass with a stack.
  std::vector<std::pair<std::size_t, std::size_t>> cuts;  // outermost [begin, end)
  std::vector<std::size_t> stack;
  for (std::size_t i = 0; i < text.size();) {
    if (text.substr(i, open.size()) == open) {
      stack.push_back(i);
      i += open.size();
    } else if (!stack.empty() && text.substr(i, close.size()) == close) {
      const std::size_t begin = stack.back();
      stack.pop_back();
      i += close.size();
      while (!cuts.empty() && cuts.back().first >= begin) cuts.pop_back();
      cuts.emplace_back(begin, i);
    } else {
      ++i;
    }
  }
  std::string out;
  std::size_t at = 0;
  for (const auto& [begin, end] : cuts) {
    out.append(text.substr(at, begin - at));
    at = end;
  }
  out.append(text.substr(at));
  return out;
}

// Removes text from `open` to `close`, which do not nest; to the end if `close` is missing.
std::string without_flat(std::string_view text, std::string_view open, std::string_view close) {
  std::string out;
  std::size_t at = 0;
  while (true) {
    const auto begin = text.find(open, at);
    if (begin == std::string_view::npos) break;
    out.append(text.substr(at, begin - at));
    const auto end = text.find(close, begin + open.size());
    if (end == std::string_view::npos) return out;
    at = end + close.size();
  }
  out.append(text.substr(at));
  return out;
}

bool starts_with_folded(std::string_view text, std::string_view lower) {
  if (text.size() < lower.size()) return false;
  for (std::size_t i = 0; i < lower.size(); ++i) {
    const char c = text[i];
    if ((c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c) != lower[i]) return false;
  }
  return true;
}

// Removes tags, and the content of tags that have no running text.
std::string without_tags(std::string_view text) {
  constexpr std::array<std::string_view, 12> kDropped = {
      "ref",    "gallery", "math",  "timeline", "imagemap", "score", "syntaxhighlight",
      "source", "code",    "style", "script",   "chem"};
  std::string out;
  bool tags_left = true;                            // a search that fails is not repeated:
  std::array<bool, kDropped.size()> closings_left;  // text with only openings takes linear time
  closings_left.fill(true);
  for (std::size_t i = 0; i < text.size();) {
    if (text[i] != '<') {
      out += text[i++];
      continue;
    }
    const std::string_view rest = text.substr(i + 1);
    const bool tag = !rest.empty() && (rest[0] == '/' || (rest[0] >= 'a' && rest[0] <= 'z') ||
                                       (rest[0] >= 'A' && rest[0] <= 'Z'));
    const auto end = tag && tags_left ? text.find('>', i) : std::string_view::npos;
    if (end == std::string_view::npos) {
      tags_left = tags_left && !tag;
      out += text[i++];
      continue;
    }
    std::size_t after = end + 1;
    if (text[end - 1] != '/') {
      for (std::size_t k = 0; k < kDropped.size(); ++k) {
        const std::string_view name = kDropped[k];
        if (!closings_left[k] || !starts_with_folded(rest, name)) continue;
        const char next = rest.size() > name.size() ? rest[name.size()] : '>';
        if (next != '>' && next != ' ' && next != '\n') continue;
        const auto close = text.find(fmt::format("</{}", name), end);
        const auto close_end = close == std::string_view::npos ? close : text.find('>', close);
        if (close_end != std::string_view::npos) {
          after = close_end + 1;
        } else {
          closings_left[k] = false;
        }
        break;
      }
    }
    i = after;
  }
  return out;
}

// For each "[[" of `text`, in order: where its "]]" ends, or npos.
std::vector<std::pair<std::size_t, std::size_t>> links_of(std::string_view text) {
  std::vector<std::pair<std::size_t, std::size_t>> links;
  std::vector<std::size_t> open;  // indices into links
  for (std::size_t i = 0; i + 1 < text.size();) {
    if (text[i] == '[' && text[i + 1] == '[') {
      open.push_back(links.size());
      links.emplace_back(i, std::string_view::npos);
      i += 2;
    } else if (text[i] == ']' && text[i + 1] == ']' && !open.empty()) {
      i += 2;
      links[open.back()].second = i;
      open.pop_back();
    } else {
      ++i;
    }
  }
  return links;
}

bool names_media(std::string_view inside) {
  const auto colon = inside.find(':');
  if (colon == std::string_view::npos) return false;
  const std::string_view space = trimmed(inside.substr(0, colon));
  return starts_with_folded(space, "file") || starts_with_folded(space, "image") ||
         starts_with_folded(space, "category") || starts_with_folded(space, "media");
}

// [[target|label]] -> label, [[target]] -> target; files, images and categories are removed with
// their contents. [http://... label] -> label. Links nest only in captions; below eight levels they
// stay as they are.
std::string without_links(std::string_view text, int depth = 0) {
  if (depth == 8) return std::string(text);
  const auto links = links_of(text);
  std::size_t next = 0;
  std::size_t bracket_end = 0;  // the next "]" or line end, searched once
  std::string out;
  for (std::size_t i = 0; i < text.size();) {
    while (next < links.size() && links[next].first < i) ++next;
    if (next < links.size() && links[next].first == i) {
      const std::size_t end = links[next].second;
      if (end == std::string_view::npos) {
        out += "[[";
        i += 2;
        continue;
      }
      const std::string_view inside = text.substr(i + 2, end - i - 4);
      if (!names_media(inside)) {
        // The label is the text after the last bar outside of inner links.
        std::size_t label = 0;
        int inner = 0;
        for (std::size_t k = 0; k < inside.size(); ++k) {
          if (inside.substr(k, 2) == "[[") ++inner;
          if (inside.substr(k, 2) == "]]") --inner;
          if (inside[k] == '|' && inner == 0) label = k + 1;
        }
        std::string_view shown = inside.substr(label);
        if (shown.starts_with(':')) shown.remove_prefix(1);
        out += without_links(shown, depth + 1);
      }
      i = end;
    } else if (text[i] == '[' &&
               (text.substr(i + 1, 4) == "http" || text.substr(i + 1, 2) == "//")) {
      if (bracket_end < i) bracket_end = text.find_first_of("]\n", i);
      const std::size_t end = bracket_end;
      if (end == std::string_view::npos || text[end] == '\n') {
        out += text[i++];
        continue;
      }
      const std::string_view inside = text.substr(i + 1, end - i - 1);
      const auto space = inside.find(' ');
      if (space != std::string_view::npos) out.append(inside.substr(space + 1));
      i = end + 1;
    } else {
      out += text[i++];
    }
  }
  return out;
}

std::string_view line_content(std::string_view line) {
  line = trimmed(line);
  if (line.starts_with("==") && line.ends_with("==")) {
    while (line.starts_with('=')) line.remove_prefix(1);
    while (line.ends_with('=')) line.remove_suffix(1);
    return trimmed(line);
  }
  if (line.starts_with("----"))
    return trimmed(line.substr(line.find_first_not_of('-') == std::string_view::npos
                                   ? line.size()
                                   : line.find_first_not_of('-')));
  while (!line.empty() && std::string_view("*#:;").find(line[0]) != std::string_view::npos)
    line.remove_prefix(1);
  if (line.starts_with("__") && line.ends_with("__") && line.find(' ') == std::string_view::npos)
    return {};
  return trimmed(line);
}

// '' and ''' and ''''' are italics and bold.
std::string without_quote_runs(std::string_view line) {
  std::string out;
  for (std::size_t i = 0; i < line.size();) {
    std::size_t run = i;
    while (run < line.size() && line[run] == '\'') ++run;
    if (run - i < 2) out.append(line.substr(i, std::max<std::size_t>(run - i, 1)));
    i = std::max(run, i + 1);
  }
  return out;
}

}  // namespace

std::string without_entities(std::string_view text) {
  constexpr std::array<std::pair<std::string_view, std::string_view>, 6> kKnown = {
      {{"lt", "<"},
       {"gt", ">"},
       {"amp", "&"},
       {"quot", "\""},
       {"apos", "'"},
       {"nbsp", "\xC2\xA0"}}};
  std::string out;
  out.reserve(text.size());
  for (std::size_t i = 0; i < text.size();) {
    if (text[i] != '&') {
      out += text[i++];
      continue;
    }
    const auto end = text.find(';', i);
    if (end == std::string_view::npos || end - i > 12) {
      out += text[i++];
      continue;
    }
    const std::string_view entity = text.substr(i + 1, end - i - 1);
    bool known = false;
    for (const auto& [name, value] : kKnown) {
      if (entity == name) {
        out.append(value);
        known = true;
      }
    }
    if (entity.size() > 1 && entity[0] == '#') {
      const bool hex = entity[1] == 'x' || entity[1] == 'X';
      std::uint32_t code = 0;
      bool valid = entity.size() > (hex ? 2U : 1U);
      for (const char c : entity.substr(hex ? 2 : 1)) {
        const std::uint32_t digit =
            c >= '0' && c <= '9'          ? static_cast<std::uint32_t>(c - '0')
            : hex && c >= 'a' && c <= 'f' ? static_cast<std::uint32_t>(c - 'a' + 10)
            : hex && c >= 'A' && c <= 'F' ? static_cast<std::uint32_t>(c - 'A' + 10)
                                          : 99U;
        if (digit == 99U || code > 0x10FFFF) valid = false;
        code = code * (hex ? 16 : 10) + digit;
      }
      if (valid && code > 0 && code <= 0x10FFFF && (code < 0xD800 || code > 0xDFFF)) {
        append_utf8(out, code);
        known = true;
      }
    }
    if (!known) out.append(text.substr(i, end - i + 1));
    i = end + 1;
  }
  return out;
}

std::string plain_text_of_wikitext(std::string_view wikitext) {
  std::string text = without_flat(wikitext, "<!--", "-->");
  text = without_tags(text);
  text = without_nested(text, "{{", "}}");
  text = without_nested(text, "{|", "|}");
  text = without_links(text);
  text = without_entities(text);  // entities of the article itself, after those of the XML
  std::string out;
  std::string_view rest = text;
  bool blank = false;
  while (!rest.empty()) {
    const auto end = rest.find('\n');
    std::string line(line_content(rest.substr(0, end)));
    rest = end == std::string_view::npos ? std::string_view{} : rest.substr(end + 1);
    line = without_quote_runs(line);
    if (line.empty()) {
      blank = !out.empty();
      continue;
    }
    if (blank) out += '\n';
    blank = false;
    out += line;
    out += '\n';
  }
  while (out.ends_with('\n')) out.pop_back();
  return out;
}

std::unique_ptr<RecordParser> make_wiki_extractor_parser(std::vector<std::string> keys) {
  return std::make_unique<WikiExtractorParser>(std::move(keys));
}

std::unique_ptr<RecordParser> make_wiki_xml_parser(std::vector<std::string> keys) {
  return std::make_unique<WikiXmlParser>(std::move(keys));
}

}  // namespace piton
