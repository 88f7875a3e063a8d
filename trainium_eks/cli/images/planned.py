"""An image before it is built."""

from dataclasses import dataclass

from trainium_eks.aws.ecr import Repository
from trainium_eks.jobs.images.images import Context, ImageRequest


@dataclass(frozen=True)
class Planned:
    """An image that can be built."""

    request: ImageRequest
    made_of: Context
    repository: Repository
    tag: str

    @property
    def reference(self) -> str:
        """Repository and tag."""
        return f"{self.repository.url}:{self.tag}"
