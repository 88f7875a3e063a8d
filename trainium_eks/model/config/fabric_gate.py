"""The fabric gate section: nodes that take no jobs before the fabric test has passed on them."""

from collections.abc import Collection

from trainium_eks.model.catalogue import training_images
from trainium_eks.model.validation.config_model import ConfigModel
from trainium_eks.model.validation.problems import Problem, Severity

LOCAL_IMAGE = "local/"
"""Begin of the name of an image of the local cloud."""


class FabricGateConfig(ConfigModel):
    """A gate before accelerator nodes: new, replaced and rebooted ones carry the taint ``trainium-eks/fabric-untested``
    until the fabric test has passed on them; nodes that fail are cordoned and named (docs/checks.md)."""

    images: dict[str, str]
    """Image of the test by target of `trn image build --for`: `{trn1: <registry>/<repository>:<tag>}`, as `trn image
    push` prints it. On the local cloud `local/torch`."""


def validate(gate: FabricGateConfig, types: Collection[str]) -> list[Problem]:
    """Return the problems of the section, with the types of the accelerator nodes. Paths are relative to it."""
    remote = {target: image for target, image in gate.images.items() if not image.startswith(LOCAL_IMAGE)}
    found = training_images.validate(remote, "images")
    for target in sorted({training_images.target_of(each) for each in types} - set(gate.images)):
        reason = f"it has no image for {target}, so the nodes of that target would never open"
        found.append(Problem("images", reason, good={**gate.images, target: "<registry>/<repository>:<tag>"}))
    if not types:
        reason = "there is no accelerator node group or pool: no node is gated"
        found.append(Problem("", reason, "add a group or remove the section", severity=Severity.WARN))
    return found
