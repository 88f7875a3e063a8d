"""The watch of a kind of objects for as long as the agent runs, through all restarts of the API server."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Mapping
from typing import Any

from trainium_eks.kube.async_client import ApiClient, ApiStatusError, UnreachableError

_LOG = logging.getLogger("pods")
_AGAIN_SECONDS = 1.0


async def rounds(
    client: ApiClient, path: str, query: Mapping[str, str], *, whole: bool = True
) -> AsyncGenerator[tuple[list[dict[str, Any]], AsyncGenerator[bytes, None]], None]:
    """Yield the existing objects and their events, again and again: a watch ends when the API server does.

    Without ``whole`` only the first object of the list is there.
    """
    while True:
        try:
            known, version = await _list(client, path, query, whole=whole)
            yield known, _events(client, path, query, version)
        except (ApiStatusError, UnreachableError) as error:
            _LOG.warning("%s: %s", path, error)
            await asyncio.sleep(_AGAIN_SECONDS)


async def _list(
    client: ApiClient, path: str, query: Mapping[str, str], *, whole: bool
) -> tuple[list[dict[str, Any]], str]:
    found: list[dict[str, Any]] = []
    after = ""
    while True:
        asked = {**query, "limit": "500" if whole else "1", **({"continue": after} if after else {})}
        page = await client.request("GET", path, query=asked)
        found += page.get("items") or []
        after = page["metadata"].get("continue") or ""
        if not after or not whole:
            return found, page["metadata"]["resourceVersion"]


async def _events(client: ApiClient, path: str, query: Mapping[str, str], version: str) -> AsyncGenerator[bytes, None]:
    asked = {**query, "resourceVersion": version}
    try:
        async for line in client.watch(path, asked):
            if line.startswith(b'{"type":"ERROR"'):
                return  # too old: from the beginning
            yield line
    except (ApiStatusError, UnreachableError) as error:
        _LOG.info("watch of %s: %s", path, error)
        await asyncio.sleep(_AGAIN_SECONDS)
