"""Assumed answers of a cloud or of another stack for a plan: ``answers.<stack>.yaml``, or the file of ``--stub``."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from trainium_eks.model.validation.parsing import parse_json, parse_yaml
from trainium_eks.plan.graph import UNKNOWN

_SECTIONS = ("lookups", "stackReferences")


class AssumptionsError(Exception):
    """A file that cannot be used. The message names the wrong place and the required form."""


@dataclass(frozen=True)
class Assumptions:
    """Answers for a program's look-ups, given by its user. Other look-ups get a placeholder if the table has one."""

    lookups: Mapping[str, Any] = field(default_factory=dict)
    """Token of a look-up, method or resource type that is read to its answer: an object, or a list of
    ``{args: {...}, answer: {...}}``, where the first case counts with ``args`` that all equal the program's
    arguments."""
    stack_references: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Name of another stack (``organization/project/stack``) to its outputs."""

    def of_lookup(self, token: str, arguments: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """Return the answer to one look-up; None without one."""
        given = self.lookups.get(token)
        if not isinstance(given, list):
            return given
        for case in given:
            if all(arguments.get(name) == value for name, value in (case.get("args") or {}).items()):
                answer: Mapping[str, Any] = case["answer"]
                return answer
        return None


def of_stack(directory: Path, stack: str) -> Assumptions | None:
    """Return the answers in the project's own file for a stack, ``answers.<stack>.yaml``; None without one."""
    path = directory / f"answers.{stack}.yaml"
    return load(path) if path.is_file() else None


def load(path: Path) -> Assumptions:
    """Read a file of this form::

        lookups:
          aws:ec2/getVpc:getVpc: {id: vpc-0123, cidrBlock: 10.0.0.0/16}
          aws:ec2/getSubnet:getSubnet:
            - {args: {id: subnet-1}, answer: {availabilityZoneId: usw2-az4}}
        stackReferences:
          acme/network/prod: {vpcId: vpc-0123}
          acme/clusters/prod: clusters.json  # a file beside this one, by `pulumi stack output --json`

    Names of fields are the provider's, in camelCase.
    """
    try:
        data = parse_yaml(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise AssumptionsError(f"{path}: {error.strerror or error}") from None
    except ValueError as error:
        raise AssumptionsError(f"{path} is not valid YAML: {' '.join(str(error).split())}") from None
    data = {} if data is None else data
    if not isinstance(data, dict):
        raise AssumptionsError(f"{path} must be a mapping with {' and '.join(_SECTIONS)}")
    unknown = [name for name in data if name not in _SECTIONS]
    if unknown:
        raise AssumptionsError(f"{path}: there is no {unknown[0]!r}; it takes {' and '.join(_SECTIONS)}")
    sections = [data.get(name) or {} for name in _SECTIONS]
    for name, section in zip(_SECTIONS, sections, strict=True):
        if not isinstance(section, dict):
            raise AssumptionsError(f"{path}: {name} must be a mapping")
    lookups, references = sections
    for token, answer in lookups.items():
        _check_answer(f"{path}: lookups.{token}", answer)
    return Assumptions(lookups, {stack: _outputs(path, stack, given) for stack, given in references.items()})


def _outputs(path: Path, stack: str, given: object) -> Mapping[str, Any]:
    """Return the outputs of another stack, given in place or by the name of a JSON file."""
    where, outputs = f"{path}: stackReferences.{stack}", given
    if isinstance(given, str):
        write = f"write it with: pulumi stack output --json --stack {stack} > {path.parent / given}"
        try:
            outputs = parse_json((path.parent / given).read_text(encoding="utf-8-sig"))
        except OSError as error:
            raise AssumptionsError(f"{where}: {given}: {error.strerror or error}; {write}") from None
        except ValueError as error:
            raise AssumptionsError(f"{where}: {given} is not valid JSON: {error}; {write}") from None
    if not isinstance(outputs, dict):
        raise AssumptionsError(f"{where} must be a mapping of outputs, or the name of a JSON file, got {outputs!r}")
    if UNKNOWN in json.dumps(outputs, default=str):
        raise AssumptionsError(f"{where} has values that a plan does not know ({UNKNOWN}); give known ones")
    return outputs


def _check_answer(where: str, answer: object) -> None:
    cases = answer if isinstance(answer, list) else [{"answer": answer}]
    for case in cases:
        if not isinstance(case, dict) or set(case) - {"args", "answer"} or not isinstance(case.get("answer"), dict):
            raise AssumptionsError(
                f"{where} must be an object, or a list of {{args: {{...}}, answer: {{...}}}}, got {case!r}"
            )
