"""Piton from Python: load, train from arrays, generate, score. NumPy in and out.

    import numpy
    import piton
    rows = piton.rows(numpy.fromfile("book.txt", numpy.uint8), 64)
    run = piton.Trainer(rows, model="gpt2-tiny", tokenizer_type="ByteTokenizer", seq_length=64, lr=1e-3, train_iters=100,
                        save="run")
    for step in run:
        print(step.iteration, step.loss)
    run.save()
    model = piton.Model("run")
    print(model.generate("Once upon a time", max_new_tokens=50))

Keyword arguments are the options of `piton pretrain` and `piton generate`: seq_length=64 is --seq-length 64,
bf16=True is --bf16, and a list gives several values. Errors are piton.Error, with the message and the exit code that
the command would have.
"""
import ctypes
import os
import pathlib
import sys
from dataclasses import dataclass

import numpy

__all__ = ["Error", "Model", "Step", "Trainer", "rows", "version", "warnings_to_stderr"]


class _Error(ctypes.Structure):
    _fields_ = [("code", ctypes.c_int), ("message", ctypes.c_char * 1020)]


class _Words(ctypes.Structure):
    _fields_ = [("words", ctypes.POINTER(ctypes.c_char_p)), ("count", ctypes.c_size_t)]


class _Step(ctypes.Structure):
    _fields_ = [("iteration", ctypes.c_int64), ("consumed_samples", ctypes.c_int64), ("consumed_tokens", ctypes.c_int64),
                ("loss", ctypes.c_double), ("gradient_norm", ctypes.c_double), ("learning_rate", ctypes.c_double),
                ("tokens_per_second", ctypes.c_double), ("elapsed_ms", ctypes.c_double),
                ("validation_loss", ctypes.c_double), ("skipped", ctypes.c_int64)]


_Log = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int, ctypes.c_char_p)
_Token = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_int32, ctypes.c_double, ctypes.POINTER(ctypes.c_char),
                          ctypes.c_size_t)
_Read = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_int64, ctypes.POINTER(ctypes.c_int32), ctypes.c_int64)


class _Samples(ctypes.Structure):
    _fields_ = [("count", ctypes.c_int64), ("read", _Read), ("user", ctypes.c_void_p), ("name", ctypes.c_char_p)]


class Error(RuntimeError):
    """What Piton refuses or cannot do. `code`: 2 usage, 3 data, 4 memory, 5 diverged, 1 a defect of Piton."""

    def __init__(self, message, code):
        super().__init__(message)
        self.code = code


def _library():
    """The library next to this file, or the one that PITON_LIBRARY names."""
    path = os.environ.get("PITON_LIBRARY")
    if not path:
        found = sorted(pathlib.Path(__file__).parent.rglob("libpiton.so*"))
        if not found:
            raise ImportError("piton: libpiton.so is not next to the package; pip install it, or set PITON_LIBRARY")
        path = str(found[0])
    library = ctypes.CDLL(path)
    library.piton_version.restype = ctypes.c_char_p
    for name in ("vocabulary_size", "max_positions", "parameters"):
        function = getattr(library, "piton_model_" + name)
        function.restype = ctypes.c_int64
        function.argtypes = [ctypes.c_void_p]
    for name in ("done", "save_due"):
        getattr(library, "piton_trainer_" + name).argtypes = [ctypes.c_void_p]
    for name in ("iteration", "sequence"):
        function = getattr(library, "piton_trainer_" + name)
        function.restype = ctypes.c_int64
        function.argtypes = [ctypes.c_void_p]
    for name in ("engine", "model", "trainer"):
        function = getattr(library, f"piton_{name}_close")
        function.restype = None
        function.argtypes = [ctypes.c_void_p]
    handle, error, size = ctypes.c_void_p, ctypes.POINTER(_Error), ctypes.c_size_t
    ids = ctypes.POINTER(ctypes.c_int32)
    out = ctypes.POINTER(ctypes.c_void_p)
    library.piton_engine_open.argtypes = [ctypes.c_int, ctypes.c_char_p, _Log, handle, out, error]
    library.piton_model_load.argtypes = [handle, ctypes.c_char_p, _Words, out, error]
    library.piton_model_encode.argtypes = [handle, ctypes.c_char_p, size, ctypes.c_int, ids, size, ctypes.POINTER(size), error]
    library.piton_model_decode.argtypes = [handle, ids, size, ctypes.c_char_p, size, ctypes.POINTER(size), error]
    library.piton_model_generate.argtypes = [handle, ids, size, _Words, _Token, handle, error]
    library.piton_model_score.argtypes = [handle, ids, size, ctypes.POINTER(ctypes.c_double), error]
    library.piton_model_logits.argtypes = [handle, ids, size, ctypes.POINTER(ctypes.c_float), error]
    library.piton_trainer_open.argtypes = [handle, _Words, ctypes.POINTER(_Samples), out, error]
    library.piton_trainer_step.argtypes = [handle, ctypes.POINTER(_Step), error]
    library.piton_trainer_evaluate.argtypes = [handle, ctypes.POINTER(ctypes.c_double), error]
    library.piton_trainer_save.argtypes = [handle, error]
    library.piton_trainer_finish.argtypes = [handle, error]
    return library


_piton = _library()


def version():
    return _piton.piton_version().decode()


def _check(function, *arguments):
    error = _Error()
    if function(*arguments, ctypes.byref(error)) != 0:
        raise Error(error.message.decode(errors="replace"), error.code)


def _words(options):
    """{"seq_length": 64, "bf16": True} as --seq-length 64 --bf16; None is left out."""
    words = []
    for name, value in options.items():
        flag = "--" + name.replace("_", "-")
        if value is None:
            continue
        if isinstance(value, bool):
            words.append(f"{flag}={'true' if value else 'false'}")
        elif isinstance(value, (list, tuple)):
            words += [flag, *map(str, value)]
        else:
            words += [flag, str(value)]
    return words


def _c_words(words):
    array = (ctypes.c_char_p * len(words))(*[word.encode() for word in words])
    return _Words(ctypes.cast(array, ctypes.POINTER(ctypes.c_char_p)), len(words))


def _ids(ids):
    array = numpy.ascontiguousarray(ids, dtype=numpy.int32)
    if array.ndim != 1:
        raise ValueError(f"ids: got an array of shape {array.shape}, wanted [tokens]")
    return array, array.ctypes.data_as(ctypes.POINTER(ctypes.c_int32))


class _Engine:
    """Processor and threads, shared by what one object opens on it."""

    def __init__(self, threads, log):
        def write(_, level, line):
            if log is not None:
                log(level, line.decode(errors="replace"))

        self._write = _Log(write)  # as long as the library may call it
        self.handle = ctypes.c_void_p()
        _check(_piton.piton_engine_open, threads, None, self._write, None, ctypes.byref(self.handle))

    def close(self):
        _piton.piton_engine_close(self.handle)
        self.handle = ctypes.c_void_p()


def warnings_to_stderr(level, line):
    """The log function that is used where none is given: warnings and errors."""
    if level >= 2:
        print(line, file=sys.stderr)


class _Opened:
    """A handle of the library with its engine; closed by close(), `with`, or the garbage collector."""

    _close = None

    def __init__(self, threads, log):
        self._handle = ctypes.c_void_p()
        self._engine = _Engine(threads, log)

    def close(self):
        if self._engine is not None:
            type(self)._close(self._handle)
            self._handle = ctypes.c_void_p()
            self._engine.close()
            self._engine = None

    def _open(self):
        if self._engine is None:
            raise ValueError(f"{type(self).__name__}: is closed")
        return self._handle

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def __del__(self):
        if getattr(self, "_engine", None) is not None:
            self.close()


class Model(_Opened):
    """A trained model: the folder of a run, one checkpoint, or a Hugging Face folder."""

    _close = _piton.piton_model_close

    def __init__(self, path, threads=0, log=warnings_to_stderr, **tokenizer):
        super().__init__(threads, log)
        _check(_piton.piton_model_load, self._engine.handle, os.fsencode(path), _c_words(_words(tokenizer)),
               ctypes.byref(self._handle))
        self.vocabulary_size = _piton.piton_model_vocabulary_size(self._handle)
        self.max_positions = _piton.piton_model_max_positions(self._handle)
        self.parameters = _piton.piton_model_parameters(self._handle)

    def encode(self, text, special=True):
        """The ids of a text, int32 [tokens]; `special`: with the tokens that the tokenizer puts around it."""
        data = text.encode()
        ids = numpy.empty(len(data) + 8, numpy.int32)
        while True:
            count = ctypes.c_size_t()
            _check(_piton.piton_model_encode, self._open(), data, len(data), int(special),
                   ids.ctypes.data_as(ctypes.POINTER(ctypes.c_int32)), len(ids), ctypes.byref(count))
            if count.value <= len(ids):
                return ids[: count.value].copy()
            ids = numpy.empty(count.value, numpy.int32)

    def decode(self, ids):
        array, pointer = _ids(ids)
        capacity = 8 * len(array) + 16
        while True:
            text = ctypes.create_string_buffer(capacity)
            size = ctypes.c_size_t()
            _check(_piton.piton_model_decode, self._open(), pointer, len(array), text, capacity, ctypes.byref(size))
            if size.value <= capacity:
                return text.raw[: size.value].decode(errors="replace")
            capacity = size.value

    def stream(self, prompt, each, **sampling):
        """Continues `prompt` (text or ids) and calls each(id, log_probability, text) for every token; False ends it.

        Text is whole characters; what is left of it comes at the end with id None. An exception of `each` is passed on.
        """
        array, pointer = _ids(self.encode(prompt) if isinstance(prompt, str) else prompt)
        raised = []

        def call(_, number, log_probability, text, size):
            try:
                piece = ctypes.string_at(text, size).decode(errors="replace")
                return int(each(number if number >= 0 else None, log_probability, piece) is not False)
            except BaseException as exception:  # it cannot pass through the library
                raised.append(exception)
                return 0

        _check(_piton.piton_model_generate, self._open(), pointer, len(array), _c_words(_words(sampling)), _Token(call), None)
        if raised:
            raise raised[0]

    def generate(self, prompt, **sampling):
        """The text that continues `prompt`; where the model has no tokenizer, or ids were given, the ids, int32."""
        ids, pieces = [], []

        def collect(number, _, piece):
            pieces.append(piece)
            if number is not None:
                ids.append(number)

        self.stream(prompt, collect, **sampling)
        return "".join(pieces) if isinstance(prompt, str) else numpy.array(ids, numpy.int32)

    def score(self, ids):
        """log-likelihood of each token but the first, given those before it: float64 [tokens - 1]."""
        array, pointer = _ids(ids)
        result = numpy.empty(max(len(array) - 1, 0))
        _check(_piton.piton_model_score, self._open(), pointer, len(array),
               result.ctypes.data_as(ctypes.POINTER(ctypes.c_double)))
        return result

    def logits(self, ids):
        """float32 [tokens, vocabulary]"""
        array, pointer = _ids(ids)
        result = numpy.empty((len(array), self.vocabulary_size), numpy.float32)
        _check(_piton.piton_model_logits, self._open(), pointer, len(array),
               result.ctypes.data_as(ctypes.POINTER(ctypes.c_float)))
        return result


@dataclass(frozen=True)
class Step:
    """One update, as metrics.jsonl has it; validation_loss is None where no evaluation was due."""

    iteration: int
    consumed_samples: int
    consumed_tokens: int
    loss: float
    gradient_norm: float
    learning_rate: float
    tokens_per_second: float
    elapsed_ms: float
    validation_loss: float
    skipped: int


def rows(corpus, sequence):
    """A corpus [tokens] as samples [samples, sequence + 1]: each begins with the last id of the one before it."""
    corpus = numpy.asarray(corpus)
    if corpus.ndim != 1 or len(corpus) <= sequence:
        raise ValueError(f"corpus: got shape {corpus.shape}, wanted more than {sequence} tokens in one dimension")
    return numpy.lib.stride_tricks.sliding_window_view(corpus, sequence + 1)[::sequence]


class Trainer(_Opened):
    """A training run. Iterating it makes the steps that are left, and saves where --save-interval says so.

    tokens   samples of the program, an integer array [samples, sequence + 1]: a row's ids but the last are inputs, all but
             the first are labels (rows() cuts a corpus so). Each is read once, in order; dataloader_type="cyclic" shuffles
             them again each epoch. None: the corpora that the options name
    recipe   a TOML file of options, which the keyword arguments override
    name     identifies `tokens` in checkpoints
    """

    _close = _piton.piton_trainer_close

    def __init__(self, tokens=None, recipe=None, threads=0, log=warnings_to_stderr, name="array", **options):
        super().__init__(threads, log)
        words = ([os.fspath(recipe)] if recipe is not None else []) + _words(options)
        self._raised = []
        samples = None
        if tokens is not None:
            samples = ctypes.byref(self._samples(numpy.asarray(tokens), name))
        self._call(_piton.piton_trainer_open, self._engine.handle, _c_words(words), samples, ctypes.byref(self._handle))

    def _samples(self, tokens, name):
        if tokens.ndim != 2 or tokens.dtype.kind not in "iu":
            raise ValueError(f"tokens: got {tokens.dtype} of shape {tokens.shape}, wanted integers [samples, sequence + 1]")

        def read(_, index, ids, length):
            try:
                if tokens.shape[1] != length:
                    raise ValueError(f"tokens: got rows of {tokens.shape[1]} ids, wanted {length}: --seq-length and one more")
                numpy.ctypeslib.as_array(ids, (length,))[:] = tokens[index]
                return 0
            except BaseException as exception:  # it cannot pass through the library
                self._raised.append(exception)
                return 1

        self._read = _Read(read)  # as long as the library may call it
        self._name = name.encode()
        return _Samples(len(tokens), self._read, None, self._name)

    def _call(self, function, *arguments):
        try:
            _check(function, *arguments)
        except Error:
            if self._raised:
                raise self._raised.pop() from None
            raise

    @property
    def done(self):
        return bool(_piton.piton_trainer_done(self._open()))

    @property
    def iteration(self):
        return _piton.piton_trainer_iteration(self._open())

    def step(self):
        step = _Step()
        self._call(_piton.piton_trainer_step, self._open(), ctypes.byref(step))
        values = {field: getattr(step, field) for field, _ in _Step._fields_}
        if values["validation_loss"] != values["validation_loss"]:
            values["validation_loss"] = None
        return Step(**values)

    def __iter__(self):
        while not self.done:
            yield self.step()
            if _piton.piton_trainer_save_due(self._open()):
                self.save()
        self.finish()

    def evaluate(self):
        """Mean loss over --eval-iters batches of the validation split."""
        loss = ctypes.c_double()
        self._call(_piton.piton_trainer_evaluate, self._open(), ctypes.byref(loss))
        return loss.value

    def save(self):
        self._call(_piton.piton_trainer_save, self._open())

    def finish(self):
        """Completes what is written. Iterating to the end does so too."""
        self._call(_piton.piton_trainer_finish, self._open())
