"""What the pages say is what the code does: every block of config is planned, every command line understood, and run
where it needs no cluster."""

import json
import re
import runpy
import threading
from fnmatch import fnmatch
from functools import cache
from pathlib import Path

import pytest
import yaml
from command_lines import parse, words
from typer.testing import CliRunner
from unit.model.config.test_bad_inputs import laid_over

from trainium_eks.cli.app import app
from trainium_eks.cli.shared import recording
from trainium_eks.plan.recording.assumptions import load
from trainium_eks.plan.recording.program import record_program
from trainium_eks.plan.recording.project import load_project
from trainium_eks.plan.rules import judge, stale_waivers

ROOT = Path(__file__).resolve().parents[3]
PAGES = sorted(page for pattern in ("*.md", "docs/**/*.md", "examples/*.md") for page in ROOT.glob(pattern))
_BLOCK = re.compile(r"^ *```(\w+)\n(.*?)^ *```", re.MULTILINE | re.DOTALL)
_COMMENT = re.compile(r"\s{2,}(# |or: )?[A-Za-z`].*$")


def blocks(kind):
    """Yield the pages' blocks of a kind, each with its page and number."""
    for page in PAGES:
        found = [text for label, text in _BLOCK.findall(page.read_text(encoding="utf-8")) if label == kind]
        yield from ((f"{page.relative_to(ROOT)}-{number}", text) for number, text in enumerate(found, 1))


def config_of(block):
    """Return the keys of a stack's config, or None for a block of something else."""
    data = yaml.safe_load(block)
    data = data.get("config", data) if isinstance(data, dict) else {}
    own = {
        str(key).removeprefix("trainium-eks:"): value
        for key, value in data.items()
        if str(key).startswith("trainium-eks:")
    }
    return own or None


CONFIGS = [pytest.param(own, id=place) for place, block in blocks("yaml") if (own := config_of(block))]


@cache
def recorded(stack, config):
    """Return the recorded program of a stack with that config, in this process and once."""
    program = ROOT / "__main__.py"
    return record_program(
        lambda: runpy.run_path(str(program), run_name="__main__"), stack=stack, config=dict(config), timeout_seconds=120
    )


@pytest.mark.slow
@pytest.mark.parametrize("own", CONFIGS)
def test_config_block_is_planned_and_breaks_no_rule(own):
    base = dict(load_project(ROOT).stack("dev").config)
    for key, value in own.items():
        full = f"trainium-eks:{key}"
        both = laid_over({key: json.loads(base[full])}, {key: value}) if full in base else {key: value}
        base[full] = json.dumps(both[key], default=str)
    graph = recorded("dev", tuple(sorted(base.items())))
    verdicts = judge(graph)
    # A block may mend what dev waives.
    devs = json.loads(load_project(ROOT).stack("dev").config["trainium-eks:waivers"])
    assert [each for each in stale_waivers(graph, verdicts) if each.partition(":")[0] not in devs] == []
    assert {verdict.id: verdict.findings for verdict in verdicts if verdict.status == "fail"} == {}


def test_yaml_block_is_read_by_its_reader(tmp_path):
    for place, block in blocks("yaml"):
        data = yaml.safe_load(block)
        assert data, place
        if "lookups" in data:
            (tmp_path / "stub.yaml").write_text(block)
            assert load(tmp_path / "stub.yaml").lookups, place


def lines():
    """Yield the command lines of the pages, each with its place."""
    for place, block in blocks("console"):
        for line in block.replace("\\\n", " ").splitlines():
            yield place, line.strip().removeprefix("$ ")


TRN = [
    pytest.param(line, id=f"{place}: {line[:60]}")
    for place, whole in lines()
    for line in re.findall(r"(?:^|\| )(?:\./)?trn (.*)", _COMMENT.sub("", whole))
]


@pytest.mark.parametrize("line", TRN)
def test_command_line_parses(line):
    arguments = words(line.replace("NODES", "1"))
    name, given = parse(arguments)
    if name == "train":  # whatever is no option is the script's, and stands behind --
        assert not given["arguments"] or "--" in arguments


def test_docs_have_configs_commands_and_existing_make_targets():
    assert len(TRN) > 120
    assert len(CONFIGS) > 7
    for target in {line.split()[1] for _, line in lines() if line.startswith("make ")}:
        assert re.search(rf"^(?:.* )?{target}(?: .*)?:", (ROOT / "Makefile").read_text(), re.MULTILINE), target


@cache
def anchors(page):
    """The places of a page that a link can name: headings, as code hosts and the site spell them, and marked ids."""
    text = re.sub(r"^ *```.*?^ *```$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    titles = (re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", each) for each in re.findall(r"^#+ (.*)$", text, re.MULTILINE))
    spelt = {re.sub(r"[^\w -]", "", each.lower()).replace(" ", "-") for each in titles}
    return {"", *spelt, *re.findall(r'<a id="([\w-]+)"></a>', text)}


def test_links_have_a_target():
    found = [(page, link) for page in PAGES for link in re.findall(r"\]\(([^)#]*)(?:#([^)]*))?\)", page.read_text())]
    here = [
        (page, page.parent / to if to else page, anchor) for page, (to, anchor) in found if not to.startswith("http")
    ]
    assert len(here) > 100
    assert [f"{page}: {to}" for page, to, _ in here if not to.exists()] == []
    to_pages = [each for each in here if each[1].suffix == ".md"]
    assert [f"{page}: {to}#{anchor}" for page, to, anchor in to_pages if anchor not in anchors(to)] == []


def test_keys_to_leave_off_at_first_exist():
    table = (ROOT / "docs" / "for-platform-engineers.md").read_text().partition("| leave off |")[2]
    keys = [
        key
        for line in table.splitlines()
        for key in re.findall(r"`([\w.]+)`", line.split("|")[min(1, line.count("|"))])
    ]
    known = (ROOT / "docs" / "config.md").read_text()
    assert len(keys) > 10
    assert [key for key in keys if not re.search(rf"`(?:\w+\[?\]?\.)*{re.escape(key)}`", known)] == []


def test_files_that_a_change_touches_exist():
    table = (ROOT / "CONTRIBUTING.md").read_text().partition("| change |")[2].partition("\n\n")[0]
    named = re.findall(r"`([\w./*-]+(?:/|\.(?:py|pyi|yaml|toml|csv|json|md)))`", table)
    folders = [ROOT / name for name in ("trainium_eks", "components", "docs", "tests")]
    files = {file.relative_to(ROOT).as_posix() for each in folders for file in each.rglob("*")}
    files |= {file.name for file in ROOT.iterdir()}
    assert len(named) > 30
    assert [name for name in named if not any(fnmatch(f"/{file}", f"*/{name.rstrip('/')}") for file in files)] == []


def test_each_promise_names_existing_tests():
    rows = {}
    for line in (ROOT / "docs" / "promises.md").read_text().splitlines():
        if found := re.match(r"\| ([MN]\d\d) \|", line):
            rows[found[1]] = re.findall(r"`([\w/]+\.py)::(\w+)`", line)
    assert [row for row in rows if row[0] == "M"] == [f"M{number:02}" for number in range(1, 40)]
    assert [row for row, tests in rows.items() if not tests] == []
    named = [each for tests in rows.values() for each in tests]
    gone = [f"{file}::{name}" for file, name in named if f"def {name}(" not in (ROOT / "tests" / file).read_text()]
    assert gone == [], "name another test that shows the promise in docs/promises.md"


def test_generated_pages_are_current():
    assert runpy.run_path(str(ROOT / "docs" / "generate.py"))["stale"]() == [], "run make docs"


def runs_here(line):
    """Whether a command needs no cluster, account, commit or folder beside this checkout, and writes nothing."""
    needs = ("--against", "--directory", "--write", "--stub", "--stack STACK", "--stack <stack>", "--stack local")
    return line.startswith(("plan", "doctor --list", "doctor queue-closed", "stage --list")) and not any(
        word in line for word in needs
    )


HERE = sorted({line for param in TRN if runs_here(line := str(param.values[0]))} | {"plan", "plan --stack prod"})


@pytest.mark.slow
@pytest.mark.parametrize("line", HERE)
def test_clusterless_command_runs(line, monkeypatch, tmp_path):
    one_at_a_time = threading.Lock()  # as Pulumi's SDK, which loads its modules when they are first used

    def record(project, stack, given=None):
        with one_at_a_time:
            return recorded(stack, tuple(sorted(load_project(project).stack(stack).config.items())))

    monkeypatch.setattr(recording, "record", record)
    # Local clouds may run in the checkout itself.
    for file in (*ROOT.glob("Pulumi*.yaml"), ROOT / "__main__.py"):
        (tmp_path / file.name).symlink_to(file)
    monkeypatch.chdir(tmp_path)
    shown = CliRunner().invoke(app, words(line))
    assert shown.exit_code == 0, shown.output
