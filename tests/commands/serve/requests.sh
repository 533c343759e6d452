#!/usr/bin/env bash
# usage: requests.sh PITON LAUNCH WORK   asks servers of WORK/run; fails with a line that says what was wrong
set -u
piton=$1 launch=$2 work=$3
. "${0%/*}/server.sh"

echo secret >"$work/key"
serve=("$piton" serve --load "$work/run" --port 0 --threads 1)
start "${serve[@]}" --chat-template "$work/chat.jinja" --api-key-file "$work/key" --max-concurrent-requests 4 \
  --max-waiting-requests 4 --max-body-bytes 20000 --client-timeout-seconds 1
key=(-H "Authorization: Bearer secret")
completions=$url/v1/completions

ask 401 '"code":"invalid_api_key"' "$url/v1/models"
ask 200 '"id":"run"' "${key[@]}" "$url/v1/models"
ask 200 '"status":"ok"' "$url/health"
ask 200 '<!doctype html>' "$url/"
ask 404 '"error"' "${key[@]}" "$url/none"

# The texts of generate.
greedy=$("$piton" generate --load "$work/run" --prompt "To be" --greedy --max-new-tokens 12 --json --quiet |
  sed 's/.*"text":"\([^"]*\)".*/\1/')
ask 200 "\"text\":\"$greedy\"" "${key[@]}" "$completions" \
  -d '{"prompt":"To be","temperature":0,"max_tokens":12}'
ask 200 '"text":"To be' "${key[@]}" "$completions" -d '{"prompt":"To be","echo":true,"logprobs":2,"max_tokens":0}'
ask 200 '^data: \[DONE\]' "${key[@]}" "$completions" -d '{"prompt":"To be","stream":true,"n":2,"max_tokens":9}'
ask 200 '"role":"assistant"' "${key[@]}" "$url/v1/chat/completions" \
  -d '{"messages":[{"role":"user","content":"To be?"}],"max_tokens":8}'
ask 400 'chat_template_kwargs.x[^,]*: the chat template does not read it' "${key[@]}" "$url/v1/chat/completions" \
  -d '{"messages":[{"role":"user","content":"To be?"}],"chat_template_kwargs":{"x":1}}'
ask 200 "\"type\":\"output_text\",\"text\":" "${key[@]}" "$url/v1/responses" -d '{"input":"To be?","max_output_tokens":8}'
ask 200 '^event: response.(completed|incomplete)' "${key[@]}" "$url/v1/responses" \
  -d '{"input":"To be?","max_output_tokens":8,"stream":true}'
ask 400 'previous_response_id: got' "${key[@]}" "$url/v1/responses" -d '{"input":"x","previous_response_id":"y"}'
message='{"messages":[{"role":"user","content":"To be?"}],"max_tokens":8'
ask 200 '"type":"text","text":' -H 'x-api-key: secret' "$url/v1/messages" -d "$message}"
ask 200 '^event: message_stop' -H 'x-api-key: secret' "$url/v1/messages" -d "$message,\"stream\":true}"
ask 401 '"type":"authentication_error"' -H 'x-api-key: wrong' "$url/v1/messages" -d "$message}"
ask 200 '"input_tokens":2[0-9]' "${key[@]}" "$url/v1/messages/count_tokens" \
  -d '{"messages":[{"role":"user","content":"To be?"}]}'
ask 200 '"text":"(yes|no)"' "${key[@]}" "$completions" -d '{"prompt":"To be?","guided_choice":["yes","no"]}'
ask 200 '"text":"\{.*\\"a\\":.*\}"' "${key[@]}" "$completions" -d '{"prompt":"x","max_tokens":200,"guided_json":
  {"type":"object","properties":{"a":{"type":"integer","minimum":3,"maximum":9}},"required":["a"]}}'
ask 200 '"tokens":\[97,98\]' "${key[@]}" "$url/tokenize" -d '{"prompt":"ab"}'
ask 200 '"embedding":\[-?0\.[0-9]+,.*"index":1,"embedding":\[' "${key[@]}" "$url/v1/embeddings" -d '{"input":["To be","x"]}'
ask 200 '"embedding":"[A-Za-z0-9+/]+=*"' "${key[@]}" "$url/v1/embeddings" \
  -d '{"input":[97,98],"encoding_format":"base64"}'
ask 400 'input: a text has 300 tokens and the model takes 256' "${key[@]}" "$url/v1/embeddings" \
  -d "{\"input\":\"$(head -c 300 /dev/zero | tr '\0' a)\"}"
vector=$(curl -s "${key[@]}" "$url/v1/embeddings" -d '{"input":"To be"}' | grep -o '"embedding":\[[^,]*....')
ask 413 'has 300[0-9]{2} bytes, wanted at most 20000; shorten it, or start the server with a larger --max-body-bytes' \
  "${key[@]}" "$completions" -d "{\"prompt\":\"$(head -c 30000 /dev/zero | tr '\0' a)\"}"
ask 413 '"type":"request_too_large"' "${key[@]}" "$url/v1/messages" -d "{\"prompt\":\"$(head -c 30000 /dev/zero | tr '\0' a)\"}"
ask 400 'the prompt has 300 tokens and the model takes 256' "${key[@]}" "$completions" \
  -d "{\"prompt\":\"$(head -c 300 /dev/zero | tr '\0' a)\"}"
ask 400 'the request has 9 texts, and there are 8 places' "${key[@]}" "$completions" -d '{"prompt":"x","n":9}'

# Malformed requests: every beginning of a valid one, and each with a changed byte.
valid='{"prompt":"To","max_tokens":1,"temperature":0.5,"top_p":0.9,"n":1,"stop":["a","b"],"seed":7,"logprobs":1}'
mkdir -p "$work/bad"
: >"$work/bad/config"
for ((i = 0; i < ${#valid}; ++i)); do
  printf '%s' "${valid:0:i}" >"$work/bad/$i.cut"
  printf '%s\xff%s' "${valid:0:i}" "${valid:i+1}" >"$work/bad/$i.byte"
  printf '%s-%s' "${valid:0:i}" "${valid:i+1}" >"$work/bad/$i.minus"
  printf '%s[%s' "${valid:0:i}" "${valid:i+1}" >"$work/bad/$i.bracket"
  for kind in cut byte minus bracket; do
    [ ! -s "$work/bad/config" ] || echo next >>"$work/bad/config"
    printf 'url="%s"\nheader="Authorization: Bearer secret"\ndata-binary="@%s"\noutput="%s"\nsilent\n%s\n' \
      "$completions" "$work/bad/$i.$kind" "$work/bad/answer" 'write-out="%{http_code}\n"' >>"$work/bad/config"
  done
done
curl -K "$work/bad/config" >"$work/bad/statuses" || fail "malformed requests: no answer"
count=$(grep -c . "$work/bad/statuses")
[ "$count" = $((4 * ${#valid})) ] || fail "$count answers to malformed requests"
! grep -Evq '^(200|400)$' "$work/bad/statuses" || fail "statuses: $(sort "$work/bad/statuses" | uniq -c)"
grep -q 400 "$work/bad/statuses" || fail "no malformed request was refused"
for bytes in 'nonsense\r\n\r\n' 'GET / HTTP/9\r\n\r\n' 'POST /v1/completions HTTP/1.1\r\nContent-Length: -1\r\n\r\n' '\0\0\0' ''; do
  printf "$bytes" | timeout 10 bash -c "exec 3<>/dev/tcp/127.0.0.1/${url##*:}; cat >&3; head -c 1 <&3" >/dev/null
done

# Clients that leave: their places are free again.
for _ in 1 2 3 4 5 6; do
  curl -sN --max-time 0.2 "${key[@]}" "$completions" -d '{"prompt":"x","max_tokens":250,"stream":true}' >/dev/null
  curl -s --max-time 0.2 "${key[@]}" "$completions" -d '{"prompt":"x","max_tokens":250}' >/dev/null
done
for _ in $(seq 100); do
  running=$(curl -s "${key[@]}" "$url/metrics" | sed -n 's/^piton_texts_running //p')
  [ "$running" != 0 ] || break
  sleep 0.1
done
[ "$running" = 0 ] || fail "$running texts run for clients that have left"
ask 200 '"text"' "${key[@]}" "$completions" -d '{"prompt":"To be","max_tokens":3}'

# SIGTERM finishes what runs.
curl -s "${key[@]}" "$completions" -d '{"prompt":"x","max_tokens":250}' -o "$work/last" &
last=$!
for _ in $(seq 100); do
  running=$(curl -s "${key[@]}" "$url/metrics" | sed -n 's/^piton_texts_running //p')
  [ "$running" = 0 ] || break
  sleep 0.02
done
stop TERM 0
wait "$last" || fail "the answer that ran was cut"
grep -q '"completion_tokens"' "$work/last" || fail "the answer that ran: $(cat "$work/last")"

# TLS. Another library that contains OpenSSL (libparquet of a wheel) lends libssl nothing.
lent=$(LD_BIND_NOW=1 LD_DEBUG=bindings "$piton" --version 2>&1 | grep -E '/lib(ssl|crypto)[.][^ ]* \[0\] to' |
  grep -oE 'to [^ ]*[.]so[^ ]*' | sort -u | grep -vE '/lib(ssl|crypto|c|dl|pthread)[.]so')
[ -z "$lent" ] || fail "libssl is bound $lent"
if command -v openssl >/dev/null; then
  openssl req -x509 -newkey rsa:2048 -nodes -keyout "$work/tls.key" -out "$work/tls.pem" -days 2 -subj /CN=localhost \
    -addext subjectAltName=IP:127.0.0.1 2>/dev/null || fail "openssl makes no certificate"
  start "${serve[@]}" --ssl-certfile "$work/tls.pem" --ssl-keyfile "$work/tls.key"
  case $url in https://*) ;; *) fail "the URL of a server with TLS is $url" ;; esac
  ask 200 '^data: \[DONE\]' --cacert "$work/tls.pem" "$url/v1/completions" \
    -d '{"prompt":"To be","temperature":0,"max_tokens":12,"stream":true}'
  ask 200 "\"text\":\"$greedy\"" --cacert "$work/tls.pem" "$url/v1/completions" \
    -d '{"prompt":"To be","temperature":0,"max_tokens":12}'
  ! curl -s "$url/health" >/dev/null || fail "a certificate that is not known was accepted"
  ! curl -s "http${url#https}/health" >/dev/null || fail "plain HTTP was answered by a server with TLS"
  stop TERM 0
else
  echo "no openssl: TLS is not tested"
fi

# Without key and chat template; two tensor ranks answer as one.
start "$launch" 2 "${serve[@]}" --tensor-model-parallel-size 2 --served-model-name two --prompt-lookup 4
ask 200 "\"text\":\"$greedy\"" "$url/v1/completions" -d '{"prompt":"To be","temperature":0,"max_tokens":12}'
ask 200 '"text":"(yes|no)"' "$url/v1/completions" -d '{"model":"two","prompt":"To be?","guided_choice":["yes","no"]}'
ask 200 '"token_logprobs":\[null,-' "$url/v1/completions" -d '{"prompt":"To","echo":true,"logprobs":1,"max_tokens":1}'
ask 400 'no chat template' "$url/v1/chat/completions" -d '{"messages":[{"role":"user","content":"x"}]}'
ask 404 'this server has \\"two\\"' "$url/v1/completions" -d '{"model":"gpt","prompt":"x"}'
ask 200 '"embedding":\[' "$url/v1/embeddings" -d '{"input":"To be"}'
both=$(grep -o '"embedding":\[[^,]*....' "$work/answer")
[ "${both:0:18}" = "${vector:0:18}" ] || fail "a vector of two ranks begins with $both instead of $vector"
ask 200 '"text"' "$url/v1/completions" -d '{"prompt":"aaaaaaaaaaaaaaaaaaaa","temperature":0,"max_tokens":20}'
ask 200 '^piton_draft_tokens_total [0-9]+$' "$url/metrics"
kill -TERM "$server"
wait "$server" || fail "two ranks: exit code $? after SIGTERM"
server=0
echo "all requests were answered as they should be"
