"""Reader of a cluster through the Kubernetes API."""

from collections.abc import Sequence

from trainium_eks.kube.api import Api
from trainium_eks.kube.cluster import Object, ReadError
from trainium_eks.kube.errors import ClusterError
from trainium_eks.kube.types import ApiError, NoSuchKindError

VERSION_SECONDS = 20
"""Time that the first answer may take; a server that is there gives it in milliseconds."""


class ApiReader:
    """A :class:`trainium_eks.kube.cluster.Reader` over a connection."""

    def __init__(self, api: Api, namespace: str = "") -> None:
        self._api = api
        self._namespace = namespace
        """The only namespace that is read, of kinds that have one; empty for all."""

    def version(self) -> str:
        """Return the server's version."""
        try:
            return str(self._api.request("GET", "/version", timeout_seconds=VERSION_SECONDS)["gitVersion"])
        except ApiError as error:
            if error.status in (401, 403):
                raise ReadError(
                    f"the API server {self._api.server} refuses this machine's credentials: {error}\n"
                    "  who you are: aws sts get-caller-identity\n"
                    "  who has access: aws eks list-access-entries --cluster-name ..."
                ) from error
            raise ReadError(f"the API server {self._api.server} gives no version: {error}") from error
        except ClusterError as error:
            raise ReadError(str(error)) from error
        except KeyError:
            raise ReadError(
                f"{self._api.server} is not a Kubernetes API server: its /version names no version"
            ) from None

    def list(self, api_version: str, kind: str) -> Sequence[Object] | None:
        """Return all objects of a kind."""
        try:
            return self._api.list(api_version, kind, namespace=self._namespace)
        except NoSuchKindError:
            return None
        except ClusterError as error:
            raise ReadError(str(error)) from error
