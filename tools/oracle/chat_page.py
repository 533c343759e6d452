"""Uses the chat page of `piton serve` in Chromium without a display, compares the answer in it with that of
/v1/chat/completions, and writes a screenshot.

    python tools/oracle/chat_page.py build/piton MODEL docs/chat_page.png --question "Once upon a time"

MODEL: a folder with a tokenizer. Needs Chromium (Debian: chromium), which is spoken to through pipes; no Python package."""
import argparse
import base64
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request


class Chromium:
    """A page of a browser that takes commands of the DevTools protocol: JSON, each with a zero byte at its end."""

    def __init__(self, program, folder, width, height):
        command_read, self.to = os.pipe()
        self.back, answer_write = os.pipe()

        def wire():  # the browser reads descriptor 3 and writes 4
            low = os.dup(command_read), os.dup(answer_write)
            os.dup2(low[0], 3)
            os.dup2(low[1], 4)

        self.process = subprocess.Popen(
            [program, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars",
             "--remote-debugging-pipe", f"--user-data-dir={folder}", f"--window-size={width},{height}", "about:blank"],
            preexec_fn=wire, close_fds=False, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(command_read)
        os.close(answer_write)
        self.number = 0
        self.rest = b""
        self.session = None
        targets = self.call("Target.getTargets")["targetInfos"]
        page = next(one for one in targets if one["type"] == "page")
        self.session = self.call("Target.attachToTarget", targetId=page["targetId"], flatten=True)["sessionId"]
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)

    def call(self, method, **parameters):
        self.number += 1
        message = {"id": self.number, "method": method, "params": parameters}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.to, json.dumps(message).encode() + b"\0")
        while True:
            while b"\0" not in self.rest:
                more = os.read(self.back, 1 << 16)
                if not more:
                    sys.exit("chat_page.py: the browser has ended")
                self.rest += more
            one, self.rest = self.rest.split(b"\0", 1)
            answer = json.loads(one)
            if answer.get("id") != self.number:
                continue
            if "error" in answer:
                sys.exit(f"chat_page.py: {method}: {answer['error']}")
            return answer["result"]

    def value(self, expression):
        result = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        if "exceptionDetails" in result:
            sys.exit(f"chat_page.py: {expression}: {result['exceptionDetails']}")
        return result["result"].get("value")

    def wait(self, expression, seconds=60):
        end = time.time() + seconds
        while not self.value(expression):
            if time.time() > end:
                sys.exit(f"chat_page.py: not within {seconds} s: {expression}")
            time.sleep(0.05)

    def close(self):
        self.process.kill()
        self.process.wait()


def ask_server(url, question, tokens, model):
    body = {"model": model, "messages": [{"role": "user", "content": question}], "temperature": 0, "max_tokens": tokens}
    request = urllib.request.Request(url + "/v1/chat/completions", json.dumps(body).encode(),
                                     {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.load(answer)["choices"][0]["message"]["content"]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("piton")
    parser.add_argument("model")
    parser.add_argument("picture")
    parser.add_argument("--question", default="Once upon a time")
    parser.add_argument("--tokens", type=int, default=120)
    parser.add_argument("--template", default="{% for m in messages %}{{ m.content }}{% endfor %}",
                        help="chat template in Jinja")
    parser.add_argument("--size", default="820x560")
    parser.add_argument("--serve", default="", help="further words for piton serve: --lora-modules NAME=FOLDER ...")
    parser.add_argument("--choose", help="the model that is chosen in the page")
    options = parser.parse_args()
    browser = shutil.which("chromium") or shutil.which("google-chrome")
    if browser is None:
        sys.exit("chat_page.py: no Chromium; install it (Debian: apt-get install chromium)")
    width, height = map(int, options.size.split("x"))
    with tempfile.TemporaryDirectory() as folder:
        template = os.path.join(folder, "template.jinja")
        with open(template, "w") as file:
            file.write(options.template)
        server = subprocess.Popen([options.piton, "serve", "--load", options.model, "--port", "0", "--chat-template",
                                   template, *options.serve.split()], stdout=subprocess.PIPE, text=True)
        page = None
        try:
            url = re.search(r"at (http://\S+)/$", server.stdout.readline().strip()).group(1)
            wanted = ask_server(url, options.question, options.tokens, options.choose)
            page = Chromium(browser, os.path.join(folder, "profile"), width, height)
            page.call("Page.navigate", url=url + "/")
            page.wait("document.readyState === 'complete' && document.getElementById('title') !== null && "
                      "document.getElementById('title').textContent !== 'Piton'")
            if options.choose:
                page.value(f"document.getElementById('model').value = {json.dumps(options.choose)};"
                           "document.getElementById('model').dispatchEvent(new Event('change')); true")
                if page.value("document.getElementById('title').textContent") != options.choose:
                    sys.exit(f"chat_page.py: {options.choose} is not in the list of the page")
            page.value("document.getElementById('temperature').value = '0';"
                       f"document.getElementById('tokens').value = '{options.tokens}';"
                       f"document.getElementById('text').value = {json.dumps(options.question)};"
                       "document.getElementById('form').requestSubmit(); true")
            page.wait("document.getElementById('send').textContent === 'Send' && "
                      "document.querySelector('.assistant span') !== null")
            got = page.value("document.querySelector('.assistant p').textContent")
            if got != wanted:
                sys.exit(f"chat_page.py: the page shows {got!r}, the server answers {wanted!r}")
            if page.value("document.documentElement.scrollWidth > document.documentElement.clientWidth"):
                sys.exit("chat_page.py: the page is wider than the window")
            picture = base64.b64decode(page.call("Page.captureScreenshot", format="png")["data"])
            with open(options.picture, "wb") as file:
                file.write(picture)
            print(f"{options.picture}: {len(picture)} bytes; the answer has {len(got)} characters")
        finally:
            if page is not None:
                page.close()
            server.terminate()
            server.wait()


if __name__ == "__main__":
    main()
