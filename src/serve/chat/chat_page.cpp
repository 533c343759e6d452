#include "serve/chat/chat_page.h"

namespace piton {

const std::string_view kChatPage = R"html(<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'; img-src data:">
<link rel="icon" href="data:,">
<title>Piton chat</title>
<style>
:root{color-scheme:light dark;--bg:#fff;--fg:#1c2024;--soft:#60646c;--line:#d9dce0;--card:#f3f5f7;--key:#2563c9;--bad:#b3273f}
@media(prefers-color-scheme:dark){:root{--bg:#111316;--fg:#e8eaed;--soft:#9ba1a9;--line:#33383f;--card:#1b1e23;--key:#7aa7f7;--bad:#f08a9b}}
*{box-sizing:border-box}
body{margin:0;height:100dvh;display:flex;flex-direction:column;background:var(--bg);color:var(--fg);font:16px/1.5 system-ui,sans-serif}
header,form,main>*{width:100%;max-width:820px;margin:0 auto;padding:0 14px}
header{display:flex;gap:10px;align-items:center;padding-top:8px;padding-bottom:8px}
header h1{font-size:17px;margin:0;flex:1;min-width:0;overflow:hidden;text-overflow:ellipsis;white-space:nowrap}
main{flex:1;overflow-y:auto;border-top:1px solid var(--line);border-bottom:1px solid var(--line)}
.turn{padding-top:10px;padding-bottom:2px}
.turn b{display:block;font-size:13px;color:var(--soft)}
.turn p{margin:2px 0 8px;padding:8px 12px;border-radius:10px;background:var(--card);white-space:pre-wrap;overflow-wrap:anywhere;min-height:1.5em}
.user p{border:1px solid var(--line);background:none}
.error p{color:var(--bad)}
.soft{color:var(--soft);font-size:13px}
form{display:flex;gap:8px;padding-top:10px;padding-bottom:12px;align-items:flex-end}
textarea,input,select{font:inherit;color:inherit;background:var(--bg);border:1px solid var(--line);border-radius:8px;padding:8px 10px;width:100%}
textarea{flex:1;min-width:0;resize:none}
button{font:inherit;min-height:44px;padding:6px 14px;border-radius:8px;border:1px solid var(--line);background:var(--card);color:inherit;cursor:pointer}
button.main{background:var(--key);border-color:var(--key);color:var(--bg)}
:focus-visible{outline:2px solid var(--key);outline-offset:1px}
details{padding-top:8px!important;padding-bottom:8px!important}
summary{min-height:32px;cursor:pointer;color:var(--soft)}
.grid{display:grid;gap:8px;grid-template-columns:repeat(auto-fit,minmax(min(100%,170px),1fr))}
label{font-size:13px;color:var(--soft)}
</style>
</head>
<body>
<header><h1 id="title">Piton</h1><button type="button" id="clear">New chat</button></header>
<main id="main">
<details id="settings"><summary>Settings</summary><div class="grid">
<label>Temperature<input id="temperature" type="number" min="0" max="100" step="0.1" value="0.7"></label>
<label>Most tokens<input id="tokens" type="number" min="1" step="1" placeholder="all that fit"></label>
<label id="models" hidden>Model<select id="model"></select></label>
<label>API key<input id="key" type="password" autocomplete="off"></label>
<label style="grid-column:1/-1">System message<textarea id="system" rows="2"></textarea></label>
</div></details>
<div id="turns" role="log" aria-live="polite"></div>
</main>
<form id="form">
<textarea id="text" rows="2" placeholder="Message" aria-label="Message"></textarea>
<button class="main" id="send">Send</button>
</form>
<script>
"use strict";
const get = id => document.getElementById(id);
let messages = [], running = null;

function headers() {
  const all = {"Content-Type": "application/json"};
  if (get("key").value) all.Authorization = "Bearer " + get("key").value;
  return all;
}

function show(kind, name, text) {
  const turn = document.createElement("div"), who = document.createElement("b"), what = document.createElement("p");
  turn.className = "turn " + kind;
  who.textContent = name;
  what.textContent = text;
  turn.append(who, what);
  get("turns").append(turn);
  get("main").scrollTop = get("main").scrollHeight;
  return what;
}

async function findModel() {
  const answer = await fetch("v1/models", {headers: headers()});
  if (answer.status === 401) get("settings").open = true;
  if (!answer.ok) return;
  const names = (await answer.json()).data.map(one => one.id);
  get("model").replaceChildren(...names.map(name => new Option(name)));
  get("models").hidden = names.length < 2;
  get("title").textContent = names[0];
}

// The events of a stream, as objects.
async function* events(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const {value, done} = await reader.read();
    if (done) return;
    rest += value;
    for (let end; (end = rest.indexOf("\n\n")) >= 0; rest = rest.slice(end + 2)) {
      const data = rest.slice(0, end).replace(/^data: /, "");
      if (data === "[DONE]") return;
      yield JSON.parse(data);
    }
  }
}

async function ask(text) {
  messages.push({role: "user", content: text});
  show("user", "You", text);
  const place = show("assistant", "Model", "");
  running = new AbortController();
  get("send").textContent = "Stop";
  let written = "", tokens = 0, first = 0, reasoning = null;
  // Before the answer, and not sent back.
  const thoughts = () => {
    if (!reasoning) {
      reasoning = document.createElement("p");
      reasoning.className = "soft";
      place.before(reasoning);
    }
    return reasoning;
  };
  try {
    const system = get("system").value.trim();
    const all = system ? [{role: "system", content: system}, ...messages] : messages;
    const answer = await fetch("v1/chat/completions", {
      method: "POST", headers: headers(), signal: running.signal,
      // An empty field is left out: the model then writes as much as it has room for.
      body: JSON.stringify({messages: all, stream: true, stream_options: {include_usage: true},
                            model: get("model").value || undefined,
                            temperature: +get("temperature").value,
                            max_tokens: get("tokens").value ? +get("tokens").value : undefined})});
    if (!answer.ok) throw new Error((await answer.json()).error.message);
    const main = get("main");
    for await (const event of events(answer.body)) {
      if (event.error) throw new Error(event.error.message);
      if (event.usage) tokens = event.usage.completion_tokens;
      const delta = event.choices[0] ? event.choices[0].delta : {};
      const part = delta.content, thought = delta.reasoning_content;
      if (!part && !thought) continue;
      if (!first) first = performance.now();
      if (thought) thoughts().textContent += thought;
      if (part) written += part;
      const atEnd = main.scrollHeight - main.scrollTop - main.clientHeight < 60;
      place.textContent = written;
      if (atEnd) main.scrollTop = main.scrollHeight;
    }
    const seconds = (performance.now() - first) / 1000;
    if (tokens > 1) {
      const rate = document.createElement("span");
      rate.className = "soft";
      rate.textContent = ((tokens - 1) / seconds).toFixed(1) + " tokens a second";
      place.parentNode.append(rate);
    }
  } catch (error) {
    if (error.name !== "AbortError") show("error", "Error", error.message);
  }
  if (written) messages.push({role: "assistant", content: written});
  else { messages.pop(); place.parentNode.remove(); if (!get("text").value) get("text").value = text; }
  running = null;
  get("send").textContent = "Send";
  get("text").focus();
}

get("form").addEventListener("submit", event => {
  event.preventDefault();
  if (running) return running.abort();
  const text = get("text").value.trim();
  if (!text) return;
  get("text").value = "";
  ask(text);
});
get("text").addEventListener("keydown", event => {
  if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
    event.preventDefault();
    get("form").requestSubmit();
  }
});
get("clear").addEventListener("click", () => {
  if (running) running.abort();
  messages = [];
  get("turns").replaceChildren();
});
get("key").addEventListener("change", findModel);
get("model").addEventListener("change", () => get("title").textContent = get("model").value);
findModel();
</script>
</body>
</html>
)html";

}  // namespace piton
