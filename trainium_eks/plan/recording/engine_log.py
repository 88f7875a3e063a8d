"""The engine's other service: the log of a program."""

from google.protobuf import empty_pb2  # type: ignore[import-untyped]
from pulumi.runtime.proto import engine_pb2


class Engine:
    """Collector of the program's warnings and errors."""

    def __init__(self) -> None:
        self.messages: list[str] = []

    def Log(self, request: engine_pb2.LogRequest) -> empty_pb2.Empty:  # noqa: N802 (name of the RPC)
        """Keep a warning or an error of ``pulumi.log`` and ignore other messages."""
        if request.severity == engine_pb2.WARNING:
            self.messages.append(request.message)
        elif request.severity == engine_pb2.ERROR:
            self.messages.append(f"error: {request.message}")
        return empty_pb2.Empty()

    def RequirePulumiVersion(  # noqa: N802
        self, _request: engine_pb2.RequirePulumiVersionRequest
    ) -> engine_pb2.RequirePulumiVersionResponse:
        """Accept any required version of the CLI, because no CLI takes part here."""
        return engine_pb2.RequirePulumiVersionResponse()
