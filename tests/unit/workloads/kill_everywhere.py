"""Kills a compilation at each of its file operations, and looks at what is left: run by test_compile_cache.

Every operation of Python on a file announces itself (``sys.addaudithook``), the compiler's among them; what writes and
syncs an open file does not, and is wrapped. Each attempt is a fork of this process, so that hundreds cost seconds.
"""

import json
import os
import sys
import traceback
from functools import partial
from pathlib import Path

from trainium_workloads import compile_cache, graph_cache
from trainium_workloads.compile_cache import Compilation
from trainium_workloads.graph_cache import COMPLETE, Cache

OPTIONS = {"batch": "16"}
KILLED = 137
ABREAST = 4


def main():
    """Prints how many operations there are, for each beginning."""
    root = Path(sys.argv[1])
    compile_cache._say = lambda _: None
    Compilation._command = _compile
    # It is processes that end here, not machines.
    os.fsync = lambda _: None
    beginnings = {
        "nothing": lambda _: None,
        "other options": _with_other_options,
        "a directory without the lock": _fill_without_lock,
        "a dead holder": _begun_by_a_dead_one,
    }
    workers = {
        name: [_begun(partial(_everywhere, root / name, begin, first)) for first in range(1, ABREAST + 1)]
        for name, begin in beginnings.items()
    }
    codes = {name: [_ended(child) for child in children] for name, children in workers.items()}
    failed = [name for name, ended in codes.items() if any(ended)]
    counted = {name: len(list((root / name).iterdir())) - ABREAST for name in beginnings}
    print(json.dumps(counted))  # noqa: T201 (that is what it is for)
    sys.exit(f"not sound: {failed}" if failed else 0)


def _everywhere(root, begin, first):
    operation, code = first, KILLED
    while code == KILLED:
        place = root / str(operation)
        place.mkdir(parents=True)
        begin(place)
        code = _ended(_begun(partial(_killed_at, operation, place)))
        when = f"killed at operation {operation} of {root.name}"
        _sound(place, when)
        if code == KILLED:
            again = _ended(_begun(partial(_run, place)))
            assert again == 0, f"{when}, the next run ended with {again}"
        else:
            assert code == 0, f"{code} instead of: {when}"
        _whole(place, when)
        operation += ABREAST
    return 0


def _cache(place):
    return Cache(place, "k")


def _run(place, options=None):
    return Compilation(_cache(place), options or OPTIONS, ["compile"]).run()


def _compile(_, directory):
    """As the SDK does, which waits for ever for an abandoned lock; here, because a process takes too long."""
    for number in range(3):
        module = directory / "cc-2" / f"MODULE_{number}"
        module.mkdir(parents=True, exist_ok=True)
        (module / "model.hlo_module.pb.lock").open("x").close()
        (module / "model.neff").write_text(f"graph {number}")
    return 0


def _killed_at(operation, place):
    """Operations before this one happen, this one and those after it do not; half a write does."""
    left = operation
    prefix = str(place)

    def count(path):
        nonlocal left
        if isinstance(path, str | bytes | os.PathLike) and not os.fsdecode(path).startswith(prefix):
            return False
        left -= 1
        return left == 0

    def audit(event, arguments):
        is_of_files = event == "open" or event.startswith(("os.", "shutil."))
        if is_of_files and arguments and isinstance(arguments[0], str | bytes | os.PathLike) and count(arguments[0]):
            os._exit(KILLED)

    write_mark = graph_cache._write_mark

    def half(directory, *content):
        if count(None):
            (directory / graph_cache.MARK).write_text('{"files": {')
            os._exit(KILLED)
        write_mark(directory, *content)

    def synced(_):
        if count(None):
            os._exit(KILLED)

    graph_cache._write_mark, os.fsync = half, synced
    sys.addaudithook(audit)
    return _run(place)


def _begun(work):
    child = os.fork()
    if child == 0:
        code = 99
        try:
            code = work()
        except BaseException:  # noqa: BLE001 (nothing of the parent may go on in the child)
            traceback.print_exc()
        finally:
            os._exit(code)
    return child


def _ended(child):
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def _with_other_options(place):
    code = _ended(_begun(partial(_run, place, {"batch": "8"})))
    assert code == 0
    # One of the graphs was compiled in another way, and there is one that these options do not need.
    (place / "k" / "cc-2" / "MODULE_0").rename(place / "k" / "cc-2" / "MODULE_old")
    mark = json.loads((place / "k" / "complete.json").read_text())
    mark["files"] = {name.replace("MODULE_0", "MODULE_old"): size for name, size in mark["files"].items()}
    (place / "k" / "complete.json").write_text(json.dumps(mark))


def _fill_without_lock(place):
    module = place / "k" / "cc-2" / "MODULE_1"
    module.mkdir(parents=True)
    (module / "model.neff").write_text("half")
    (module / "model.hlo_module.pb.lock").touch()


def _begun_by_a_dead_one(place):
    module = place / ".staging" / "k" / "abc" / "cc-2" / "MODULE_1"
    module.mkdir(parents=True)
    (module / "model.hlo_module.pb.lock").touch()
    (module / "model.hlo_module.pb").touch()
    module.parents[1].with_suffix(".open").touch()


def _sound(place, when):
    """Complete or not, but never complete with anything missing; and what was complete stays."""
    if _cache(place).state(OPTIONS).code == COMPLETE:
        _whole(place, when)
    if place.parent.name == "other options":
        kept = json.loads((place / "k" / "complete.json").read_text())
        assert {"batch": "8"} in [each["options"] for each in kept["compilations"]], when
        assert (place / "k" / "cc-2" / "MODULE_old" / "model.neff").read_text() == "graph 0", when


def _whole(place, when):
    verdict = _cache(place).check(OPTIONS)
    assert verdict.code == 0, f"{when}: {verdict.message}"
    for number in range(3):
        module = place / "k" / "cc-2" / f"MODULE_{number}"
        assert (module / "model.neff").read_text() == f"graph {number}", when
        assert not list(module.glob("*.lock")), when


if __name__ == "__main__":
    main()
