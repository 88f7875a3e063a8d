"""Team namespaces: a room each with its roles, quota, volume, queue and S3 access."""

from trainium_eks.model.shape import Shape, Whole


class NamespaceConfig(Shape):
    """One team's namespace."""

    name: str
    """Name of the namespace."""
    queues: tuple[str, ...]
    """Queues its jobs may use; the first is the one ``trn train`` takes."""
    principals: tuple[str, ...] = ()
    """IAM role ARNs of its researchers; each gets an access entry in the namespace's Kubernetes group."""
    resource_quota: dict[str, str] = {}
    """ResourceQuota ``hard`` values (``{requests.aws.amazon.com/neuron: "64", pods: "200"}``).
    Unset: the queues' capability and 500 pods."""
    data_bucket: str | None = None
    """Name of an S3 bucket whose ``<namespace>/`` prefix its jobs may read and write, besides the stack's own."""
    training_user_id: Whole = 1000
    """UID and GID that own its directories on the file system and that its jobs run as."""
