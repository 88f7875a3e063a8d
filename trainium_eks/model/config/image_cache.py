"""The image cache section: ECR's pull-through cache for the images of charts and pods."""

import re

from trainium_eks.model.catalogue.cached_images import UPSTREAMS
from trainium_eks.model.validation.config_model import ConfigModel
from trainium_eks.model.validation.problems import Problem

_SECRET = re.compile(r"arn:aws[\w-]*:secretsmanager:[a-z0-9-]+:\d{12}:secret:ecr-pullthroughcache/[\w/+=.@-]+")


class ImageCacheConfig(ConfigModel):
    """Images of charts and of the stack's own pods from the account's ECR, which brings each one from its registry
    once. Needs exactly one account in `allowedAccountIds`."""

    docker_hub_secret_arn: str | None = None
    """ARN of the secret with `username` and `accessToken` for Docker Hub, ``…:secret:ecr-pullthroughcache/…``, in the
    stack's account and region. Unset: ECR does not cache Docker Hub, and Volcano and Grafana come from it."""
    github_secret_arn: str | None = None
    """The same for GitHub's registry (ghcr.io)."""

    @property
    def registries(self) -> tuple[str, ...]:
        """Return the registries that the cache stands for."""
        secrets = {"docker.io": self.docker_hub_secret_arn, "ghcr.io": self.github_secret_arn}
        return tuple(each for each in UPSTREAMS if secrets.get(each, "none needed"))


def validate(cache: ImageCacheConfig, accounts: tuple[str, ...]) -> list[Problem]:
    """Return the problems of the section; paths are relative to it. ``accounts`` are the environment's."""
    found = []
    if len(accounts) != 1:
        reason = (
            f"charts need the name of the account's registry, and `allowed_account_ids` has {len(accounts)} accounts"
        )
        found.append(Problem("", reason, "name the one account there"))
    for name in ("docker_hub_secret_arn", "github_secret_arn"):
        arn = getattr(cache, name)
        if arn is not None and not _SECRET.fullmatch(arn):
            allowed = ("arn:aws:secretsmanager:<region>:<12 digits>:secret:ecr-pullthroughcache/<name>",)
            reason = "ECR takes no such secret: its name begins with ecr-pullthroughcache/"
            found.append(Problem(name, reason, "name the secret by its ARN", value=arn, allowed=allowed))
    return found
