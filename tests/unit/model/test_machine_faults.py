"""Faults of this machine are not told as a server's."""

import errno
import os
import tempfile

import pytest
import urllib3
from botocore.exceptions import HTTPClientError

from trainium_eks.aws.sessions import why_not_answered
from trainium_eks.client.failure import failure_of
from trainium_eks.diagnose.findings import unreachable
from trainium_eks.kube.api import Api
from trainium_eks.kube.errors import ClusterError
from trainium_eks.model.machine_faults import machine_fault


def fault(code, *place):
    return OSError(code, os.strerror(code), *place)


def refused(cause):
    try:
        raise urllib3.exceptions.NewConnectionError(None, "cannot connect") from cause
    except urllib3.exceptions.NewConnectionError as error:
        return error


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (fault(errno.ENOSPC, "/tmp/x"), "no space is left for /tmp/x: free some, or set TMPDIR"),
        (fault(errno.EDQUOT), "no space is left for /t/mp"),
        (fault(errno.EROFS, "/root/.kube"), "this user may not read or write /root/.kube (Read-only"),
        (refused(fault(errno.EMFILE)), "a process may open no more files: ulimit -n"),
        (HTTPClientError(error=refused(fault(errno.ENFILE))), "a process may open no more files"),
        (FileNotFoundError(errno.ENOENT, "No usable temporary directory found in ['/t']"), "set TMPDIR to one"),
        (refused(fault(errno.EACCES)), ""),
        (refused(fault(errno.ECONNREFUSED)), ""),
        (FileNotFoundError(errno.ENOENT, "No such file", "/x"), ""),
        (ValueError("x"), ""),
    ],
)
def test_local_error_is_described_by_its_errno(monkeypatch, error, words):
    monkeypatch.setenv("TMPDIR", "/t/mp")
    said = machine_fault(error)
    assert words in said
    assert bool(said) is bool(words)
    assert (why_not_answered(error) == said) is bool(words)
    if isinstance(error, OSError):
        assert (failure_of(error) is not None) is bool(words)


def test_full_temporary_directory_is_not_reported_as_a_cluster_outage(monkeypatch, tmp_path):
    file = tmp_path / "kubeconfig"
    file.write_text(
        '{"apiVersion": "v1", "kind": "Config", "current-context": "c", "users": [{"name": "u", "user": {}}],'
        ' "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}], "clusters": [{"name": "k", "cluster":'
        ' {"server": "https://127.0.0.1:1", "certificate-authority-data": "eA=="}}]}'
    )

    def full(*_, **__):
        raise fault(errno.ENOSPC, "/tmp/k")

    monkeypatch.setattr(tempfile, "mkstemp", full)
    with pytest.raises(ClusterError, match=r"a fault of this machine.* no space is left for /tmp/k") as caught:
        Api.connect(file)
    assert unreachable(caught.value, "dev").fault == "machine-fault"
