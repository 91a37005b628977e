"""The team of threads: how many, asleep when idle, and out of every trouble with its barrier intact."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from localllm.backends.base import Options
from localllm.backends.cpu import threads
from localllm.backends.cpu.threads import Pace, core_of, default_threads, quota
from tests import tiny
from tests.backends import run

TOKENS = list(range(5, 105))


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path: Path = tmp_path_factory.mktemp("models") / "a.gguf"
    tiny.write(path, embed=256, ff=512, layers=8)
    return path


def python(code: str, *arguments: object, timeout: float = 120) -> subprocess.CompletedProcess[str]:
    """Runs a script in a process of its own."""
    source = "from tests.backends import run\nfrom localllm.backends.base import Options\nfrom pathlib import Path\nimport sys\n"
    command = [sys.executable, "-c", source + textwrap.dedent(code), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=timeout, cwd=Path(__file__).parents[3])


def test_default_is_within_what_we_may_use() -> None:
    assert 1 <= default_threads() <= (os.cpu_count() or 1)


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="affinity is Linux's")
def test_affinity_counts() -> None:
    code = "import os; os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})\nfrom localllm.backends.cpu.threads import default_threads\n"
    assert python(code + "print(default_threads())").stdout.split() == ["1"]


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_threads_of_one_core_count_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for cpu in range(4):
        write(tmp_path / f"cpu{cpu}/topology/thread_siblings_list", f"{cpu % 2},{cpu % 2 + 2}\n")
    monkeypatch.setattr(threads, "core_of", lambda cpu: core_of(cpu, tmp_path))
    monkeypatch.setattr(threads, "quota", lambda: 100)
    for allowed, cores in (({0, 1, 2, 3}, 2), ({0, 2}, 1), ({1, 2}, 2), ({0, 7}, 2)):  # 7 is a processor that has no description
        monkeypatch.setattr(os, "sched_getaffinity", lambda pid, allowed=allowed: allowed, raising=False)
        assert default_threads() == cores
    monkeypatch.setattr(threads, "quota", lambda: 1)
    assert default_threads() == 1


@pytest.mark.parametrize(
    ("groups", "files", "granted"),
    [
        ("0::/\n", {"cpu.max": "max 100000\n"}, 1 << 16),
        ("0::/\n", {"cpu.max": "350000 100000\n"}, 3),
        ("0::/\n", {"cpu.max": "50000 100000\n"}, 1),
        ("0::/a.slice/b\n", {"cpu.max": "max 100000", "a.slice/cpu.max": "200000 100000", "a.slice/b/cpu.max": "max 100000"}, 2),
        ("0::/a.slice/b\n", {"a.slice/cpu.max": "800000 100000", "a.slice/b/cpu.max": "400000 100000"}, 4),
        ("0::/seen/from/outside\n", {"cpu.max": "200000 100000"}, 2),
        ("3:cpu,cpuacct:/x\n2:memory:/y\n", {"cpu/x/cpu.cfs_quota_us": "200000\n", "cpu/x/cpu.cfs_period_us": "100000\n"}, 2),
        ("3:cpu:/\n", {"cpu/cpu.cfs_quota_us": "-1\n", "cpu/cpu.cfs_period_us": "100000\n"}, 1 << 16),
        ("2:memory:/y\n", {"y/cpu.max": "100000 100000"}, 1 << 16),
        ("rubbish", {"cpu.max": "rubbish"}, 1 << 16),
        ("0::/\n", {}, 1 << 16),
    ],
)
def test_quotas_count(tmp_path: Path, groups: str, files: dict[str, str], granted: int) -> None:
    write(tmp_path / "own", groups)
    for name, text in files.items():
        write(tmp_path / "groups" / name, text)
    assert quota(tmp_path / "groups", tmp_path / "own") == granted


def test_nothing_is_granted_where_nothing_is_said(tmp_path: Path) -> None:
    assert quota(tmp_path / "none", tmp_path / "none") == 1 << 16


def test_cuts_follow_barriers_and_time() -> None:
    pace = Pace([False, True, True, False, True])
    assert [pace.next(row, 1) for row in (0, 2, 3)] == [2, 3, 5]  # nothing known: one barrier at a time
    pace.took(0.01, 1)
    assert pace.next(0, 1) == 5
    assert pace.next(0, 10**6) == 2


def test_idle_workers_sleep(path: Path) -> None:
    with run.session(path, "cpu", Options(3, 64)) as session:
        run.logits(session, TOKENS, 1, 64)
        time.sleep(0.2)
        before = time.process_time()
        time.sleep(0.5)
        assert time.process_time() - before < 0.05


def test_two_models_and_several_callers(path: Path, tmp_path: Path) -> None:
    tiny.write(tmp_path / "b.gguf", "qwen3", type="Q8_0")
    paths, found = (path, tmp_path / "b.gguf"), {}
    with run.session(paths[0], "cpu", Options(2, 64)) as a, run.session(paths[1], "cpu", Options(3, 64)) as b:
        sessions = (a, b)
        alone = [run.logits(s, TOKENS, 5, 16) for s in sessions]

        def call(i: int) -> None:
            found[i] = [run.logits(sessions[i], TOKENS, 5, 16) for _ in range(5)]

        callers = [threading.Thread(target=call, args=(i,)) for i in (0, 1)]
        for caller in callers:
            caller.start()
        for caller in callers:
            caller.join(60)
    assert all(np.array_equal(x, alone[i]) for i in (0, 1) for x in found[i])


@pytest.mark.skipif(sys.platform == "win32", reason="signals are sent to a process group there")
def test_an_interrupt_leaves_the_session_usable(path: Path) -> None:
    code = """
        import numpy as np, os, signal, threading, time
        tokens = list(range(5, 205))
        with run.session(Path(sys.argv[1]), "cpu", Options(2, 512)) as session:
            before, stopped = run.logits(session, tokens, 3), 0
            for i in range(60):
                try:
                    threading.Timer(0.001 + 0.0007 * i, os.kill, (os.getpid(), signal.SIGINT)).start()
                    for _ in range(1000):
                        line = session.new_line()
                        run.feed(session, line, tokens[:50 + i], [0])
                        line.close()
                except KeyboardInterrupt:
                    stopped += 1
            assert np.array_equal(run.logits(session, tokens, 3), before)
            print(stopped)
    """
    done = python(code, path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["60"]


def test_giving_up_between_any_two_rows(path: Path) -> None:
    # A worker may be slow out of one meeting while the caller already waits in the next.
    code = """
        import numpy as np
        from localllm.backends.base import Chunk, Want
        from localllm.backends.cpu import threads
        tokens = list(range(5, 105))
        with run.session(Path(sys.argv[1]), "cpu", Options(2, 512)) as session:
            before = run.logits(session, tokens, 3)
            usual = threads.Pace.next
            for i in range(1500):
                left = 1 + i % 30
                def next(self, row, work):
                    global left
                    left -= 1
                    if left < 0:
                        raise KeyboardInterrupt
                    return self._cuts[self._index[row]]
                threads.Pace.next = next
                line = session.new_line()
                try:
                    session.forward([Chunk(line, tokens[:64], Want([0]))])
                except KeyboardInterrupt:
                    pass
                line.close()
            threads.Pace.next = usual
            assert np.array_equal(run.logits(session, tokens, 3), before)
    """
    done = python(code, path)
    assert done.returncode == 0, done.stderr


def test_an_interrupt_while_giving_up(path: Path) -> None:
    # The job is still there: the next call has to end it before it touches a table.
    code = """
        import numpy as np
        from localllm.backends.base import Chunk, Want
        from localllm.backends.cpu import threads
        tokens = list(range(5, 105))
        team, usual = threads.team, threads.Team._settle
        with run.session(Path(sys.argv[1]), "cpu", Options(2, 512)) as session:
            before = run.logits(session, tokens, 3)
            for i in range(200):
                def next(self, row, work, usual=threads.Pace.next):
                    raise KeyboardInterrupt
                def settle(self):
                    if self._job is not None and self._sync[threads.DONE] >= 0:
                        raise KeyboardInterrupt
                    usual(self)
                real, threads.Pace.next, threads.Team._settle = threads.Pace.next, next, settle
                try:
                    session.forward([Chunk(session.new_line(), tokens[:64], Want([0]))])
                except KeyboardInterrupt:
                    pass
                threads.Pace.next, threads.Team._settle = real, usual
                assert np.array_equal(run.logits(session, tokens, 3), before), i
    """
    done = python(code, path)
    assert done.returncode == 0, done.stderr


def test_models_loaded_at_once(path: Path) -> None:
    code = """
        import threading
        out = []
        def load():
            with run.session(Path(sys.argv[1]), "cpu", Options(2, 64)) as session:
                out.append(run.logits(session, [5, 6, 7], 1).tobytes())
        both = [threading.Thread(target=load) for _ in range(3)]
        [t.start() for t in both]
        [t.join() for t in both]
        assert len(out) == 3 and len(set(out)) == 1
    """
    for _ in range(3):
        done = python(code, path)
        assert done.returncode == 0, done.stderr


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_forked_child_says_so(path: Path) -> None:
    code = """
        import os, warnings
        from localllm.errors import BackendError
        warnings.simplefilter("ignore")
        with run.session(Path(sys.argv[1]), "cpu", Options(2, 64)) as session:
            run.logits(session, [5, 6, 7], 1)
            if child := os.fork():
                _, status = os.waitpid(child, 0)
                run.logits(session, [5, 6, 7], 1)
                sys.exit(os.waitstatus_to_exitcode(status))
            try:
                run.logits(session, [5, 6, 7], 1)
            except BackendError as error:
                if "fork" not in str(error):
                    os._exit(1)
                with run.session(Path(sys.argv[1]), "cpu", Options(2, 64)) as anew:
                    os._exit(0 if run.logits(anew, [5, 6, 7], 1).size else 2)
            os._exit(3)
    """
    done = python(code, path)
    assert done.returncode == 0, done.stderr


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_child_forked_during_a_job_says_so(path: Path) -> None:
    code = """
        import os, threading, time, warnings
        from localllm.errors import BackendError
        warnings.simplefilter("ignore")
        with run.session(Path(sys.argv[1]), "cpu", Options(2, 64)) as session:
            run.logits(session, [5, 6, 7], 1)
            stop = threading.Event()
            def work():
                while not stop.is_set():
                    run.logits(session, list(range(5, 60)), 1)
            worker = threading.Thread(target=work)
            worker.start()
            for _ in range(5):
                time.sleep(0.01)
                if child := os.fork():
                    _, status = os.waitpid(child, 0)
                    assert os.waitstatus_to_exitcode(status) == 0
                    continue
                try:
                    run.logits(session, [5, 6, 7], 1)
                except BackendError:
                    os._exit(0)
                os._exit(2)
            stop.set()
            worker.join()
    """
    done = python(code, path, timeout=60)
    assert done.returncode == 0, done.stderr
