import pytest

from components._args import ArgumentError
from components.encryption_key import EncryptionKey


def test_description_longer_than_kms_takes_is_refused(record):
    with pytest.raises(ArgumentError, match="8192"):
        record(lambda: EncryptionKey("key", {"region": "us-west-2", "description": "x" * 8193}))
