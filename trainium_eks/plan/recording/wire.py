"""Pulumi's wire format (protobuf structs with signatures), as plain data and back, and data without secrets."""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from google.protobuf import struct_pb2  # type: ignore[import-untyped]

from trainium_eks.plan import sdk
from trainium_eks.plan.graph import SECRET, UNKNOWN
from trainium_eks.plan.reading import texts, with_texts

# Shorter secrets ("1", "on") are words that appear everywhere; replacing them in messages would only garble those.
_SHORTEST_HIDDEN = 6


# A double holds every whole number up to here; beyond, a float that looks whole may differ from the intended number.
_LARGEST_EXACT = 2**53


@dataclass(frozen=True)
class Reference:
    """A resource as a value: an output of a component from which its user can lift attributes of the child."""

    urn: str
    id: str
    """Empty when it is not known yet."""


def decode(struct: struct_pb2.Struct, *, mask: bool) -> dict[str, Any]:
    """Return properties as plain data: whole numbers as int, unknowns as ``[unknown]``, references as ids, and with
    ``mask`` every secret as ``[secret]``."""
    return {key: _plain(value, mask) for key, value in struct.fields.items()}


def secret_keys(struct: struct_pb2.Struct) -> frozenset[str]:
    """Return the names of the properties that hold a secret, at any depth."""
    return frozenset(key for key, value in struct.fields.items() if any(_secrets(value)))


def secret_texts(struct: struct_pb2.Struct) -> frozenset[str]:
    """Return every text that is secret or part of a secret: these must not appear anywhere else."""
    secrets = (secret for value in struct.fields.values() for secret in _secrets(value))
    return frozenset(text for secret in secrets for text in texts(_plain(secret, mask=False)) if text != UNKNOWN)


def encode(properties: Mapping[str, Any], *, secret: frozenset[str] = frozenset()) -> struct_pb2.Struct:
    """Return plain data as properties to send: ``[unknown]`` becomes Pulumi's unknown, a :class:`Reference` a
    resource, and the properties in ``secret`` are marked as secret."""
    return struct_pb2.Struct(
        fields={
            key: _signed(sdk.SECRET_SIGNATURE, value=_value(value)) if key in secret else _value(value)
            for key, value in properties.items()
        }
    )


def hidden(value: Any, secrets: Collection[str]) -> Any:
    """Return the value without any of the secret texts, also where they are part of another text."""
    longest_first = sorted((text for text in secrets if len(text) >= _SHORTEST_HIDDEN), key=len, reverse=True)
    if not longest_first:
        return value

    def hide(text: str) -> str:
        # Looking for each secret takes a tenth of the pattern's time, and nearly no text has any.
        if not any(secret in text for secret in longest_first):
            return text
        return re.sub("|".join(map(re.escape, longest_first)), SECRET, text)

    return with_texts(value, hide)


def ordered(value: Any) -> Any:
    """Return the value with objects' keys sorted: two runs must not differ by the order of registrations."""
    if isinstance(value, Mapping):
        return {key: ordered(value[key]) for key in sorted(value)}
    if isinstance(value, list):
        return [ordered(item) for item in value]
    return value


def _plain(value: struct_pb2.Value, mask: bool) -> Any:
    kind = value.WhichOneof("kind")
    if kind == "number_value":
        return _number(value.number_value)
    if kind == "string_value":
        return UNKNOWN if value.string_value == sdk.UNKNOWN else value.string_value
    if kind == "bool_value":
        return value.bool_value
    if kind == "list_value":
        return [_plain(item, mask) for item in value.list_value.values]
    if kind == "struct_value":
        return _plain_struct(value.struct_value, mask)
    return None


def _plain_struct(struct: struct_pb2.Struct, mask: bool) -> Any:
    fields = struct.fields
    signature = fields[sdk.SIGNATURE].string_value if sdk.SIGNATURE in fields else ""
    if signature == sdk.SECRET_SIGNATURE:
        return SECRET if mask else _plain(fields["value"], mask)
    if signature == sdk.RESOURCE_SIGNATURE:
        return _plain(fields["id"], mask) or UNKNOWN if "id" in fields else fields["urn"].string_value
    # Assets and archives keep their path, text or uri; the signature says nothing to a reader.
    return {key: _plain(item, mask) for key, item in fields.items() if key != sdk.SIGNATURE}


def _number(number: float) -> int | float:
    """Return a double of the wire, as int when whole. 3.0 can only have been sent as 3 or be equal to it; 2.5 stays."""
    return int(number) if number.is_integer() and abs(number) <= _LARGEST_EXACT else number


def _secrets(value: struct_pb2.Value) -> Iterator[struct_pb2.Value]:
    kind = value.WhichOneof("kind")
    if kind == "list_value":
        for item in value.list_value.values:
            yield from _secrets(item)
    elif kind == "struct_value":
        fields = value.struct_value.fields
        signature = fields[sdk.SIGNATURE].string_value if sdk.SIGNATURE in fields else ""
        if signature == sdk.SECRET_SIGNATURE:
            yield fields["value"]
        else:
            for item in fields.values():
                yield from _secrets(item)


def _signed(signature: str, **fields: struct_pb2.Value) -> struct_pb2.Value:
    marked = {sdk.SIGNATURE: struct_pb2.Value(string_value=signature), **fields}
    return struct_pb2.Value(struct_value=struct_pb2.Struct(fields=marked))


def _value(plain: Any) -> struct_pb2.Value:
    if plain is None:
        return struct_pb2.Value(null_value=struct_pb2.NULL_VALUE)
    if isinstance(plain, bool):
        return struct_pb2.Value(bool_value=plain)
    if isinstance(plain, int | float):
        return struct_pb2.Value(number_value=float(plain))
    if isinstance(plain, str):
        return struct_pb2.Value(string_value=sdk.UNKNOWN if plain == UNKNOWN else plain)
    if isinstance(plain, Reference):
        return _signed(
            sdk.RESOURCE_SIGNATURE,
            urn=struct_pb2.Value(string_value=plain.urn),
            id=struct_pb2.Value(string_value=plain.id),
        )
    if isinstance(plain, Mapping):
        fields = {key: _value(item) for key, item in plain.items()}
        return struct_pb2.Value(struct_value=struct_pb2.Struct(fields=fields))
    if isinstance(plain, Sequence):
        return struct_pb2.Value(list_value=struct_pb2.ListValue(values=[_value(item) for item in plain]))
    raise TypeError(f"{type(plain).__name__} cannot be sent to a Pulumi program")
