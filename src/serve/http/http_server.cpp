#include "serve/http/http_server.h"

#include <httplib.h>
#include <sys/socket.h>

#include <atomic>
#include <cerrno>
#include <charconv>
#include <condition_variable>
#include <map>
#include <mutex>
#include <thread>

#include "base/error.h"
#include "base/signals_blocked.h"

namespace piton {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

// Line and headers of a request.
constexpr std::int64_t kMostHeaderBytes = 64 << 10;
constexpr milliseconds kStopCheck{100};

// A connection as cpp-httplib reads and writes it. Its own streams wait for each byte separately,
// so that a client that sends one a second is never cut.
class LimitedStream final : public httplib::Stream, public HttpClient {
 public:
  LimitedStream(Connection& connection, const HttpLimits& limits)
      : connection_(connection), limits_(limits) {
    begin_request();
  }

  void begin_request() {
    read_before_ = Clock::now() + limits_.to_read;
    bytes_left_ = limits_.body_bytes + kMostHeaderBytes;
  }
  Clock::time_point read_before() const { return read_before_; }

  bool is_connected() const override { return connection_.is_connected(); }
  bool is_readable() const override { return at_ < filled_ || Clock::now() < read_before_; }
  bool is_writable() const override { return is_connected(); }

  // cpp-httplib reads headers byte by byte.
  ssize_t read(char* to, size_t size) override {
    if (at_ == filled_) {
      if (bytes_left_ <= 0 || Clock::now() >= read_before_) return -1;
      const ssize_t got = connection_.read(buffer_, sizeof buffer_, read_before_);
      if (got <= 0) return got;
      bytes_left_ -= got;
      at_ = 0;
      filled_ = static_cast<std::size_t>(got);
    }
    const std::size_t some = std::min(size, filled_ - at_);
    std::copy_n(buffer_ + at_, some, to);
    at_ += some;
    return static_cast<ssize_t>(some);
  }

  ssize_t write(const char* from, size_t size) override {
    return connection_.write({from, size}, limits_.to_write) ? static_cast<ssize_t>(size) : -1;
  }

  void get_remote_ip_and_port(std::string&, int&) const override {}
  void get_local_ip_and_port(std::string&, int&) const override {}
  socket_t socket() const override { return connection_.socket(); }

  bool has_buffered() const { return at_ < filled_; }
  bool is_beyond_limit() const { return bytes_left_ <= 0; }
  // What follows is no request: a body that was refused.
  void end() { ended_ = true; }
  bool ended() const { return ended_; }

 private:
  Connection& connection_;
  const HttpLimits& limits_;
  Clock::time_point read_before_;
  std::int64_t bytes_left_ = 0;
  char buffer_[4096];
  std::size_t at_ = 0;
  std::size_t filled_ = 0;
  bool ended_ = false;
};

// Content-Length.
std::optional<std::int64_t> said_length(const httplib::Request& request) {
  const std::string text = request.get_header_value("Content-Length");
  std::int64_t length = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), length);
  if (text.empty() || error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return length;
}

// A thread for each connection.
class ConnectionThreads final : public httplib::TaskQueue {
 public:
  explicit ConnectionThreads(int most) : most_(most) {}

  void enqueue(std::function<void()> serve) override {
    std::unique_lock lock(mutex_);
    // Beyond the limit the accepting thread itself refuses, without waiting for the client.
    if (running_ < most_) {
      ++running_;
      try {
        std::thread([this, serve] {
          serve();
          const std::lock_guard done(mutex_);
          --running_;
          ended_.notify_all();
        }).detach();
        return;
      } catch (const std::system_error&) {
        --running_;
      }
    }
    lock.unlock();
    serve();
  }
  void shutdown() override {
    std::unique_lock lock(mutex_);
    ended_.wait(lock, [&] { return running_ == 0; });
  }

 private:
  int most_;
  std::mutex mutex_;
  std::condition_variable ended_;
  int running_ = 0;
};

}  // namespace

struct HttpServer::State final : httplib::Server {
  State(HttpOptions given, HttpHandler to_call, HttpErrorBody body)
      : options(std::move(given)), handler(std::move(to_call)), error_body(std::move(body)) {}

  // cpp-httplib lets five clients wait to be accepted; others would be reset when many come at
  // once.
  void let_clients_wait() { ::listen(svr_sock_, options.limits.connections); }

  // cpp-httplib's place for other kinds of connections (its own one is TLS).
  bool process_and_close_socket(socket_t socket) override {
    Connection connection(socket, options.tls.get());
    if (std::this_thread::get_id() == accepting) {
      refuse(connection);
    } else {
      serve(connection);
    }
    return true;
  }

  void serve(Connection& connection) {
    LimitedStream stream(connection, options.limits);
    if (!connection.begin(stream.read_before())) return;
    while (!stopping) {
      const Clock::time_point end = Clock::now() + options.limits.idle;
      bool readable = stream.has_buffered();
      while (!readable && !stopping && Clock::now() < end)
        readable = connection.wait_readable(kStopCheck);
      if (stopping || !readable) return;
      stream.begin_request();
      bool closed = false;
      const httplib::Request* served = nullptr;
      const bool fine = process_request(stream, stopping, closed, [&](httplib::Request& request) {
        served = &request;
        prepare(request);
        const std::lock_guard lock(mutex);
        streams[served] = &stream;
      });
      {
        const std::lock_guard lock(mutex);
        streams.erase(served);
        answered.notify_all();
      }
      if (!fine || closed || served == nullptr || stream.ended()) return;
    }
  }

  void refuse(Connection& connection) const {
    if (options.tls) return;  // a handshake takes a client's time
    const std::string body = error_body({.status = 503});
    connection.write_at_once(
        fmt::format("HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\n"
                    "Content-Length: {}\r\nConnection: close\r\n\r\n{}",
                    body.size(), body));
  }

  // Every request goes to one handler, as plain bytes: cpp-httplib would parse forms, unpack
  // compressed bodies without a limit, and match the path with std::regex, which recurses for each
  // character. The path is kept in a header that no client can send.
  static constexpr const char* kPath = ":path";
  static constexpr const char* kMethod = ":method";
  static void prepare(httplib::Request& request) {
    for (const char* name : {"Content-Type", "Content-Encoding", "Accept-Encoding", "Range"}) {
      request.headers.erase(name);
    }
    request.headers.erase(kPath);
    request.headers.erase(kMethod);
    request.ranges.clear();
    request.headers.emplace(kPath, request.path);
    request.headers.emplace(kMethod, request.method);
    request.path = "/";
    // Methods that may have a body are read as POST. Without a length cpp-httplib would read until
    // the client closes.
    if (request.method != "GET" && request.method != "HEAD") request.method = "POST";
    if (!request.has_header("Content-Length") && !request.has_header("Transfer-Encoding"))
      request.headers.emplace("Content-Length", "0");
  }

  void answer(const httplib::Request& request, httplib::Response& response) {
    HttpRequest plain{.method = request.get_header_value(kMethod),
                      .path = request.get_header_value(kPath),
                      .authorization = request.get_header_value("Authorization"),
                      .api_key = request.get_header_value("x-api-key"),
                      .body = request.body};
    LimitedStream* stream = nullptr;
    {
      const std::lock_guard lock(mutex);
      stream = streams.at(&request);
    }
    HttpAnswer result = handler(plain, *stream);
    response.status = result.status;
    if (!result.stream) {
      response.set_content(result.body, result.type.c_str());
      return;
    }
    response.set_header("Cache-Control", "no-cache");
    response.set_chunked_content_provider(
        result.type.c_str(),
        [writes = std::move(result.stream), stream](std::size_t, httplib::DataSink& sink) {
          bool connected = true;
          writes(
              [&](std::string_view part) {
                connected = connected && sink.write(part.data(), part.size());
                return connected;
              },
              *stream);
          if (connected) sink.done();
          return connected;
        });
  }

  HttpOptions options;
  HttpHandler handler;
  HttpErrorBody error_body;
  int bound_port = 0;
  std::atomic<bool> stopping{false};
  std::thread::id accepting;  // set before the first connection
  std::mutex mutex;
  std::map<const httplib::Request*, LimitedStream*> streams;  // of requests being answered
  std::condition_variable answered;
  std::thread listener;
};

HttpServer::HttpServer(HttpOptions options, HttpHandler handler, HttpErrorBody error_body)
    : state_(
          std::make_unique<State>(std::move(options), std::move(handler), std::move(error_body))) {
  State& s = *state_;
  s.new_task_queue = [most = s.options.limits.connections] { return new ConnectionThreads(most); };
  s.set_payload_max_length(static_cast<std::size_t>(s.options.limits.body_bytes));
  s.set_tcp_nodelay(true);
  // By cpp-httplib's own options a second server may take a port that is in use, and each gets some
  // of the requests.
  s.set_socket_options([](socket_t socket) {
    const int yes = 1;
    ::setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  });
  const auto answer = [&s](const httplib::Request& request, httplib::Response& response) {
    s.answer(request, response);
  };
  s.Get("/", answer);
  s.Post("/", answer);
  s.set_error_handler([&s](const httplib::Request& request, httplib::Response& response) {
    if (!response.body.empty()) return;
    const std::lock_guard lock(s.mutex);
    const auto found = s.streams.find(&request);
    // cpp-httplib has 413 for a Content-Length alone: a chunked body that is cut is malformed to
    // it.
    if (found != s.streams.end() && found->second->is_beyond_limit()) response.status = 413;
    response.set_content(s.error_body({.status = response.status,
                                       .path = request.get_header_value(State::kPath),
                                       .body_bytes = said_length(request),
                                       .most_body_bytes = s.options.limits.body_bytes}),
                         "application/json");
    if (found == s.streams.end()) return;
    // Else clients send their next request on a connection that is about to be closed.
    response.set_header("Connection", "close");
    found->second->end();
  });
  errno = 0;
  if (s.options.port == 0) {
    s.bound_port = s.bind_to_any_port(s.options.host);
  } else {
    s.bound_port = s.bind_to_port(s.options.host, s.options.port) ? s.options.port : -1;
  }
  if (s.bound_port < 0) {
    const int reason = errno;  // 0 if the name of the host has no address
    throw Error(Fault::kUsage, "--host, --port: cannot listen on {}:{}{}; {}", s.options.host,
                s.options.port, reason == 0 ? "" : ": " + system_message(reason),
                reason == EACCES ? "ports below 1024 need root: take another one"
                                 : "is the port in use, or the host of another machine?");
  }
  s.let_clients_wait();
}

HttpServer::~HttpServer() { stop(); }

int HttpServer::port() const { return state_->bound_port; }

void HttpServer::start(std::function<void()> on_thread) {
  state_->listener = std::thread([s = state_.get(), on_thread = std::move(on_thread)] {
    const SignalsBlocked blocked;
    s->accepting = std::this_thread::get_id();
    on_thread();
    s->listen_after_bind();
  });
}

void HttpServer::stop() {
  if (!state_->listener.joinable()) return;
  state_->stopping = true;
  while (!state_->is_running()) std::this_thread::sleep_for(milliseconds(1));
  {
    // cpp-httplib cuts streams when it stops.
    std::unique_lock lock(state_->mutex);
    state_->answered.wait(lock, [&] { return state_->streams.empty(); });
  }
  static_cast<httplib::Server&>(*state_).stop();
  state_->listener.join();
}

}  // namespace piton
