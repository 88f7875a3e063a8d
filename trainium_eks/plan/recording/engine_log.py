"""The engine's other service: what a program logs."""

from google.protobuf import empty_pb2  # type: ignore[import-untyped]
from pulumi.runtime.proto import engine_pb2


class Engine:
    """Collects what the program logs as a warning or an error."""

    def __init__(self) -> None:
        self.messages: list[str] = []

    def Log(self, request: engine_pb2.LogRequest) -> empty_pb2.Empty:  # noqa: N802 (name of the RPC)
        """``pulumi.log``."""
        if request.severity == engine_pb2.WARNING:
            self.messages.append(request.message)
        elif request.severity == engine_pb2.ERROR:
            self.messages.append(f"error: {request.message}")
        return empty_pb2.Empty()

    def RequirePulumiVersion(  # noqa: N802
        self, _request: engine_pb2.RequirePulumiVersionRequest
    ) -> engine_pb2.RequirePulumiVersionResponse:
        """Whatever CLI the program needs, none takes part here."""
        return engine_pb2.RequirePulumiVersionResponse()
