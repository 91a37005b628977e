"""A model that is loaded: the surface that most programs need."""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property
from math import prod
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Never, Self, Unpack, overload

from localllm import backends, memory
from localllm.archs import build
from localllm.backends.base import Backend, Float, Options, Progress, Session, TensorSource
from localllm.errors import BackendError, UnsupportedError
from localllm.generation import caching
from localllm.generation import options as generation
from localllm.generation import prompt as prompts
from localllm.generation.answer import Job
from localllm.generation.background import Background
from localllm.generation.batch import Streams
from localllm.generation.full import policy
from localllm.generation.past import Past
from localllm.generation.prefix import PrefixCache
from localllm.generation.recommended import recommended
from localllm.generation.results import Result
from localllm.generation.sampling import Breakers
from localllm.generation.speculation import setup as speculation
from localllm.generation.speculation import vocabularies
from localllm.generation.speculation.memory import Memory, place
from localllm.generation.stepper import GiveBack, Stepper, check_ids
from localllm.generation.stream import Stream
from localllm.generation.vocabulary import control_texts, leading
from localllm.gguf import open_gguf
from localllm.load_options import LOAD_NAMES, Keywords, LoadOptions
from localllm.model.program import Program
from localllm.store import resolve
from localllm.store.identity import identity

if TYPE_CHECKING:
    from localllm.text import ChatTemplate, Tokenizer


def load(
    name_or_path: str | os.PathLike[str],
    *,
    backend: str = "auto",
    threads: int | None = None,
    ctx: int | None = None,
    batch: int = 512,
    progress: Progress | None = None,
    force: bool = False,
    cache_ram: int | None = None,
    cache_disk: int | None = None,
    cache_type_k: str | None = None,
    cache_type_v: str | None = None,
    draft: str | os.PathLike[str] | None = None,
    **misspelled: Never,
) -> Model:
    """Load a model from a GGUF file or by its name in the catalogue, fetching it where needed; a context manager.

    ``backend``: "auto", "cpu" or "reference". ``threads``: None is one per physical core that we may use.
    ``ctx``: tokens that a prompt and its answer may have together; None is the trained length. Memory for them is taken as they come.
    ``batch``: rows of a prompt computed at once. ``progress(what, done, total)`` is told of downloads, loading and compilation.
    ``force``: load even where memory seems too small. ``cache_type_k``, ``cache_type_v``: what keys and values are kept as: "f16" (None),
    "q8_0", "q4_0" or "f32"; the reference keeps float32 where nothing is said.
    ``cache_ram``: MiB that lines of earlier prompts may take, so that a prompt that begins as one of them continues it; None is a
    quarter of the free memory, 0 none. ``cache_disk``: the same on disk, for later processes, of lines that took long; None is a tenth
    of the free disk, at most 8 GB, 0 none.
    ``draft``: a smaller model with the same vocabulary, by path or name, that guesses ahead; it changes the speed and nothing else.

    Raises FileError and its kinds for the file, UnsupportedError for what the backend can't do, OutOfMemoryError, BackendError, OptionError
    for a draft that can't guess for this model.
    """
    generation.refuse_unknown(misspelled, LOAD_NAMES)
    chosen = LoadOptions(
        backend=backend,
        threads=threads,
        ctx=ctx,
        batch=batch,
        progress=progress,
        force=force,
        cache_ram=cache_ram,
        cache_disk=cache_disk,
        cache_type_k=cache_type_k,
        cache_type_v=cache_type_v,
        draft=draft,
    )
    return _load(name_or_path, chosen)


@overload
def generate(name_or_path: str | os.PathLike[str], prompt: prompts.Prompt, *, n: None = None, **options: Unpack[Keywords]) -> Result: ...
@overload
def generate(name_or_path: str | os.PathLike[str], prompt: prompts.Prompt, *, n: int, **options: Unpack[Keywords]) -> list[Result]: ...
def generate(
    name_or_path: str | os.PathLike[str], prompt: prompts.Prompt, *, n: int | None = None, **options: Unpack[Keywords]
) -> Result | list[Result]:
    """Load a model, answer one prompt, and close it. Takes the options of ``load`` and of ``Model.generate``."""
    generation.refuse_unknown(options, (*LOAD_NAMES, *generation.NAMES))
    chosen = LoadOptions(**{name: value for name, value in options.items() if name in LOAD_NAMES})  # type: ignore[arg-type]
    answer = {name: value for name, value in options.items() if name in generation.NAMES}
    generation.make(answer)  # what is wrong with it is told before anything is loaded
    generation.whole("n", n, 1, optional=True)
    with _load(name_or_path, chosen) as model:
        return model._start(prompt, n, answer, chosen.progress).run()


class Model:
    """A loaded model. Made by ``load``; a context manager.

    ``metadata``: the file's. ``program``: what it computes. ``backend``: the name of what computes it. ``context``: the tokens that a
    line may have. ``cache``: lines of earlier prompts, which new ones continue where they can; None where that is off.
    ``speculation``: how it guesses ahead.
    """

    def __init__(
        self,
        session: Session,
        program: Program,
        metadata: Mapping[str, Any],
        tokenizer: Background[Tokenizer],
        *,
        backend: str,
        context: int,
        batch: int,
        speculation: speculation.Setup,
        cache: PrefixCache | None = None,
    ) -> None:
        self.program, self.metadata, self.backend, self.context = program, metadata, backend, context
        self._session, self._tokenizer, self._batch = session, tokenizer, batch
        self.speculation = speculation
        self._draft: Model | None = None
        self._lines: weakref.WeakSet[Stepper] = weakref.WeakSet()
        self.cache = cache
        self._known_breakers: tuple[tuple[str, ...], Breakers] | None = None
        self._open = True

    @property
    def tokenizer(self) -> Tokenizer:
        """The model's tokenizer. Raises TokenizerError where the file has none that can be used."""
        return self._tokenizer.get()

    @cached_property
    def template(self) -> ChatTemplate | None:
        """The model's own chat template; None where it has none, since a guess would make a model talk nonsense without a word."""
        from localllm.text.chat import template_for

        found = template_for(self.metadata)
        return None if found.is_default else found

    @cached_property
    def recommended(self) -> Mapping[str, Any]:
        """The options that the file recommends (``general.sampling.*``): the defaults of this model."""
        return recommended(self.metadata)

    @overload
    def generate(
        self,
        prompt: prompts.Prompt,
        *,
        n: None = None,
        progress: Progress | None = None,
        **options: Unpack[generation.GenerationKeywords],
    ) -> Result: ...
    @overload
    def generate(
        self, prompt: prompts.Prompt, *, n: int, progress: Progress | None = None, **options: Unpack[generation.GenerationKeywords]
    ) -> list[Result]: ...
    def generate(
        self,
        prompt: prompts.Prompt,
        *,
        n: int | None = None,
        progress: Progress | None = None,
        **options: Unpack[generation.GenerationKeywords],
    ) -> Result | list[Result]:
        """Answer a prompt: a string is a user's message (``raw=True`` continues it as it is), a list of {"role", "content"} a
        conversation, a list of ids stands for itself.

        Options are the fields of ``generation.options.GenerationOptions``: max_tokens, temperature, top_k, top_p, min_p, seed, stop, ...
        What is not given is what the model recommends, or else llama.cpp's default. ``n``: so many answers, as a list, which share the
        prompt's cache and are computed together. ``progress("prompt", done, total)`` is told of the tokens of the prompt.
        Raises OptionError, and ContextFullError before anything is computed.
        """
        return self._start(prompt, n, options, progress).run()

    @overload
    def stream(
        self,
        prompt: prompts.Prompt,
        *,
        n: None = None,
        progress: Progress | None = None,
        **options: Unpack[generation.GenerationKeywords],
    ) -> Stream: ...
    @overload
    def stream(
        self, prompt: prompts.Prompt, *, n: int, progress: Progress | None = None, **options: Unpack[generation.GenerationKeywords]
    ) -> Streams: ...
    def stream(
        self,
        prompt: prompts.Prompt,
        *,
        n: int | None = None,
        progress: Progress | None = None,
        **options: Unpack[generation.GenerationKeywords],
    ) -> Stream | Streams:
        """As ``generate``, but an iterator of events; an answer's last one carries its result. It may be left or closed at any point."""
        return self._start(prompt, n, options, progress)

    @property
    def threads(self) -> int:
        """How many threads compute."""
        return self._session.threads

    def profile(self, run: Callable[[], object]) -> dict[str, float]:
        """Seconds by kind of work while ``run`` uses this model, longest first."""
        with self._session.profile() as seconds:
            run()
        return dict(sorted(seconds.items(), key=lambda item: -item[1]))

    def logits(self, tokens: Sequence[int], *, last: int = 1) -> Float:
        """The logits after each of the ``last`` tokens of a fresh line: (last, V) float32, for evaluation and tests."""
        with self.line() as line:
            return line.feed(tokens, last=last)

    def line(self) -> Stepper:
        """A fresh line of tokens to feed: the layer below ``stream``."""
        return self._stepper()

    def close(self) -> None:
        """Give all memory back, once what is being written to the disk is; streams that are still open end with an error. Harmless when
        done twice."""
        if not self._open:
            return
        self._open = False
        for line in list(self._lines):
            line.close()
        try:
            if self.cache is not None:
                self.cache.close()
        finally:  # an interrupt ends what is still being written
            self._session.close()
            self._tokenizer.wait()
            self.speculation.memory.save()
            if self._draft:
                self._draft.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def _start(self, prompt: prompts.Prompt, n: int | None, options: Mapping[str, Any], progress: Progress | None) -> Stream | Streams:
        generation.whole("n", n, 1, optional=True)
        made = generation.make(options, self.recommended)
        job = self._job(prompt, made, progress)
        if n is not None:
            return Streams(job, [self.tokenizer.stream() for _ in range(n)])
        provider, guessed = self.speculation.provider(made, {*job.ends, *made.stop_token_ids})
        return Stream(replace(job, provider=provider, speculation=guessed))

    def _job(self, prompt: prompts.Prompt, options: generation.GenerationOptions, progress: Progress | None) -> Job:
        for named in (options.logit_bias or (), options.stop_token_ids):
            if named:
                check_ids(list(named), self.program.vocab)

        def encode(text: prompts.Prompt) -> list[int]:
            return prompts.encode(text, options, self.tokenizer, lambda: self.template, self._controls)

        ids = encode(prompt)
        return Job(
            line=self._continued,
            prompt=ids,
            options=options,
            decoder=self.tokenizer.stream(),
            ends=self.tokenizer.eog,
            context=self.context,
            progress=progress,
            shorten=policy(options.on_full, options.keep, prompt, ids, self.context, encode, lambda: leading(self.tokenizer)),
            breakers=self._breakers(tuple(options.dry_sequence_breakers)) if options.dry_multiplier else None,
        )

    def _breakers(self, texts: tuple[str, ...]) -> Breakers:
        """Those of DRY. The last ones are kept: to find them, every token is looked at."""
        if self._known_breakers is None or self._known_breakers[0] != texts:
            from localllm.text.breakers import breakers

            self._known_breakers = texts, breakers(self.tokenizer, texts)
        return self._known_breakers[1]

    def _guessed_by(self, draft: Model) -> None:
        """Have a smaller model guess ahead, which belongs to this one from now on."""
        self._draft = draft
        bridge = vocabularies.bridge(self.tokenizer.vocab, draft.tokenizer.vocab, self.program.vocab, draft.program.vocab)
        share, whole = (sum(map(prod, model.program.shapes.values())) for model in (draft, self))
        self.speculation.draft = speculation.Draft(draft.line, bridge, draft.speculation.memory, share / whole)

    def _continued(self, prompt: Sequence[int]) -> Stepper:
        """A line that holds as much of a prompt as there is of it; the cache gets it back."""
        self._require_open()
        if self.cache is None:
            return self._stepper(Past(self._session.new_line(), (), "the cache is off"))
        return self._stepper(self.cache.take(prompt), self.cache.keep)

    def _stepper(self, past: Past | None = None, give_back: GiveBack | None = None) -> Stepper:
        self._require_open()
        line = Stepper(self._session, vocab=self.program.vocab, context=self.context, batch=self._batch, past=past, give_back=give_back)
        self._lines.add(line)
        return line

    def _require_open(self) -> None:
        if not self._open:
            raise BackendError("the model is closed; load it again")

    @cached_property
    def _controls(self) -> prompts.Controls:
        return prompts.Controls(lambda: control_texts(self.tokenizer))


def _load(name_or_path: str | os.PathLike[str], chosen: LoadOptions) -> Model:
    path = resolve(name_or_path, progress=chosen.progress)
    with open_gguf(path) as file:
        program = build(file)
        backend = backends.get(chosen.backend)
        options = Options(chosen.threads, chosen.batch, chosen.cache_type_k, chosen.cache_type_v)
        _require_support(backend, program, file, path)
        memory.require(backend.memory(program, file, options), path.name, force=chosen.force)
        weights = backend.upload(program, file, options, chosen.progress)
        # The vocabulary is built while the weights are read, and not before: imports would wait for it at every file that they open.
        tokenizer = Background(_tokenizer_of(file.metadata))
        key = Background(identity(file)) if chosen.cache_disk != 0 else None
        session = backend.compile(program, weights, options, chosen.progress)
    context = chosen.ctx or program.context
    cache = caching.make(session, backend.name, None if key is None else key.get(), ram=chosen.cache_ram, disk=chosen.cache_disk)
    guessing = speculation.Setup(Memory(place(backend.name, session.threads, file.tensors)), exact=backend.exact)
    model = Model(
        session,
        program,
        file.metadata,
        tokenizer,
        backend=backend.name,
        context=context,
        batch=chosen.batch,
        speculation=guessing,
        cache=cache,
    )
    if chosen.draft is not None:
        with _closed_by_an_error(model):
            # Its lines begin anew with each answer.
            model._guessed_by(_load(chosen.draft, replace(chosen, draft=None, cache_ram=0, cache_disk=0)))
    return model


@contextmanager
def _closed_by_an_error(model: Model) -> Iterator[None]:
    try:
        yield
    except BaseException:
        model.close()
        raise


def _require_support(backend: Backend, program: Program, source: TensorSource, path: Path) -> None:
    missing = backend.missing(program, source)
    if missing:
        others = [name for name in backends.NAMES if name != backend.name]
        raise UnsupportedError(f"{path.name}: backend {backend.name!r} has no {', '.join(missing)}; try another one: {', '.join(others)}")


def _tokenizer_of(metadata: Mapping[str, Any]) -> Callable[[], Tokenizer]:
    def make() -> Tokenizer:
        from localllm.text import Tokenizer

        tokenizer = Tokenizer.from_metadata(metadata)
        tokenizer.encode(" a")  # makes what is made at first use
        return tokenizer

    return make
