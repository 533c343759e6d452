#include "serve/http/connection.h"

#include <fcntl.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <string>

#include "base/error.h"

namespace piton {
namespace {

using std::chrono::milliseconds;

milliseconds left_until(Connection::Clock::time_point end) {
  return std::max(milliseconds(0), std::chrono::ceil<milliseconds>(end - Connection::Clock::now()));
}

// Waits for `events`; false after `wait`.
bool wait_for(int socket, short events, milliseconds wait) {
  const auto end = Connection::Clock::now() + wait;
  while (true) {
    pollfd watched{.fd = socket, .events = events, .revents = 0};
    const int found = ::poll(&watched, 1, static_cast<int>(left_until(end).count()));
    if (found > 0) return true;
    if (found == 0 || errno != EINTR) return false;
  }
}

std::string tls_message() {
  char text[256] = "unknown error";
  const unsigned long code = ERR_get_error();
  if (code != 0) ERR_error_string_n(code, text, sizeof text);
  ERR_clear_error();
  return text;
}

}  // namespace

struct TlsFiles::State {
  SSL_CTX* context = SSL_CTX_new(TLS_server_method());
  ~State() { SSL_CTX_free(context); }
};

TlsFiles::TlsFiles(const std::filesystem::path& certificate, const std::filesystem::path& key)
    : state_(std::make_unique<State>()) {
  SSL_CTX* context = state_->context;
  if (context == nullptr) throw Error(Fault::kMemory, "TLS: {}", tls_message());
  SSL_CTX_set_min_proto_version(context, TLS1_2_VERSION);
  SSL_CTX_set_mode(context, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
  if (SSL_CTX_use_certificate_chain_file(context, certificate.c_str()) != 1) {
    throw Error(Fault::kData, "{}: no certificate in PEM can be read: {}", certificate.string(),
                tls_message());
  }
  if (SSL_CTX_use_PrivateKey_file(context, key.c_str(), SSL_FILETYPE_PEM) != 1 ||
      SSL_CTX_check_private_key(context) != 1) {
    throw Error(Fault::kData, "{}: no key in PEM for {} can be read: {}", key.string(),
                certificate.string(), tls_message());
  }
}

TlsFiles::~TlsFiles() = default;

struct Connection::Tls {
  Tls(SSL_CTX* context, int socket) : ssl(SSL_new(context)) {
    if (ssl != nullptr) SSL_set_fd(ssl, socket);
  }
  ~Tls() { SSL_free(ssl); }
  Tls(const Tls&) = delete;
  Tls& operator=(const Tls&) = delete;

  // Waits for what the call that returned `result` needs; false if it has failed.
  bool wait(int result, int socket, milliseconds patience) const {
    const int reason = SSL_get_error(ssl, result);
    if (reason == SSL_ERROR_WANT_READ) return wait_for(socket, POLLIN, patience);
    if (reason == SSL_ERROR_WANT_WRITE) return wait_for(socket, POLLOUT, patience);
    ERR_clear_error();
    return false;
  }

  SSL* ssl;
};

Connection::Connection(int socket, const TlsFiles* tls) : socket_(socket) {
  ::fcntl(socket, F_SETFL, ::fcntl(socket, F_GETFL) | O_NONBLOCK);
  if (tls != nullptr) tls_ = std::make_unique<Tls>(tls->state_->context, socket);
}

Connection::~Connection() {
  if (tls_) {
    if (tls_->ssl != nullptr && SSL_is_init_finished(tls_->ssl) == 1)
      SSL_shutdown(tls_->ssl);  // says that it ends; does not wait for an answer
    ERR_clear_error();
  }
  tls_.reset();
  ::shutdown(socket_, SHUT_RDWR);
  ::close(socket_);
}

bool Connection::begin(Clock::time_point before) {
  if (!tls_) return true;
  if (tls_->ssl == nullptr) return false;
  while (true) {
    const int result = SSL_accept(tls_->ssl);
    if (result == 1) return true;
    if (!tls_->wait(result, socket_, left_until(before))) return false;
  }
}

ssize_t Connection::read(char* to, std::size_t size, Clock::time_point before) {
  while (true) {
    if (tls_) {
      const int got =
          SSL_read(tls_->ssl, to, static_cast<int>(std::min<std::size_t>(size, 1 << 16)));
      if (got > 0) return got;
      if (SSL_get_error(tls_->ssl, got) == SSL_ERROR_ZERO_RETURN) return 0;
      if (!tls_->wait(got, socket_, left_until(before))) return -1;
      continue;
    }
    const ssize_t got = ::recv(socket_, to, size, 0);
    if (got >= 0) return got;
    if (errno != EAGAIN && errno != EINTR) return -1;
    if (!wait_for(socket_, POLLIN, left_until(before))) return -1;
  }
}

bool Connection::write(std::string_view bytes, milliseconds patience) {
  while (!bytes.empty()) {
    if (tls_) {
      const int sent = SSL_write(tls_->ssl, bytes.data(),
                                 static_cast<int>(std::min<std::size_t>(bytes.size(), 1 << 20)));
      if (sent > 0) {
        bytes.remove_prefix(static_cast<std::size_t>(sent));
      } else if (!tls_->wait(sent, socket_, patience)) {
        return false;
      }
      continue;
    }
    const ssize_t sent = ::send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent > 0) {
      bytes.remove_prefix(static_cast<std::size_t>(sent));
    } else if (sent < 0 && errno != EAGAIN && errno != EINTR) {
      return false;
    } else if (!wait_for(socket_, POLLOUT, patience)) {
      return false;
    }
  }
  return true;
}

void Connection::write_at_once(std::string_view bytes) {
  static_cast<void>(::send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL));
}

bool Connection::wait_readable(milliseconds wait) const {
  if (tls_ && SSL_pending(tls_->ssl) > 0) return true;
  return wait_for(socket_, POLLIN, wait);
}

bool Connection::is_connected() const {
  pollfd watched{.fd = socket_, .events = POLLRDHUP, .revents = 0};
  if (::poll(&watched, 1, 0) <= 0) return true;
  return (watched.revents & (POLLRDHUP | POLLHUP | POLLERR)) == 0;
}

}  // namespace piton
