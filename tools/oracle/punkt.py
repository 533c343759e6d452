"""Sentences and learned parameters of NLTK's Punkt, as golden numbers.

    python -m venv VENV && VENV/bin/pip install nltk
    VENV/bin/python tools/oracle/punkt.py SHARED_TEXT_FOLDER > tests/golden/punkt.txt
"""
import datetime
import os
import sys
import zlib

import nltk
from nltk.tokenize.punkt import PunktLanguageVars, PunktSentenceTokenizer, PunktTrainer


class KeepNewlines(PunktLanguageVars):
    """Megatron's variant (tools/preprocess_data.py): white space belongs to the boundary."""
    _period_context_fmt = r"""
        \S*%(SentEndChars)s\s*(?=(?P<after_tok>%(NonWord)s|(?P<next_tok>\S+)))"""


def crc(lines):
    return zlib.crc32("\x1e".join(lines).encode())


def pieces(tokenizer, text):
    return [s for i in range(0, len(text), 1000000) for s in tokenizer.tokenize(text[i:i + 1000000])]


print(f"# NLTK {nltk.__version__}: python tools/oracle/punkt.py, {datetime.date.today()}")
print("# learned FILE abbreviations collocations starters cases CRC32 of all, sorted; cut FILE keep_newlines "
      "sentences CRC32 of the sentences joined by 0x1e; small LINE\\tsentences divided by |")
shared = sys.argv[1]
for name in ["wikitext2_valid.txt", "tinyshakespeare.txt", "wikiextractor_wiki_00.txt", "sample_text_unicode.txt",
             "zh_hongloumeng.txt"]:
    text = open(os.path.join(shared, name), encoding="utf-8", newline="").read()
    trainer = PunktTrainer()
    half = text.find("\n", len(text) // 2)  # two documents: learning continues from text to text
    trainer.train(text[:half], finalize=False)
    trainer.train(text[half:], finalize=False)
    params = trainer.get_params()
    cases = {k: v for k, v in params.ortho_context.items() if v}
    everything = (sorted(params.abbrev_types) + ["--"] + sorted("\t".join(c) for c in params.collocations) + ["--"] +
                  sorted(params.sent_starters) + ["--"] + sorted(f"{k}\t{v}" for k, v in cases.items()))
    print("learned", name, len(params.abbrev_types), len(params.collocations), len(params.sent_starters), len(cases),
          crc(sorted(everything, key=lambda s: s.encode())))
    for keep in (0, 1):
        tokenizer = PunktSentenceTokenizer(params, lang_vars=KeepNewlines() if keep else None)
        sentences = pieces(tokenizer, text)
        print("cut", name, keep, len(sentences), crc(sentences))

empty = PunktSentenceTokenizer()
for line in ["Very bad acting!!! I promise.", "(Sent1.) Sent2. He said \u201cno.\u201d Then he left.", "A. b. C", ". . . and so on. . . Yes",
             "Wait... what? No--never. 3.5 is a number. So is 7. But J. Bach is not.", "one.two Three.Four? Five", "end.", "", " ",
             "a.  ", ".", "!!!", "Mr. Smith went.  \"Home.\" She stayed -- alone. -- So.", "x. ) y. ]] Z.", "\u00c9t\u00e9. \u00c0 Paris. \u00d1o."]:
    print("small", line.replace("\n", "\\n") + "\t" + "|".join(empty.tokenize(line)))
