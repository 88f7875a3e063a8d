"""End of service without a lost request."""

import asyncio
from typing import Any


class Draining:
    """ASGI application around a server's: after ``GET /drain`` each answer ends its connection.

    Kubernetes asks for it before SIGTERM (``preStop``), and waits for the answer. A client that keeps its connection
    could otherwise send a request while the server closes the connection.
    """

    def __init__(self, app: Any, seconds: float) -> None:
        self._app = app
        self._seconds = seconds
        self._is_leaving = False

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Answer a request; ``/drain`` after the time in which all nodes learn that the pod is leaving."""

        async def send_last(message: dict[str, Any]) -> None:
            if self._is_leaving and message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", ()), (b"connection", b"close")]
            await send(message)

        if scope["type"] == "http" and scope["path"] == "/drain":
            self._is_leaving = True
            await asyncio.sleep(self._seconds)
            await send_last({"type": "http.response.start", "status": 200})
            await send({"type": "http.response.body"})
        else:
            await self._app(scope, receive, send_last)
