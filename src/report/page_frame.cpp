#include "report/page_frame.h"

#include <fmt/format.h>

#include "base/html.h"

namespace piton {
namespace {

// The tables have the text for screen readers and for people who cannot distinguish colors.
constexpr std::string_view kStyle = R"(
:root{color-scheme:light dark;--bg:#fff;--fg:#1c2024;--soft:#60646c;--line:#e3e5e8;--card:#f7f8f9;
--c0:#2563c9;--c1:#c2571a;--c2:#2e7d4f;--c3:#8a3fb0;--c4:#b3273f;
--c5:#0e7c86;--c6:#7a6a00;--c7:#555}
@media(prefers-color-scheme:dark){:root{--bg:#111316;--fg:#e8eaed;--soft:#9ba1a9;--line:#2b2f35;
--card:#191c20;--c0:#7aa7f7;--c1:#f0a070;--c2:#74c796;--c3:#c99ae6;--c4:#f08a9b;--c5:#62c7d0;
--c6:#d3c04a;--c7:#aaa}}
*{box-sizing:border-box}body{margin:0 auto;max-width:1180px;padding:20px;background:var(--bg);
color:var(--fg);font:15px/1.5 system-ui,sans-serif}h1{font-size:22px;margin:0 0 4px}
h2{font-size:17px;margin:28px 0 10px}.soft{color:var(--soft)}.runs{display:grid;gap:12px;
grid-template-columns:repeat(auto-fit,minmax(min(100%,330px),1fr))}.card{background:var(--card);
border:1px solid var(--line);border-radius:8px;padding:12px 14px;overflow-wrap:anywhere}
.card h3{margin:0 0 6px;font-size:15px}.key{display:inline-block;width:10px;height:10px;
border-radius:5px;margin-right:7px;background:var(--c)}dl{display:grid;margin:0;
grid-template-columns:auto 1fr;gap:1px 14px}dt{color:var(--soft)}dd{margin:0;text-align:right;
font-variant-numeric:tabular-nums}.bar{height:6px;border-radius:3px;background:var(--line);
margin:4px 0 8px}.bar i{display:block;height:6px;border-radius:3px;background:var(--c)}
.bad{color:var(--c4)}.plots{display:grid;gap:12px;
grid-template-columns:repeat(auto-fit,minmax(min(100%,440px),1fr))}svg{width:100%;height:auto;
display:block}.title{font:600 14px system-ui,sans-serif;fill:var(--fg)}.tick{font:11px
system-ui,sans-serif;fill:var(--soft)}.grid{stroke:var(--line)}.mark{stroke:var(--c);stroke-dasharray:3 4;opacity:.7}.curve path{fill:none;
stroke:var(--c);stroke-width:1.6}.curve .band{fill:var(--c);stroke:none;opacity:.18}
.curve circle{fill:var(--c)}.faint path{opacity:.55}.scroll{overflow-x:auto}
table{border-collapse:collapse;width:100%;font-size:14px}
td,th{text-align:left;padding:3px 12px 3px 0;
border-bottom:1px solid var(--line);vertical-align:top}pre{white-space:pre-wrap;overflow-wrap:anywhere;
font-size:13px;margin:6px 0 12px}.n{text-align:right;
font-variant-numeric:tabular-nums}tr.differs td{font-weight:600}footer{margin-top:30px}
@media(max-width:500px){.plots .card{overflow-x:auto}.plots svg{min-width:500px}
.tick{font-size:13px}.title{font-size:18px}}
)";

}  // namespace

std::string page_begin(const std::string& title, std::string_view head) {
  return fmt::format(
      "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n{}"
      "<title>{}</title>\n<style>{}</style></head>\n<body>\n<h1>{}</h1>\n",
      head, html_escaped(title), kStyle, html_escaped(title));
}

std::string page_end(const std::string& note) {
  return fmt::format("\n<footer class=\"soft\">made by piton report, {}</footer>\n</body></html>\n",
                     html_escaped(note));
}

std::string text_beginning(const std::string& text, std::size_t most) {
  if (text.size() <= most) return text;
  while (most > 0 && (static_cast<unsigned char>(text[most]) & 0xC0U) == 0x80U) --most;
  return text.substr(0, most) + " ...";
}

}  // namespace piton
