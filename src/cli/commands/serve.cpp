// piton serve: OpenAI's HTTP interface for a model.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "api/model.h"
#include "api/speculation.h"
#include "base/files/files.h"
#include "base/options/option_range.h"
#include "cli/chat_variables.h"
#include "cli/command.h"
#include "cli/commands/adapter_choices.h"
#include "cli/compatibility/inference_flags.h"
#include "cli/launch.h"
#include "cli/terminal/print.h"
#include "cli/terminal/stop_signals.h"
#include "serve/prepared_model.h"
#include "serve/text_service.h"

namespace piton::cli {
namespace {

struct ServeOptions {
  ModelToLoad model;
  std::string host = "127.0.0.1";
  int port = 8080;
  std::string api_key_file;
  std::string ssl_certfile;
  std::string ssl_keyfile;
  std::string served_model_name;
  AdapterChoices adapters;
  std::string chat_template;
  ChatVariables variables;
  bool finds_reasoning = true;
  EmbeddingPooling embedding_pooling = EmbeddingPooling::kMean;
  std::int64_t max_concurrent_requests = 8;
  std::int64_t max_waiting_requests = 64;
  std::int64_t max_connections = 256;
  std::int64_t max_new_tokens = 0;
  std::int64_t max_body_bytes = 4 << 20;
  double request_timeout_seconds = 600;
  double client_timeout_seconds = 30;

  template <typename Visitor>
  void visit(Visitor&& v) {
    model.visit(v);
    v(Option{"host", "address to listen on (0.0.0.0: all of this machine)"}, host);
    v(Option{"port", "port to listen on (0: any free one, which is printed)"}, port);
    v(Option{"api-key-file",
             "file whose first line clients send as Authorization: Bearer KEY",
             {.placeholder = "FILE"}},
      api_key_file);
    v(Option{"ssl-certfile",
             "certificate in PEM, with its chain: answers HTTPS alone",
             {.placeholder = "FILE"}},
      ssl_certfile);
    v(Option{"ssl-keyfile", "key in PEM of the certificate", {.placeholder = "FILE"}}, ssl_keyfile);
    v(Option{"served-model-name",
             "name of the model in requests and answers (default: that of its folder or file)",
             {.placeholder = "NAME"}},
      served_model_name);
    adapters.visit(v, "requests choose by these names in their field model");
    v(Option{"chat-template",
             "file of a chat template in Jinja, the name of one of the model's, or one of "
             "--prompt-type (default: the model's own)",
             {.placeholder = "FILE"}},
      chat_template);
    variables.visit(v);
    v(Option{"reasoning-format",
             "auto: what a model writes between <think> and </think> is reasoning_content of an "
             "answer, where its chat template has these words; none: it is a part of content"},
      Choice(finds_reasoning, {{"auto", true}, {"none", false}}));
    v(Option{"embedding-pooling",
             "what /v1/embeddings makes a vector of: the mean of all hidden states, or the last "
             "one"},
      Choice(embedding_pooling,
             {{"mean", EmbeddingPooling::kMean}, {"last", EmbeddingPooling::kLast}}));
    v(Option{"max-concurrent-requests", "texts that are written at the same time"},
      max_concurrent_requests);
    v(Option{"max-waiting-requests", "texts that wait for a place; more are answered 429"},
      max_waiting_requests);
    v(Option{"max-connections", "connections at the same time; more are answered 503"},
      max_connections);
    v(Option{"max-new-tokens", "largest max_tokens of a request (0: the model's longest sequence)"},
      max_new_tokens);
    v(Option{"max-body-bytes", "largest body of a request; larger ones are answered 413"},
      max_body_bytes);
    v(Option{"request-timeout-seconds", "longest time from a request to the end of its answer"},
      request_timeout_seconds);
    v(Option{"client-timeout-seconds",
             "longest time that a client may take to send a request, or to read a part of an "
             "answer"},
      client_timeout_seconds);
  }

  // The largest max_tokens of a request to a model.
  std::int64_t longest_text(std::int64_t longest) const {
    return max_new_tokens == 0 ? longest : std::min(max_new_tokens, longest);
  }

  void check() const {
    if (model.load.empty())
      throw Error(Fault::kUsage, "--load: no model is named; wanted the folder of a model");
    if (ssl_certfile.empty() != ssl_keyfile.empty())
      throw Error(Fault::kUsage,
                  "--ssl-certfile, --ssl-keyfile: one is given; wanted both or none");
    static_cast<void>(variables.json());
    check_range("--port", port, 0, 65535);
    check_range("--max-concurrent-requests", max_concurrent_requests, 1, 4096);
    check_range("--max-waiting-requests", max_waiting_requests, 0, 1 << 20);
    check_range("--max-connections", max_connections, 1, 4096);
    check_range("--max-new-tokens", max_new_tokens, 0, std::int64_t{1} << 30);
    check_range("--max-body-bytes", max_body_bytes, 1, std::int64_t{1} << 30);
    check_seconds("--request-timeout-seconds", request_timeout_seconds);
    check_seconds("--client-timeout-seconds", client_timeout_seconds);
  }

  PreparedModel::Names names() const {
    return {.model = name(),
            .chat_template = chat_template,
            .variables = variables.json(),
            .pooling = embedding_pooling};
  }
  // The name of the model in requests.
  std::string name() const {
    if (!served_model_name.empty()) return served_model_name;
    return model.name();
  }

 private:
  static void check_seconds(const char* flag, double seconds) {
    constexpr double kWeek = 7 * 24 * 3600;
    if (!(seconds > 0 && seconds <= kWeek))
      throw Error(Fault::kUsage, "{}: got {}, wanted more than 0, at most {}", flag, seconds,
                  kWeek);
  }
};

std::string read_api_key(const std::string& path) {
  if (path.empty()) return "";
  std::string text = read_text_file(path);
  text.resize(std::min(text.find('\n'), text.size()));
  while (!text.empty() && (text.back() == '\r' || text.back() == ' ')) text.pop_back();
  const auto is_plain = [](char c) { return c > ' ' && c <= '~'; };
  if (text.empty() || !std::all_of(text.begin(), text.end(), is_plain))
    throw Error(Fault::kData, "{}: the first line is no API key; wanted visible ASCII characters",
                path);
  return text;
}

std::chrono::milliseconds milliseconds_of(double seconds) {
  return std::chrono::milliseconds(static_cast<std::int64_t>(seconds * 1000));
}

// Ends the loop when a signal has come; joined with this object.
class FinishOnSignal {
 public:
  FinishOnSignal(const StopSignals& signals, DecodingLoop& loop)
      : watcher_([this, &signals, &loop] {
          while (signals.first() == 0 && !ended_)
            std::this_thread::sleep_for(std::chrono::milliseconds(20));
          loop.finish();
        }) {}
  ~FinishOnSignal() {
    ended_ = true;
    watcher_.join();
  }

 private:
  std::atomic<bool> ended_{false};
  std::thread watcher_;
};

}  // namespace

int run_serve(Invocation& invocation) {
  GeneralOptions general;
  ServeOptions options;
  SpeculationOptions speculation;
  InferenceOptions layout;
  TokenizerOptions tokenizer;
  OptionSet set;
  set.add("Server", options);
  set.add("Speculative decoding", speculation);
  set.add("Parallelism", layout);
  set.add("Tokenizer", tokenizer);
  InferenceFlags others(InferenceCommand::kServe, set);
  refuse_more_arguments(invocation.parse(set, general));
  options.check();
  const AdapterFiles adapters = options.adapters.files(options.model, options.name());
  std::string api_key;
  std::shared_ptr<const TlsFiles> tls;
  invocation.together([&] {
    speculation.check();
    api_key = read_api_key(options.api_key_file);
    if (!options.ssl_certfile.empty())
      tls = std::make_shared<TlsFiles>(options.ssl_certfile, options.ssl_keyfile);
  });
  StopSignals signals(invocation.log);
  Engine engine(engine_options(general), invocation.log);
  invocation.together([&] { layout.check(engine.world().size()); });
  const auto ranks = make_group_of_all(engine.world(), "serve");
  layout.drafts_later = speculation.draft_mtp > 0;
  const auto model = Model::load(engine.machine(), options.model.load, tokenizer, layout, adapters);
  others.check(model->config(), options.model.load, invocation.log_of_all());
  const Speculation drafts(engine.machine(), speculation, *model, layout);
  PreparedModel served(*model, options.names(), options.max_concurrent_requests);
  DecodingLoop loop(
      served, *ranks,
      {.running = options.max_concurrent_requests, .waiting = options.max_waiting_requests});
  if (ranks->rank() != 0) {
    signals.be_silent();
    signals.promise("ending");
    loop.run();
    signals.settle();
    return 0;
  }
  const std::int64_t new_tokens = options.longest_text(served.longest_sequence());
  TextService service(
      served, loop,
      {.api_key = api_key,
       .limits = {.new_tokens = new_tokens, .finds_reasoning = options.finds_reasoning},
       .deadline = milliseconds_of(options.request_timeout_seconds)});
  const std::chrono::milliseconds patience = milliseconds_of(options.client_timeout_seconds);
  HttpServer server(
      {.host = options.host,
       .port = options.port,
       .limits = {.body_bytes = options.max_body_bytes,
                  .connections = static_cast<int>(options.max_connections),
                  .to_read = patience,
                  .to_write = patience},
       .tls = tls},
      [&](const HttpRequest& request, const HttpClient& client) {
        return service.answer(request, client);
      },
      &TextService::error_body);
  const bool is_local =
      options.host == "127.0.0.1" || options.host == "localhost" || options.host == "::1";
  if (api_key.empty() && !is_local) {
    invocation.log.warning(
        "--host: everybody who reaches this machine can use the model; give --api-key-file");
  }
  signals.promise("finishing what runs");
  server.start([&] { engine.machine().threads.unpin_this_thread(); });
  print(fmt::format("piton serve: {} at {}://{}:{}/\n", served.name(), tls ? "https" : "http",
                    options.host, server.port()));
  std::fflush(stdout);
  {
    const FinishOnSignal watcher(signals, loop);
    loop.run();
  }
  server.stop();
  signals.settle();
  return 0;
}

}  // namespace piton::cli
