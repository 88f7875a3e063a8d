"""The image repository section."""

from trainium_eks.model.shape import Shape, Whole


class ImageRepositoryConfig(Shape):
    """An ECR repository for training images: scanned on push, immutable tags, encrypted."""

    name: str | None = None
    """Repository name. Unset: ``<project>-<stack>/training``."""
    kept_images: Whole = 30
    """Tagged images kept; older ones expire."""
    untagged_days: Whole = 7
    """Days an untagged image is kept."""
