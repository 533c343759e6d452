// HTTP/1.1 for one handler: connections, limits and streams (cpp-httplib inside).
//
// Each connection has a thread. A client must send a request within a time, read what is written
// within a time, and stay below limits of bytes; otherwise its connection is closed.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "serve/http/connection.h"

namespace piton {

struct HttpLimits {
  std::int64_t body_bytes = 0;
  int connections = 256;                       // more are answered 503 and closed
  std::chrono::milliseconds to_read{30'000};   // a whole request, from its first byte
  std::chrono::milliseconds to_write{30'000};  // for a client that takes no byte
  std::chrono::milliseconds idle{5'000};       // between two requests of a connection
};

struct HttpRequest {
  std::string method;
  std::string path;           // without the query
  std::string authorization;  // value of the header
  std::string api_key;        // of x-api-key
  std::string body;
};

// The connection of a request that is being answered.
class HttpClient {
 public:
  virtual ~HttpClient() = default;
  // False if the client has closed the connection, or the server has.
  virtual bool is_connected() const = 0;
};

struct HttpAnswer {
  int status = 200;
  std::string type = "application/json";
  std::string body;
  // If set, `body` is ignored: called once, and writes the parts of the answer. `write` returns
  // false if the client is gone.
  using Write = std::function<bool(std::string_view)>;
  std::function<void(const Write& write, const HttpClient& client)> stream;
};

// Called by many threads; throws nothing.
using HttpHandler = std::function<HttpAnswer(const HttpRequest&, const HttpClient&)>;
// What is not a request for the handler: malformed, too large, refused.
struct HttpRefusal {
  int status = 400;
  std::string path;                        // "" if it is not known
  std::optional<std::int64_t> body_bytes;  // as the request says
  std::int64_t most_body_bytes = 0;
};
using HttpErrorBody = std::function<std::string(const HttpRefusal&)>;

struct HttpOptions {
  std::string host;
  int port = 0;  // 0: any free one
  HttpLimits limits;
  std::shared_ptr<const TlsFiles> tls;  // null: plain HTTP
};

class HttpServer {
 public:
  // Listens. Throws Error(kUsage) if the address cannot be used.
  HttpServer(HttpOptions options, HttpHandler handler, HttpErrorBody error_body);
  // stop() and join.
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  int port() const;
  // Accepts connections on threads of the server; returns at once. `on_thread` runs first on the
  // thread that starts all others.
  void start(std::function<void()> on_thread);
  // No more connections and requests; requests that are being answered continue. Returns when all
  // connections are closed.
  void stop();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace piton
