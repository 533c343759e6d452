// Parses articles from WikiExtractor's output and from MediaWiki's XML dumps.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "data/records/record_parser.h"

namespace piton {

// <doc id="12" url="..." title="...">\n text \n</doc>
std::unique_ptr<RecordParser> make_wiki_extractor_parser(std::vector<std::string> keys);

// <page><title>..</title><ns>0</ns><id>..</id><revision>..<text
// ..>wikitext</text></revision></page>; skips other namespaces and redirects. The text is that of
// plain_text_of_wikitext().
std::unique_ptr<RecordParser> make_wiki_xml_parser(std::vector<std::string> keys);

// The running text that a reader would see: templates, tables, references, comments, files and
// categories are left out, links show their label, headings and list items are on separate lines.
// Markup that nests wrongly is removed, never more than to the end of the article.
std::string plain_text_of_wikitext(std::string_view wikitext);

// &lt; &gt; &amp; &quot; &apos; &nbsp; and numbered entities; others stay.
std::string without_entities(std::string_view text);

}  // namespace piton
