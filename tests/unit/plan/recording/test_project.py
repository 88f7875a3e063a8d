"""Reading a project and its stacks as the Pulumi CLI does."""

import json

import pytest

from trainium_eks.plan.recording.project import InvalidConfigError, ProjectError, load_project

PROJECT = """
name: proj
runtime:
  name: python
  options: {virtualenv: venv}
config:
  region: {type: string, description: An AWS region.}
  count: {type: integer, default: 3}
  production: {type: boolean, default: false}
  ratio: {default: 0.5}
  zones: {type: array, items: {type: string}, default: [a, b]}
  groups: {type: object, default: {x: {y: 1}}}
  shorthand: hello
  aws:region: {value: us-west-2}
"""


def write(directory, project=PROJECT, **stacks):
    (directory / "Pulumi.yaml").write_text(project)
    (directory / "__main__.py").write_text("")
    for name, text in stacks.items():
        (directory / f"Pulumi.{name}.yaml").write_text(text)
    return load_project(directory)


def settings(directory, stack, project=PROJECT):
    return write(directory, project, dev=stack).stack("dev")


def refused(directory, stack, project=PROJECT):
    with pytest.raises(InvalidConfigError) as caught:
        settings(directory, stack, project)
    return {problem.path: problem.reason for problem in caught.value.problems}


def test_project_defaults_fill_missing_keys_as_text_and_json(tmp_path):
    assert settings(tmp_path, "config: {proj:region: eu-west-1}").config == {
        "aws:region": "us-west-2",
        "proj:count": "3",
        "proj:groups": '{"x":{"y":1}}',
        "proj:production": "false",
        "proj:ratio": "0.5",
        "proj:region": "eu-west-1",
        "proj:shorthand": "hello",
        "proj:zones": '["a","b"]',
    }


def test_stack_values_override_with_or_without_namespace(tmp_path):
    text = "config:\n  region: r\n  proj:count: 7\n  aws:region: us-east-1\n  other:key: [1, {a: 2.5}]\n"
    config = settings(tmp_path, text).config
    assert (config["proj:region"], config["proj:count"], config["aws:region"]) == ("r", "7", "us-east-1")
    assert config["other:key"] == '[1,{"a":2.5}]'


def test_scalars_keep_their_text_and_null_is_empty_as_in_pulumi(tmp_path):
    texts = ("012345678901", "yes", "12:30:00", "1.20", "2024-01-01", "'quoted'")
    config = settings(
        tmp_path, "config:\n  region: r\n" + "".join(f"  k{n}: {t}\n" for n, t in enumerate(texts))
    ).config
    assert [config[f"proj:k{number}"] for number in range(len(texts))] == [each.strip("'") for each in texts]
    config = settings(tmp_path, "config:\n  region: r\n  fileSystem: null\n  shorthand: ~\n").config
    assert (config["proj:fileSystem"], config["proj:shorthand"]) == ("", "")


def test_values_inside_objects_follow_yaml_1_2_with_anchors_and_merge_keys(tmp_path):
    values = "{a: yes, b: true, c: 12:30, d: null, e: 1_000, f: 0x10, g: '5', h: 1e3, i: 0o17}"
    found = json.loads(settings(tmp_path, f"config:\n  region: r\n  o: {values}\n").config["proj:o"])
    assert list(found.values()) == ["yes", True, "12:30", None, 1000, 16, "5", 1000.0, 15]
    assert found["b"] is True
    text = "config:\n  region: r\n  a: &base {x: 1, y: 2}\n  b: {<<: *base, y: 3}\n  c: *base\n"
    config = settings(tmp_path, text).config
    assert [json.loads(config[f"proj:{key}"]) for key in "bc"] == [{"x": 1, "y": 3}, {"x": 1, "y": 2}]
    with pytest.raises(ProjectError, match="an alias is inside its own anchor"):
        settings(tmp_path, "config: {a: &a [1, *a]}\n")


def test_encrypted_values_are_placeholders_and_secrets_are_encrypted(tmp_path):
    text = "config:\n  region: {secure: v1:abc}\n  groups: {deep: [{secure: v1:def}]}\n  plain: x\n"
    found = settings(tmp_path, text + "  count: {secure: v1:a}\n  zones: [a, {secure: v1:b}]\n")
    wanted = {"region": "[secret]", "count": "[secret]", "groups": '{"deep":["[secret]"]}', "zones": '["a","[secret]"]'}
    assert {key: found.config[f"proj:{key}"] for key in wanted} == wanted
    assert found.secret_keys == {f"proj:{key}" for key in wanted}
    project = "name: proj\nruntime: python\nconfig:\n  token: {type: string, secret: true}\n"
    assert refused(tmp_path, "config: {token: clear}", project) == {
        "token": "it is declared secret, but set in plain text"
    }
    assert settings(tmp_path, "config: {token: {secure: v1:x}}", project).secret_keys == {"proj:token"}


def test_every_wrong_type_and_missing_key_is_reported_at_once(tmp_path):
    text = "config:\n  count: many\n  production: 'yes'\n  zones: [1]\n  groups: null\n"
    assert refused(tmp_path, text) == {
        "count": 'it must be integer, not "many"',
        "groups": "it is null, but Pulumi expects type object",
        "production": 'it must be boolean, not "yes"',
        "region": "it is required, and not set in Pulumi.dev.yaml",
        "zones": "it must be array<string>, not [1]",
    }


@pytest.mark.parametrize("environment", ["[prod]", "{imports: [prod], values: {pulumiConfig: {a: b}}}"])
def test_esc_environment_is_warned_of_and_not_read(tmp_path, environment):
    found = settings(tmp_path, f"environment: {environment}\nconfig: {{region: r}}\n")
    assert found.config["proj:count"] == "3"
    assert "Pulumi.dev.yaml: 'environment'" in "".join(found.warnings)
    assert settings(tmp_path, "environment: null\nconfig: {region: r}\n").warnings == ()
    assert "if an ESC environment sets it" in refused(tmp_path, f"environment: {environment}\n")["region"]


def test_an_unknown_stack_lists_those_there_are_with_the_nearest(tmp_path):
    with pytest.raises(ProjectError, match=r"no Pulumi\.yaml in"):
        load_project(tmp_path)
    project = write(tmp_path, dev="", prod="")
    assert project.stacks == ("dev", "prod")
    with pytest.raises(ProjectError, match=r"no stack 'prdo'.*there are dev, prod; did you mean 'prod'\?"):
        project.stack("prdo")
    with pytest.raises(ProjectError, match=r"no stack '\.\./x'"):
        project.stack("../x")


def test_other_file_extensions_and_program_folders_are_found(tmp_path):
    (tmp_path / "app").mkdir()
    (tmp_path / "app" / "__main__.py").write_text("")
    (tmp_path / "stacks").mkdir()
    (tmp_path / "stacks" / "Pulumi.dev.yml").write_text("config: {a: b}")
    (tmp_path / "Pulumi.json").write_text(
        '{"name": "p", "runtime": "python", "main": "app", "stackConfigDir": "stacks"}'
    )
    project = load_project(tmp_path)
    assert project.program == tmp_path.resolve() / "app" / "__main__.py"
    assert project.stack("dev").config == {"p:a": "b"}


@pytest.mark.parametrize(
    ("project", "fault"),
    [
        ("name: p\nruntime: nodejs\n", "runtime 'nodejs' cannot be recorded"),
        ("runtime: python\n", "'name' must be"),
        ("name: p\nruntime: python\nconfig: {a: {typo: string}}\n", "has no 'typo'"),
        ("name: p\nruntime: python\nconfig: {a: {type: number}}\n", "must be one of string, integer"),
        ("name: p\nruntime: python\nconfig: {aws:region: {type: string}}\n", "another namespace"),
        ("name: p\nruntime: python\nconfig: {a: {type: integer, default: x}}\n", "default must be of type integer"),
        ("name: p\nruntime: python\nmain: nowhere\n", "does not exist"),
        ("name: p\nname: q\nruntime: python\n", "Pulumi.yaml:2: 'name' is set twice"),
        ("name: [p\n", "not valid YAML"),
        ("- a\n", "must be a mapping"),
    ],
)
def test_unreadable_project_is_reported(tmp_path, project, fault):
    with pytest.raises(ProjectError, match=fault):
        write(tmp_path, project)


@pytest.mark.parametrize(
    ("stack", "fault"),
    [
        ("config: [a]\n", "'config' must be a mapping"),
        ("config: {a:b:c: 1}\n", "is not a config key"),
        ("config: {region: r, proj:region: s}\n", "region is set twice"),
        ("config: {region: r, region: s}\n", "'region' is set twice"),
    ],
)
def test_unreadable_stack_file_is_reported(tmp_path, stack, fault):
    with pytest.raises(ProjectError, match=fault):
        settings(tmp_path, stack)


def test_yaml_alias_bomb_is_refused_at_once(tmp_path):
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 6)]
    with pytest.raises(ProjectError, match=r"Pulumi\.dev\.yaml: with its aliases written out it has more than 100,000"):
        settings(tmp_path, "config:\n  groups:\n" + "\n".join(f"    {line}" for line in lines))
