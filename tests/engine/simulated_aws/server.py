"""Server of the simulated providers on loopback."""

import importlib
import importlib.metadata
from collections.abc import Iterator, Mapping
from concurrent import futures
from contextlib import ExitStack, contextmanager
from pathlib import Path

import grpc  # type: ignore[import-untyped]
from engine.simulated_aws.cloud import Cloud
from engine.simulated_aws.inventory import Inventory
from engine.simulated_aws.provider import Provider
from pulumi.runtime.proto import provider_pb2_grpc

from trainium_eks.plan import sdk

PACKAGES = ("aws", "eks", "kubernetes")
"""Packages that are served, each on a separate port."""

# Each operation of an engine holds a thread, a component that is being built one more.
_THREADS = 64

_GRACE_SECONDS = 2.0


@contextmanager
def serving(state: Path, *, failing: str = "", forgetful: bool = False) -> Iterator[Mapping[str, str]]:
    """Serve the simulated clouds while the context lasts, and yield the environment by which a Pulumi CLI finds them.

    The inventory's file is made when it is missing; later contexts continue from it. ``failing`` and ``forgetful`` are
    those of :class:`~engine.simulated_aws.cloud.Cloud`.
    """
    # Their import tells the SDK which types there are, and so which inputs are taken.
    for package in PACKAGES:
        importlib.import_module(f"pulumi_{package}")
    with ExitStack() as stack:
        inventory = stack.enter_context(Inventory(state))
        cloud = Cloud(inventory, failing=failing, forgetful=forgetful)
        ports = {package: stack.enter_context(_served(package, cloud)) for package in PACKAGES}
        yield {"PULUMI_DEBUG_PROVIDERS": ",".join(f"{package}:{port}" for package, port in ports.items())}


@contextmanager
def _served(package: str, cloud: Cloud) -> Iterator[int]:
    version = importlib.metadata.version(f"pulumi-{package}")
    executor = futures.ThreadPoolExecutor(_THREADS, thread_name_prefix=package)
    server = grpc.server(executor, options=sdk.CHANNEL_OPTIONS)
    provider_pb2_grpc.add_ResourceProviderServicer_to_server(Provider(package, version, cloud), server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield port
    finally:
        server.stop(_GRACE_SECONDS).wait()
        executor.shutdown(wait=False)
