"""The programs that the local cloud runs: found, downloaded or built.

For each tool, in this order: the per-user cache (``<cache>/<bundle>/<versions and platform>/``); the project's own
download, with its published checksum, or its program out of the project's image; a build from Go modules with their
checksums in ``go.sum``. Programs of every local cloud also come, before all of that, from PATH or the directory in
``KUBEBUILDER_ASSETS``, if their version fits (:attr:`.Tool.fits`).

A local cloud does without Volcano and Kubeflow's Training Operator where they are not available. Prometheus and
promtool are for the tests of monitoring.

Environment:
    ``TRN_OFFLINE``: anything but ``0`` and nothing: no downloads, and Go uses only its caches.
    ``TRN_VOLCANO``: ``off``: Volcano's programs are not looked for, and its pods are simulated like all others.
    ``TRN_TRAINING_OPERATOR``: ``off``: Kubeflow's Training Operator is not looked for.
    ``TRN_CACHE``: another cache directory; see :func:`trainium_eks.fetched.cache`.
    Go's own variables (``GOPROXY``, ``GOFLAGS``, ``GOCACHE``, ``GOTOOLCHAIN``, ...) and ``HTTPS_PROXY`` as usual.

``python -m trainium_eks.local.toolchain`` provides everything and shows where it comes from: for images of CI.
"""

from trainium_eks.local.toolchain.finding import find
from trainium_eks.local.toolchain.supply import PATIENCE_SECONDS, UnavailableError, is_off, provide
from trainium_eks.local.toolchain.tools import PROMETHEUS, TRAINING_OPERATOR, VOLCANO, Binary, Bundle, kubernetes

__all__ = [
    "PATIENCE_SECONDS",
    "PROMETHEUS",
    "TRAINING_OPERATOR",
    "VOLCANO",
    "Binary",
    "Bundle",
    "UnavailableError",
    "find",
    "is_off",
    "kubernetes",
    "provide",
]
