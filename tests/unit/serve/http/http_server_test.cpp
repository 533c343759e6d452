#include "serve/http/http_server.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <thread>

#include "base/error.h"

namespace piton {
namespace {

using std::chrono::milliseconds;
using testing::HasSubstr;
using testing::StartsWith;

// A client that sends any bytes.
class RawClient {
 public:
  explicit RawClient(int port) : socket_(::socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address{.sin_family = AF_INET, .sin_port = htons(static_cast<std::uint16_t>(port))};
    ::inet_pton(AF_INET, "127.0.0.1", &address.sin_addr);
    if (::connect(socket_, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0)
      ADD_FAILURE() << "cannot connect";
  }
  ~RawClient() { ::close(socket_); }
  RawClient(const RawClient&) = delete;
  RawClient& operator=(const RawClient&) = delete;

  bool send(const std::string& bytes) {
    return ::send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL) == std::ssize(bytes);
  }
  // All bytes until the server closes.
  std::string rest() {
    std::string text;
    char buffer[4096];
    for (ssize_t got; (got = ::recv(socket_, buffer, sizeof buffer, 0)) > 0;)
      text.append(buffer, static_cast<std::size_t>(got));
    return text;
  }
  int socket() const { return socket_; }

 private:
  int socket_;
};

class Server : public testing::Test {
 protected:
  void begin(HttpHandler handler, HttpLimits limits = {.body_bytes = 1000}) {
    server_ = std::make_unique<HttpServer>(
        HttpOptions{.host = "127.0.0.1", .port = 0, .limits = limits}, std::move(handler),
        [](const HttpRefusal& refusal) {
          return fmt::format("error {} at {}: {} of {}", refusal.status, refusal.path,
                             refusal.body_bytes.value_or(-1), refusal.most_body_bytes);
        });
    server_->start([] {});
  }
  std::string ask(const std::string& bytes) {
    RawClient client(server_->port());
    client.send(bytes);
    return client.rest();
  }
  static HttpAnswer echo(const HttpRequest& request, const HttpClient&) {
    return {.type = "text/plain",
            .body = request.method + " " + request.path + " " + request.authorization + " " +
                    request.body};
  }

  std::unique_ptr<HttpServer> server_;
};

std::string post(const std::string& body, const std::string& headers = "") {
  return "POST /a/b?c=d HTTP/1.1\r\nConnection: close\r\n" + headers +
         "Content-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body;
}

TEST_F(Server, RefusesAPortThatAnotherServerHas) {
  begin([](const HttpRequest&, const HttpClient&) { return HttpAnswer{.body = "first"}; });
  try {
    HttpServer second(
        {.host = "127.0.0.1", .port = server_->port()},
        [](const HttpRequest&, const HttpClient&) { return HttpAnswer{}; },
        [](const HttpRefusal&) { return std::string(); });
    ADD_FAILURE() << "two servers have port " << second.port();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("is the port in use"));
  }
}

TEST_F(Server, GivesTheHandlerPlainRequests) {
  begin(echo);
  const std::string answer = ask(post("x=1",
                                      "Authorization: Bearer k\r\n"
                                      "Content-Type: application/x-www-form-urlencoded\r\n"));
  EXPECT_THAT(answer, StartsWith("HTTP/1.1 200 OK\r\n"));
  EXPECT_THAT(answer, HasSubstr("\r\n\r\nPOST /a/b Bearer k x=1"));
  EXPECT_THAT(ask(post("z", "Content-Encoding: gzip\r\n")), HasSubstr("\r\n\r\nPOST /a/b  z"));
  EXPECT_THAT(ask("GET /" + std::string(6000, 'a') + " HTTP/1.1\r\nConnection: close\r\n\r\n"),
              HasSubstr("GET /aaaa"));
}

TEST_F(Server, ServesSeveralRequestsOfAConnection) {
  begin(echo);
  const std::string one = "POST /1 HTTP/1.1\r\nContent-Length: 1\r\n\r\nx";
  const std::string answers = ask(one + one + "GET /2 HTTP/1.1\r\nConnection: close\r\n\r\n");
  EXPECT_THAT(answers, HasSubstr("POST /1  x"));
  EXPECT_THAT(answers, HasSubstr("GET /2  "));
}

TEST_F(Server, AnswersWhatIsNoRequestWithAnError) {
  begin(echo);
  EXPECT_THAT(ask("nonsense\r\n\r\n"), HasSubstr("error 400"));
  // A client that keeps its connections learns that this one is closed.
  const std::string too_large =
      ask("POST /a HTTP/1.1\r\nContent-Length: 2000\r\n\r\n" + std::string(2000, 'x'));
  EXPECT_THAT(too_large, HasSubstr("error 413 at /a: 2000 of 1000"));
  EXPECT_THAT(too_large, HasSubstr("Connection: close\r\n"));
  EXPECT_THAT(ask("POST / HTTP/1.1\r\nConnection: close\r\nContent-Length: x\r\n\r\n"),
              StartsWith("HTTP/1.1"));
  EXPECT_THAT(ask("GET /" + std::string(9000, 'a') + " HTTP/1.1\r\n\r\n"), HasSubstr("error 4"));
  RawClient chunked(server_->port());
  chunked.send("POST /a HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n");
  for (int i = 0; i < 65; ++i) chunked.send("400\r\n" + std::string(1024, 'x') + "\r\n");
  const std::string cut = chunked.rest();
  EXPECT_THAT(cut, StartsWith("HTTP/1.1 413 "));
  EXPECT_THAT(cut, HasSubstr("error 413 at /a: -1 of 1000"));
  // A chunked body without an end, and headers without one: cut at the limit.
  RawClient client(server_->port());
  client.send("POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n");
  for (int i = 0; i < 1000 && client.send("400\r\n" + std::string(1024, 'x') + "\r\n"); ++i) {
  }
  client.rest();
  RawClient many(server_->port());
  many.send("GET / HTTP/1.1\r\n");
  for (int i = 0; i < 100'000 && many.send("A: b\r\n"); ++i) {
  }
  many.rest();
  EXPECT_THAT(ask(post("x")), StartsWith("HTTP/1.1 200"));
}

TEST_F(Server, CutsClientsThatSendSlowly) {
  begin(echo, {.body_bytes = 1000, .to_read = milliseconds(200)});
  RawClient client(server_->port());
  const auto begin = std::chrono::steady_clock::now();
  for (const char c : post("body")) {
    if (!client.send(std::string(1, c))) break;
    std::this_thread::sleep_for(milliseconds(10));
    if (std::chrono::steady_clock::now() > begin + milliseconds(1500)) break;
  }
  EXPECT_THAT(client.rest(), testing::Not(HasSubstr("200 OK")));
}

TEST_F(Server, CutsClientsThatDoNotRead) {
  std::atomic<bool> failed{false};
  begin(
      [&](const HttpRequest&, const HttpClient&) {
        HttpAnswer answer;
        answer.stream = [&](const HttpAnswer::Write& write, const HttpClient&) {
          const std::string part(1 << 20, 'x');
          for (int i = 0; i < 64; ++i) {
            if (!write(part)) {
              failed = true;
              return;
            }
          }
        };
        return answer;
      },
      {.body_bytes = 1000, .to_write = milliseconds(100)});
  RawClient client(server_->port());
  client.send(post(""));
  for (int i = 0; i < 500 && !failed; ++i) std::this_thread::sleep_for(milliseconds(10));
  EXPECT_TRUE(failed);
}

TEST_F(Server, SeesThatAClientIsGone) {
  std::atomic<int> state{0};
  begin([&](const HttpRequest&, const HttpClient& client) {
    state = 1;
    for (int i = 0; i < 500 && client.is_connected(); ++i)
      std::this_thread::sleep_for(milliseconds(10));
    state = client.is_connected() ? 2 : 3;
    return HttpAnswer{};
  });
  {
    RawClient client(server_->port());
    client.send(post(""));
    while (state == 0) std::this_thread::yield();
  }
  server_->stop();
  EXPECT_EQ(state, 3);
}

TEST_F(Server, RefusesMoreConnectionsThanItMayHave) {
  std::atomic<int> running{0};
  std::atomic<bool> go{false};
  begin(
      [&](const HttpRequest&, const HttpClient&) {
        ++running;
        while (!go) std::this_thread::yield();
        return HttpAnswer{};
      },
      {.body_bytes = 1000, .connections = 2});
  RawClient first(server_->port());
  RawClient second(server_->port());
  first.send(post(""));
  second.send(post(""));
  while (running < 2) std::this_thread::yield();
  EXPECT_THAT(RawClient(server_->port()).rest(), HasSubstr("error 503"));
  EXPECT_THAT(RawClient(server_->port()).rest(), HasSubstr("error 503"));
  go = true;
  // Both: the handler reads variables of this test.
  EXPECT_THAT(first.rest(), StartsWith("HTTP/1.1 200"));
  EXPECT_THAT(second.rest(), StartsWith("HTTP/1.1 200"));
}

TEST_F(Server, ThatCannotListenSaysWhere) {
  EXPECT_THROW(HttpServer({.host = "192.0.2.1", .port = 1}, echo, {}), Error);
}

}  // namespace
}  // namespace piton
