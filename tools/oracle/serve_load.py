#!/usr/bin/env python3
"""Loads `piton serve` with many clients at once, some of them slow.

    serve_load.py PITON MODEL [--clients N] [--requests N] [--seconds S]

MODEL is any folder that `piton serve --load` takes; a run of a few steps is enough. Every answer must be what
`piton generate` writes to the prompt: whole, streamed, streamed to a client that reads slowly. At the same time clients send
a byte a second, never read, or leave. There are two rounds, then two more, or as many as begin within S seconds. At the end
nothing runs, and the server's memory is at most 1 % larger than after the first two. Exits with 1 at the first difference.
"""

import argparse
import http.client
import json
import random
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

TOKENS = 24


def check(right, what):
    if not right:
        sys.exit(f"serve_load.py: {what}")


def wanted_texts(piton, model, prompts):
    with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as file:
        file.write("".join(json.dumps(p) + "\n" for p in prompts))
        file.flush()
        words = ["--prompts", file.name, "--greedy", "--max-new-tokens", str(TOKENS), "--quiet"]
        command = [piton, "generate", "--load", model, *words]
        out = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return [json.loads(line)["text"] for line in out.splitlines()]


def resident_kib(pid):
    with open(f"/proc/{pid}/status") as file:
        return int(re.search(r"VmRSS:\s+(\d+)", file.read()).group(1))


class Drill:
    def __init__(self, port, wanted):
        self.port = port
        self.wanted = wanted
        self.faults = []
        self.answers = 0
        self.lock = threading.Lock()

    def connection(self):
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)

    def ask(self, draw):
        prompt, wanted = draw.choice(list(self.wanted.items()))
        stream = draw.random() < 0.5
        body = json.dumps({"prompt": prompt, "temperature": 0, "max_tokens": TOKENS, "stream": stream})
        connection = self.connection()
        connection.request("POST", "/v1/completions", body)
        answer = connection.getresponse()
        if answer.status == 429:  # the queue is full: the client comes again
            answer.read()
            connection.close()
            time.sleep(0.05)
            return self.ask(draw)
        if not stream:
            text = json.loads(answer.read())["choices"][0]["text"]
        else:
            data = b""
            slow = draw.random() < 0.3
            while part := (answer.read1(40) if slow else answer.read()):
                data += part
                if slow:
                    time.sleep(0.01)
            events = [line[6:] for line in data.decode().splitlines() if line.startswith("data: ")]
            if events[-1] != "[DONE]":
                raise ValueError("a stream without an end")
            text = "".join(json.loads(e)["choices"][0]["text"] for e in events[:-1])
        connection.close()
        if text != wanted:
            raise ValueError(f"{prompt!r}: got {text!r}, wanted {wanted!r}")
        with self.lock:
            self.answers += 1

    def client(self, seed, requests):
        draw = random.Random(seed)
        try:
            for _ in range(requests):
                self.ask(draw)
        except Exception as error:  # a thread: the main one reports
            with self.lock:
                self.faults.append(f"{type(error).__name__}: {error}")

    def byte_a_second(self):
        with socket.create_connection(("127.0.0.1", self.port)) as s:
            try:
                for byte in b"POST /v1/completions HTTP/1.1\r\nContent-Length: 100\r\n\r\n{":
                    s.sendall(bytes([byte]))
                    time.sleep(1)
            except OSError:
                return
        with self.lock:
            self.faults.append("a client of a byte a second was never disconnected")

    def never_reads(self):
        with socket.create_connection(("127.0.0.1", self.port)) as s:
            body = json.dumps({"prompt": "To be", "max_tokens": 100, "stream": True, "n": 2}).encode()
            s.sendall(b"POST /v1/completions HTTP/1.1\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
            time.sleep(5)

    def leaves(self):
        body = json.dumps({"prompt": "To be", "max_tokens": 100, "stream": True})
        connection = self.connection()
        connection.request("POST", "/v1/completions", body)
        connection.getresponse().read1(10)
        connection.close()

    def round(self, clients, requests, seed):
        threads = [threading.Thread(target=self.client, args=(seed + i, requests)) for i in range(clients)]
        threads += [threading.Thread(target=self.byte_a_second) for _ in range(4)]
        threads += [threading.Thread(target=self.never_reads) for _ in range(4)]
        threads += [threading.Thread(target=self.leaves) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        check(not self.faults, "; ".join(self.faults[:3]))

    def running(self):
        connection = self.connection()
        connection.request("GET", "/metrics")
        text = connection.getresponse().read().decode()
        return int(re.search(r"^piton_texts_running (\d+)", text, re.M).group(1))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("piton")
    parser.add_argument("model")
    parser.add_argument("--clients", type=int, default=100)
    parser.add_argument("--requests", type=int, default=4, help="of each client in a round")
    parser.add_argument("--seconds", type=float, default=0)
    options = parser.parse_args()
    begin = time.time()
    draw = random.Random(1)
    words = ["To be", " or not", " to be", ": that is", " the question", "größer", " x"]
    prompts = ["".join(draw.choices(words, k=draw.randint(1, 3))).strip() for _ in range(40)]
    wanted = dict(zip(prompts, wanted_texts(options.piton, options.model, prompts)))
    server = subprocess.Popen(
        [options.piton, "serve", "--load", options.model, "--port", "0", "--threads", "1",
         "--client-timeout-seconds", "3", "--max-concurrent-requests", "16", "--max-waiting-requests", "200"],
        stdout=subprocess.PIPE, text=True)
    try:
        port = int(re.search(r":(\d+)/", server.stdout.readline()).group(1))
        drill = Drill(port, wanted)
        drill.round(options.clients, options.requests, 0)
        drill.round(options.clients, options.requests, 1000)
        before = resident_kib(server.pid)
        rounds = 2
        while rounds < 4 or time.time() < begin + options.seconds:
            drill.round(options.clients, options.requests, 1000 * rounds)
            rounds += 1
        after = resident_kib(server.pid)
        for _ in range(100):
            if drill.running() == 0:
                break
            time.sleep(0.1)
        check(drill.running() == 0, "texts run for clients that have left")
        check(after <= 1.01 * before, f"memory grew from {before} to {after} KiB")
        print(f"{drill.answers} answers of {rounds} rounds as generate writes them, in {time.time() - begin:.0f} s; "
              f"memory {before} KiB, then {after} KiB")
    finally:
        server.send_signal(signal.SIGTERM)
        code = server.wait(60)
    check(code == 0, f"exit code {code} after SIGTERM")


if __name__ == "__main__":
    main()
