"""The Python package compared with the command line: the same losses, text, scores; errors; no leaks through callbacks.

    PITON_LIBRARY=build/libpiton.so PITON=build/piton PYTHONPATH=python python python/tests/test_piton.py
"""
import json
import os
import pathlib
import subprocess
import tempfile
import unittest

import numpy

import piton

BINARY = os.environ["PITON"]
TEXT = ("All work and no play makes a dull text. " * 80).encode()
MODEL = dict(model="gpt2-tiny", tokenizer_type="ByteTokenizer", seq_length=16, micro_batch_size=2, lr=1e-3, threads=2)


def command(*words):
    return subprocess.run([BINARY, *map(str, words)], capture_output=True, text=True, check=True).stdout


class PitonTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.path = pathlib.Path(self.folder.name)
        (self.path / "text.txt").write_bytes(TEXT)

    def options(self, **more):
        return {**MODEL, **more}

    def trained(self, **more):
        run = self.path / "run"
        rows = piton.rows(numpy.frombuffer(TEXT, numpy.uint8), 16)
        with piton.Trainer(rows, **self.options(train_iters=4, save=run, **more)) as trainer:
            losses = [step.loss for step in trainer]
            trainer.save()
        return run, losses

    def test_a_corpus_gives_the_losses_of_the_command(self):
        corpus = self.path / "c"
        command("preprocess", "--input", self.path / "text.txt", "--output-prefix", corpus, "--tokenizer-type", "ByteTokenizer")
        words = ["--model", "gpt2-tiny", "--tokenizer-type", "ByteTokenizer", "--seq-length", 16, "--micro-batch-size", 2,
                 "--lr", "1e-3", "--threads", 2, "--train-iters", 4, "--data-path", f"{corpus}_text_document"]
        command("pretrain", *words, "--save", self.path / "there")
        there = [json.loads(line)["lm_loss"] for line in open(self.path / "there" / "metrics.jsonl")]
        with piton.Trainer(**self.options(train_iters=4, data_path=f"{corpus}_text_document", save=self.path / "here")) as run:
            here = [step.loss for step in run]
            self.assertTrue(run.done)
            run.save()
        self.assertEqual(here, there)
        hashes = [command("inspect", "--hash", self.path / name) for name in ("there", "here")]
        self.assertEqual(*hashes)

    def test_arrays_train_and_resume_with_the_same_bits(self):
        rows = piton.rows(numpy.frombuffer(TEXT, numpy.uint8), 16)
        whole, parts = self.path / "whole", self.path / "parts"
        with piton.Trainer(rows, **self.options(train_iters=6, save=whole)) as run:
            losses = [step.loss for step in run]
            run.save()
        self.assertLess(losses[-1], losses[0])
        with piton.Trainer(rows, **self.options(train_iters=6, save=parts)) as run:
            for _ in range(3):
                run.step()
            run.save()
        with piton.Trainer(rows, **self.options(train_iters=6, save=parts, load=parts)) as run:
            self.assertEqual(run.iteration, 3)
            self.assertEqual([step.loss for step in run], losses[3:])
            run.save()
        self.assertEqual(command("inspect", "--hash", whole), command("inspect", "--hash", parts))
        with self.assertRaisesRegex(piton.Error, "other"):
            piton.Trainer(rows, name="other", **self.options(train_iters=9, save=parts, load=parts))

    def test_a_model_writes_and_scores_as_the_commands_do(self):
        run, _ = self.trained()
        with piton.Model(run) as model:
            text = model.generate("All work", max_new_tokens=12, greedy=True)
            self.assertEqual(text + "\n", command("generate", "--load", run, "--prompt", "All work", "--max-new-tokens", 12, "--greedy"))
            self.assertEqual(text, model.generate("All work", max_new_tokens=12, temperature=0))
            ids = model.encode("All work and no")
            self.assertEqual(model.decode(ids), "All work and no")
            logits = model.logits(ids).astype(numpy.float64)
            self.assertEqual(logits.shape, (len(ids), model.vocabulary_size))
            expected = logits - numpy.log(numpy.exp(logits - logits.max(1, keepdims=True)).sum(1, keepdims=True)) - logits.max(1, keepdims=True)
            score = model.score(ids)
            numpy.testing.assert_allclose(score, expected[numpy.arange(len(ids) - 1), ids[1:]], atol=1e-5)
            seen = []
            model.stream(ids, lambda number, _, piece: seen.append(number) or len(seen) < 3, max_new_tokens=9)
            self.assertEqual(len(seen), 3)
            with self.assertRaises(ZeroDivisionError):
                model.stream(ids, lambda *_: 1 / 0)

    def test_errors_name_the_option_and_nothing_is_left(self):
        with self.assertRaises(piton.Error) as caught:
            piton.Trainer(numpy.zeros((4, 17), numpy.int32), **self.options(train_iters=1, sequence_length=9))
        self.assertIn("sequence-length", str(caught.exception))
        self.assertEqual(caught.exception.code, 2)
        with self.assertRaisesRegex(piton.Error, "no/where"):
            piton.Model("no/where")
        with self.assertRaisesRegex(ValueError, "rows of 9 ids, wanted 17"):
            with piton.Trainer(numpy.zeros((4, 9), numpy.int32), **self.options(train_iters=1)) as run:
                run.step()
        with self.assertRaisesRegex(ValueError, "float64"):
            piton.Trainer(numpy.zeros((4, 17)), **self.options(train_iters=1))
        with self.assertRaisesRegex(piton.Error, "outside|vocabulary"):
            with piton.Trainer(numpy.full((4, 17), 70000, numpy.int32), **self.options(train_iters=1)) as run:
                run.step()
        with self.assertRaisesRegex(piton.Error, "samples"):
            piton.Trainer(numpy.zeros((4, 17), numpy.int32), **self.options(train_iters=1, mock_data=True))

    def test_log_lines_reach_the_program(self):
        lines = []
        with piton.Trainer(piton.rows(numpy.frombuffer(TEXT, numpy.uint8), 16), log=lambda level, line: lines.append(line),
                           **self.options(train_iters=1)) as run:
            run.step()
        self.assertTrue(any("kernels:" in line for line in lines), lines)
        self.assertTrue(any("nothing of this run will be kept" in line for line in lines), lines)


if __name__ == "__main__":
    unittest.main()
