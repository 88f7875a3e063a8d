"""Helpers shared by all components: reading their args, and one error that lists every problem."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, TypeVar, cast

import pulumi
import pydantic

from trainium_eks.model.catalogue.instances import CATALOGUE, Catalogue
from trainium_eks.model.config.waivers import reasons
from trainium_eks.model.validation import formats, limits
from trainium_eks.model.validation.config_model import (
    ConfigModel,
    ConfigModelError,
    LooseStr,
    OutputText,
    is_validated,
    mark_validated,
    read,
)
from trainium_eks.model.validation.limits import OUTPUT_FAULT
from trainium_eks.model.validation.problems import Problem, Severity, config_path, describe, refused, snake

from . import _ids

A = TypeVar("A", bound=ConfigModel)

Text = str | pulumi.Output[str]
"""A string that may be known only after another resource exists. Never compare, hash or truth-test it."""

Tags = dict[str, LooseStr | pulumi.Output[str]]
"""AWS tags: keys are plain, values may be known later."""


LustreNetwork = Literal["none", "tcp", "efa"]
"""Lustre on nodes: ``none`` without the client, ``tcp`` with it, ``efa`` also over EFA interfaces of types that can."""


def text(value: OutputText) -> Text:
    """Return a value of the model, which does not import Pulumi, as an input of a resource."""
    return value if isinstance(value, str) else cast(pulumi.Output[str], value)


class AwsCallerArgs(ConfigModel):
    """The wiring of a component that runs in the cluster and calls AWS, under roles that it makes."""

    region: formats.Region
    """AWS region."""
    cluster_name: Text
    """EKS cluster."""
    permissions_boundary: _ids.PolicyArn | None = None
    """ARN of the IAM policy that bounds the roles made here; None for no bound."""
    tags: Tags = pydantic.Field(default_factory=dict)
    """Tags of its AWS resources, in addition to the provider's."""


class AutoscalerArgs(AwsCallerArgs):
    """The wiring of an autoscaler."""

    node_selector: dict[str, LooseStr] = pydantic.Field(default_factory=dict)
    """Labels of the nodes that it runs on itself; nodes that it takes away must not be among them."""
    catalogue: Catalogue = pydantic.Field(default_factory=lambda: CATALOGUE)
    """Facts about the instance types."""


class ArgumentError(pulumi.RunError, ValueError):
    """Bad input. The message lists every problem; Pulumi prints it without a traceback (as it does for every
    RunError)."""

    def __init__(self, subject: str, problems: Iterable[Problem], spell: Callable[[str], str] = str) -> None:
        self.subject = subject
        self.problems = tuple(problems)
        self.component = "" if spell is config_path else subject
        """The component with the wrong arguments; empty when it is the stack's config. `trn plan` reads it."""
        count = len(self.problems)
        title = f"{subject}: {count} problem{'' if count == 1 else 's'}, nothing was built"
        super().__init__(f"{title}\n{describe(self.problems, spell)}")


def validate_args(
    spec: type[A],
    args: A | Mapping[str, Any],
    validate: Callable[[A], Iterable[Problem]],
    subject: str,
    waivers: Mapping[str, str] | None = None,
    spell: Callable[[str], str] = str,
    naming: Callable[[A], Iterable[Problem]] = lambda _: (),
    opts: pulumi.ResourceOptions | None = None,
) -> A:
    """Return the args as an instance of ``spec``, if ``validate`` finds no error; warnings go to Pulumi's log.

    Args that a stack made from its validated config are not validated again; problems of the component's name, which is
    not an argument, are always looked for by ``naming``. ``subject`` is how the error names the component (``Network
    net``); ``waivers`` (rule id to reason) let problems pass that may be acknowledged; ``spell`` gives paths in
    Python's names or in the config file's spelling (``config_path``). ArgumentError has every problem, before anything
    is registered. ``opts`` are the component's: where they lead to an AWS provider, its region must be the args'.
    """
    if in_name := limits.outputs_as_text(subject):
        raise ArgumentError(subject.partition(" ")[0], [replace(each, path="name") for each in in_name], spell)
    try:
        read_args = read(spec, args)
    except ConfigModelError as error:
        beside = _problems_beside(
            spec, args, error.problems, lambda known: (*naming(known), *_limit_problems(known), *validate(known))
        )
        every = [*error.problems, *refused(_once(beside), waivers or {})]
        raise ArgumentError(subject, every, spell) from None
    own = () if is_validated(read_args) else _once((*_limit_problems(read_args), *validate(read_args)))
    found = (*naming(read_args), *own)
    stopping = refused(found, waivers or {})
    if stopping:
        raise ArgumentError(subject, stopping, spell)
    _warn([problem for problem in found if problem.severity is Severity.WARN], subject, spell)
    _check_region(read_args, opts, subject)
    return mark_validated(read_args)


def _once(problems: Iterable[Problem]) -> tuple[Problem, ...]:
    """Return each problem once: the validator of a whole stack finds the limits of its fields, too, and a text that was
    an Output has no form."""
    once = {(each.path, each.reason): each for each in problems}
    return tuple(
        each for (path, reason), each in once.items() if reason == OUTPUT_FAULT or (path, OUTPUT_FAULT) not in once
    )


def _problems_beside(
    spec: type[A], args: A | Mapping[str, Any], faults: Iterable[Problem], validate: Callable[[A], Iterable[Problem]]
) -> list[Problem]:
    """Return the problems of the well-formed fields, when other fields are malformed.

    A malformed field is validated as if it had not been given, and problems that mention it are left out. No problem is
    returned where ``validate`` reads a required field that is malformed.
    """
    broken = {_field(fault) for fault in faults}
    if not isinstance(args, Mapping) or not broken <= set(spec.model_fields) | set(map(snake, args)):
        return []
    needed = {name: (Any, None) for name, field in spec.model_fields.items() if name in broken and field.is_required()}
    relaxed = pydantic.create_model(spec.__name__, __base__=spec, **cast(dict[str, Any], needed))
    try:
        sound = relaxed.model_validate({name: value for name, value in args.items() if snake(name) not in broken})
        for name in needed:
            del sound.__dict__[name]
        found = list(validate(sound))
    except (pydantic.ValidationError, AttributeError):
        return []
    return [each for each in found if _field(each) not in broken and not any(name in each.reason for name in broken)]


def _field(problem: Problem) -> str:
    return re.split(r"[.\[]", problem.path, maxsplit=1)[0]


def _limit_problems(args: ConfigModel) -> Iterable[Problem]:
    """Return the values outside of their declared limits, and the ARNs of another partition or region."""
    places = list(limits.walk(args))
    region = getattr(args, "region", None)
    of_region = formats.arns(places, region) if isinstance(region, str) else ()
    return (*limits.outputs_as_text(args), *limits.of_places(places), *of_region)


def _check_region(args: ConfigModel, opts: pulumi.ResourceOptions | None, subject: str) -> None:
    """Raise when the args' region is not that of the AWS provider that the component's children get (pulumi-awsx#1928:
    a component's ``region`` moves none of its resources). A provider's region is an Output: when it is known, the
    program fails."""
    wanted = getattr(args, "region", None)
    if not isinstance(wanted, str):
        return

    def compare(region: object) -> None:
        if isinstance(region, str) and region and region != wanted:
            raise pulumi.RunError(
                f"{subject}: `region` is {wanted}, and its AWS provider makes resources in {region}: give both the same"
            )

    provider = _aws_provider(opts)
    if provider is None:
        compare(pulumi.Config("aws").get("region"))
    elif isinstance(region := getattr(provider, "region", None), pulumi.Output):
        region.apply(compare)


def _aws_provider(opts: pulumi.ResourceOptions | None) -> pulumi.ProviderResource | None:
    """Return the AWS provider that options or the parent's give to a component's children; None for the default one."""
    if opts is None:
        return None
    given = opts.providers or ()
    listed = given.values() if isinstance(given, Mapping) else given if isinstance(given, Sequence) else [given]
    above = opts.parent._providers.get("aws") if opts.parent is not None else None
    return next((each for each in (opts.provider, *listed) if each is not None and each.package == "aws"), above)


def _warn(problems: list[Problem], subject: str, spell: Callable[[str], str]) -> None:
    """Log each warning once in a program: the stack validates its whole config, then each component its section."""
    root = pulumi.runtime.get_root_resource()
    said: set[str] = vars(root).setdefault("_trainium_eks_warnings", set()) if root is not None else set()
    new = [problem for problem in problems if f"{problem.reason} {problem.value}" not in said]
    for problem in new:
        # Pulumi's own log and the plan both say that it is a warning.
        pulumi.log.warn(f"{subject}: {describe([problem], spell).removeprefix('- warning: ')}")
        said.add(f"{problem.reason} {problem.value}")


def waivers_of(args: object) -> dict[str, str]:
    """Return the waivers in args given as a model or a mapping; ``read`` refuses waivers of another type."""
    return reasons(args.get("waivers") if isinstance(args, Mapping) else getattr(args, "waivers", None))


def computed(value: pulumi.Output[str], mocked: str = "mocked") -> pulumi.Output[str]:
    """Return a property that the provider computes; ``mocked`` under Pulumi's mocks, which in their usual form answer
    with a resource's inputs alone."""
    return value.apply(lambda told: mocked if told is None else told)


def sources(value: Text) -> list[pulumi.Input[pulumi.Resource]]:
    """Return the resources that a value comes from, for ``depends_on``; none for a plain value.

    The value is no input of the dependent resource, so its change does not replace the resource that waits.
    """
    return [cast(pulumi.Output[pulumi.Resource], pulumi.Output.from_input(value).apply(lambda _: None))]


def child_of(component: pulumi.Resource, *after: pulumi.Resource) -> pulumi.ResourceOptions:
    """Return the options of a resource of a component, which waits for other resources."""
    return pulumi.ResourceOptions(parent=component, depends_on=list(after))


def outputs(component: pulumi.ComponentResource, declared_by: type) -> dict[str, Any]:
    """Return the outputs that a component's class declares."""
    return {name: getattr(component, name) for name in declared_by.__annotations__}
