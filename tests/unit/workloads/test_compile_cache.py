"""The compile cache: who may write, what training finds, and what is left of a compilation that was killed."""

import json
import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from trainium_workloads import compile_cache, file_lock
from trainium_workloads.compile_cache import NOT_COMPILED, Compilation, main, surroundings
from trainium_workloads.graph_cache import COMPLETE, IN_USE, NOT_THERE, OTHER_OPTIONS, Cache
from waiting import until

ENVIRONMENT = {**os.environ, "PYTHONPATH": str(Path(compile_cache.__file__).parents[1]), "PYTHONDONTWRITEBYTECODE": "1"}
COMMAND = [sys.executable, "-m", "trainium_workloads.compile_cache"]
OPTIONS = {"batch_size": "16", "seq_len": "128"}

COMPILE = """
cd "$NEURON_COMPILE_CACHE_URL" || exit 9
mkdir -p cc-2/MODULE_0 cc-2/MODULE_1 cc-2/MODULE_2
for n in 0 1 2; do
    [ -e cc-2/MODULE_$n/model.hlo_module.pb.lock ] && exit 8
    : > cc-2/MODULE_$n/model.hlo_module.pb.lock
    printf 'graph %s' $n > cc-2/MODULE_$n/model.neff
done
"""
"""What a compiler of three graphs does, which would wait for ever for a lock of another one."""


def cache(root):
    return Cache(root, "k")


def compilation(root, script=COMPILE, options=OPTIONS, **more):
    return Compilation(cache(root), options, ("/bin/sh", "-c", script), **more)


GRAPHS = {f"MODULE_{n}": f"graph {n}" for n in range(3)}


def module(root, number):
    return root / "k" / "cc-2" / f"MODULE_{number}"


def neffs(root):
    return {file.parent.name: file.read_text() for file in sorted((root / "k").rglob("model.neff"))}


@pytest.fixture
def processes():
    """Starts ``python -m trainium_workloads.compile_cache``."""
    begun = []

    def start(root, verb, *arguments, script):
        line = [*COMMAND, verb, "--root", str(root), "--key", "k", *arguments, "--", "/bin/sh", "-c", script]
        process = subprocess.Popen(line, env=ENVIRONMENT, stderr=subprocess.PIPE, text=True, start_new_session=True)
        begun.append(process)
        return process

    yield start
    for process in begun:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        process.stderr.close()


@pytest.mark.parametrize("name", ["", "..", ".locks", "a/b", "-x", "x" * 201])
def test_invalid_cache_key_is_refused(tmp_path, name, capsys):
    assert main(["check", "--root", str(tmp_path), f"--key={name}"]) == 2
    assert "is not a cache name" in capsys.readouterr().err


def test_compiled_graph_is_found_and_not_recompiled(tmp_path, capsys):
    nothing_yet = f'[ ! -e "{tmp_path}/k" ] || exit 7;'
    assert cache(tmp_path).check(OPTIONS).code == NOT_THERE
    assert compilation(tmp_path, f"{nothing_yet}{COMPILE}{nothing_yet}").run() == 0
    assert neffs(tmp_path) == GRAPHS
    assert cache(tmp_path).check(OPTIONS).code == COMPLETE
    assert compilation(tmp_path, "exit 1").run() == 0
    assert capsys.readouterr().err.count("compile cache k is complete") == 2
    # Neither locks, for which the SDK would wait, nor anything of the compilation is left.
    assert not list((tmp_path / "k").rglob("*.lock"))
    assert not [each for each in (tmp_path / ".staging" / "k").iterdir() if each.is_dir()]


def test_changed_option_is_named_before_recompilation(tmp_path):
    compilation(tmp_path).run()
    asked = cache(tmp_path).check({"batch_size": "8", "dropout": "", "seq_len": "128"})
    assert asked.code == OTHER_OPTIONS
    assert 'other options: batch_size was 16, is 8; dropout was not given, is "". Compile with these' in asked.message


def test_graphs_of_other_options_are_added_to_the_existing_ones(tmp_path):
    other = {**OPTIONS, "batch_size": "8"}
    compilation(tmp_path).run()
    inode = (module(tmp_path, 0) / "model.neff").stat().st_ino
    assert compilation(tmp_path, COMPILE.replace("MODULE_2", "MODULE_3").replace("0 1 2", "0 1 3"), other).run() == 0
    assert neffs(tmp_path) == {f"MODULE_{n}": f"graph {n}" for n in range(4)}
    # A reader of one of them must not see it change.
    assert (module(tmp_path, 0) / "model.neff").stat().st_ino == inode
    for options in (OPTIONS, other):
        assert cache(tmp_path).check(options).code == COMPLETE


def test_graph_compiled_without_the_lock_is_not_trusted(tmp_path):
    module(tmp_path, 1).mkdir(parents=True)
    (module(tmp_path, 1) / "model.neff").write_text("cut off")
    (module(tmp_path, 1) / "model.hlo_module.pb.lock").touch()
    (tmp_path / "k" / "notes").write_text("theirs")
    assert cache(tmp_path).check(OPTIONS).code == NOT_THERE
    assert compilation(tmp_path).run() == 0
    assert neffs(tmp_path) == GRAPHS
    assert (tmp_path / "k" / "notes").read_text() == "theirs"
    assert not list((tmp_path / "k").rglob("*.lock"))


@pytest.mark.parametrize(
    ("harm", "words"),
    [
        (lambda file: file.unlink(), "model.neff is gone"),
        (lambda file: file.write_text("g"), "model.neff has 1 bytes and had 7"),
        (lambda file: file.write_text("Graph 1"), "model.neff has the size that it had, and other bytes"),
    ],
)
def test_damage_is_noticed_and_repaired_by_recompiling(tmp_path, harm, words):
    compilation(tmp_path).run()
    harm(module(tmp_path, 1) / "model.neff")
    verdict = cache(tmp_path).check(OPTIONS)
    assert (verdict.code, words in verdict.message) == (NOT_THERE, True)
    assert compilation(tmp_path).run() == 0
    assert neffs(tmp_path)["MODULE_1"] == "graph 1"
    assert cache(tmp_path).check(OPTIONS).code == COMPLETE


def test_lock_of_a_killed_reader_is_removed(tmp_path):
    compilation(tmp_path).run()
    beside_a_graph, being_compiled = (module(tmp_path, each) / "model.hlo_module.pb.lock" for each in (1, 9))
    being_compiled.parent.mkdir()
    beside_a_graph.touch()
    being_compiled.touch()
    assert cache(tmp_path).check(OPTIONS).code == COMPLETE
    assert (beside_a_graph.exists(), being_compiled.exists()) == (False, True)


def test_a_graph_that_was_not_compiled_stops_the_publication(tmp_path, capsys):
    assert compilation(tmp_path, f"{COMPILE} rm cc-2/MODULE_1/model.neff").run() == NOT_COMPILED
    assert "1 graphs were not compiled: MODULE_1" in capsys.readouterr().err
    assert cache(tmp_path).check(OPTIONS).code == NOT_THERE
    assert compilation(tmp_path).run() == 0


def test_failed_command_keeps_its_compiled_graphs_for_the_next(tmp_path):
    assert compilation(tmp_path, f"{COMPILE} exit 5").run() == 5
    assert cache(tmp_path).check(OPTIONS).code == NOT_THERE
    only_looks = 'cd "$NEURON_COMPILE_CACHE_URL" && [ "$(cat cc-2/MODULE_2/model.neff)" = "graph 2" ]'
    assert compilation(tmp_path, only_looks).run() == 0
    assert cache(tmp_path).check(OPTIONS).code == COMPLETE


def test_missing_devices_compile_nothing_and_are_reported(tmp_path, capsys):
    assert compilation(tmp_path, "true").run() == 0
    assert "complete: no graph (without Neuron devices" in capsys.readouterr().err
    assert cache(tmp_path).check(OPTIONS).code == COMPLETE


def test_framework_is_pointed_at_the_cache_directory():
    flags = "--model-type transformer --cache_dir=/data/neuron_cache/bert_0 -O1"
    ours = surroundings({"NEURON_CC_FLAGS": flags, "TORCH_NEURONX_NEFF_CACHE_DIR": "/x", "A": "b"}, Path("/staging/a"))
    assert ours == {
        "TORCH_NEURONX_NEFF_CACHE_DIR": "/staging/a",
        "NEURON_CC_FLAGS": "--model-type transformer --cache_dir=/staging/a -O1",
        "A": "b",
    }
    assert surroundings({}, Path("/a")) == {"NEURON_COMPILE_CACHE_URL": "/a"}


AGAIN = "echo again >> {root}/compiled;"
HELD = "n=0; until [ -e {root}/go ] || [ $((n += 1)) -gt 30000 ]; do sleep 0.02; done;"
"""Goes on when the test says so, or, if there is no test any more, after ten minutes."""


def test_second_compiler_waits_and_names_the_first(tmp_path, processes):
    script = (AGAIN + HELD).format(root=tmp_path) + COMPILE
    first = processes(tmp_path, "run", "--job", "compile-1", script=script)
    until((tmp_path / "compiled").exists)
    asks = processes(tmp_path, "run", "--job", "compile-3", script=script)
    assert "is being compiled by compile-1 (" in asks.communicate()[1]
    verdict = cache(tmp_path).check(OPTIONS)
    assert verdict.code == asks.returncode == IN_USE
    assert "is being compiled by compile-1 (" in verdict.message
    (tmp_path / "go").touch()
    assert first.wait() == 0
    assert (tmp_path / "compiled").read_text() == "again\n"


def test_one_of_many_concurrent_processes_compiles(tmp_path, processes):
    script = f"{AGAIN.format(root=tmp_path)} {COMPILE} sleep 0.5"
    codes = [each.wait() for each in [processes(tmp_path, "run", script=script) for _ in range(4)]]
    assert set(codes) <= {0, IN_USE}
    assert 0 in codes
    assert (tmp_path / "compiled").read_text() == "again\n"


def test_graph_published_during_a_check_is_found(tmp_path, monkeypatch):
    """The check finds nothing, then no process that compiles: it was done in between."""

    def done_in_between(_):
        assert compilation(tmp_path).run() == 0

    monkeypatch.setattr(file_lock, "holder", done_in_between)
    assert cache(tmp_path).check(OPTIONS).code == COMPLETE


def test_dead_compilers_lock_and_graphs_are_taken_over(tmp_path, processes):
    dies = processes(tmp_path, "run", "--job", "a", script=f"{COMPILE} touch {tmp_path}/done; sleep 600")
    until((tmp_path / "done").exists)
    os.killpg(dies.pid, signal.SIGKILL)
    dies.wait()
    # Its locks are there, and the script ends with 8 at the first one that it finds.
    assert list((tmp_path / ".staging").rglob("*.lock"))
    assert processes(tmp_path, "run", "--job", "b", script=COMPILE).wait() == 0
    assert cache(tmp_path).check({}).code == COMPLETE


def test_writer_without_its_lock_publishes_nothing(tmp_path):
    """Its machine is away from the file system, another one takes over and publishes, and the machine comes back."""
    with cache(tmp_path).compiling("the slow one", "") as directory:
        (directory / "cc-2" / "MODULE_0").mkdir(parents=True)
        (directory / "cc-2" / "MODULE_0" / "model.neff").write_text("of the slow one")
        (tmp_path / ".locks" / "k" / "writer").unlink()
        assert compilation(tmp_path).run() == 0
        with pytest.raises(FileNotFoundError):
            cache(tmp_path).publish(directory, OPTIONS, ["x"])
    assert neffs(tmp_path)["MODULE_0"] == "graph 0"


def test_other_nodes_of_a_job_share_the_compilation_and_are_awaited(tmp_path, processes):
    def graph(number, first):
        module = f"cc-2/MODULE_{number}"
        return f'cd "$NEURON_COMPILE_CACHE_URL"; mkdir -p {module}; {first}; printf %s {number} > {module}/model.neff'

    on, led = tmp_path / "on", tmp_path / "led"

    def wait_for(file):
        return HELD.replace("{root}/go", str(file)).rstrip(";")

    # Who joins goes on compiling when the other one is done.
    joins = processes(tmp_path, "join", "--job", "j", script=graph(1, f"touch {on}; {wait_for(led)}; sleep 0.5"))
    time.sleep(0.3)
    assert not on.exists()
    leads = processes(tmp_path, "run", "--job", "j", script=f"{graph(0, wait_for(on))}; touch {led}")
    assert (leads.wait(), joins.wait()) == (0, 0)
    assert neffs(tmp_path) == {"MODULE_0": "0", "MODULE_1": "1"}
    late = processes(tmp_path, "join", "--job", "j", script="exit 9")
    assert late.wait() == 0


def test_node_joins_only_its_own_jobs_running_compilation(tmp_path):
    def join():
        return compilation(tmp_path, "exit 9", job="j", patience_seconds=0.5).join()

    with cache(tmp_path).compiling("x", "other"):
        assert join() == IN_USE
    # As a killed process leaves it: the directory is open, and the lock is not held.
    with cache(tmp_path).compiling("x", "j"):
        pass
    assert join() == IN_USE
    leads = cache(tmp_path)
    with leads.compiling("x", "j") as directory:
        leads.await_helpers(directory)
        assert join() == IN_USE
    assert join() == IN_USE


def test_sigterm_reaches_the_command_and_the_lock_is_free_at_once(tmp_path, processes):
    script = f"trap 'exit 33' TERM; touch {tmp_path}/on; while :; do sleep 0.05; done"
    process = processes(tmp_path, "run", script=script)
    until((tmp_path / "on").exists)
    process.terminate()
    assert process.wait() == 33
    assert cache(tmp_path).check(OPTIONS).code == NOT_THERE


@pytest.mark.slow
def test_cache_killed_at_any_file_operation_is_sound_and_completed_later(tmp_path):
    program = Path(__file__).with_name("kill_everywhere.py")
    command = [sys.executable, program, tmp_path]
    done = subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    operations = json.loads(done.stdout)
    assert set(operations) == {"nothing", "other options", "a directory without the lock", "a dead holder"}
    assert min(operations.values()) > 50


def test_full_disk_keeps_the_published_graphs(tmp_path):
    compilation(tmp_path).run()

    def limited():
        resource.setrlimit(resource.RLIMIT_FSIZE, (200, 200))
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)

    command = [*COMMAND, "run", "--root", str(tmp_path), "--key", "k", "--options", '{"batch_size": "8"}', "--"]
    command += ["/bin/sh", "-c", COMPILE]
    how = {"env": ENVIRONMENT, "preexec_fn": limited, "capture_output": True, "text": True}
    done = subprocess.run(command, **how, check=False)
    assert done.returncode == 1
    assert "File too large. What training reads is as it was" in done.stderr
    assert cache(tmp_path).check(OPTIONS).code == COMPLETE
    assert compilation(tmp_path, options={"batch_size": "8"}).run() == 0
