"""Pulumi's inputs of a release, as Helm takes them."""

from typing import Any

import pulumi_kubernetes as k8s
import pytest

from trainium_eks.kube.errors import ClusterError
from trainium_eks.local.releases.release_inputs import FLAGS, wanted

MINIMAL: dict[str, Any] = {"name": "r", "namespace": "n", "chart": "./c"}


def read(**inputs: Any) -> Any:
    return wanted({**MINIMAL, **inputs}, timeout_seconds=600)


def test_what_the_components_ask_for_is_honoured_and_helm_waits_no_longer_than_it_may() -> None:
    told = {"compat": "true", "atomic": True, "cleanupOnFail": True, "timeout": 120.0, "maxHistory": 5.0}
    release = read(**told, version="1.0.0", repositoryOpts={"repo": "https://r"}, values={"a": 1})
    assert set(release.flags) == {"--atomic", "--cleanup-on-fail", "--wait", "--history-max=5"}
    assert (release.timeout_seconds, release.version, release.repository) == (120, "1.0.0", {"repo": "https://r"})
    assert release.values == {"a": 1}
    assert "--wait" not in read(skipAwait=True).flags
    assert read(timeout=6000).timeout_seconds == 600


def test_each_flag_is_one_of_pulumis_inputs_and_set_only_where_it_is_asked_for() -> None:
    known = set(k8s.helm.v3.ReleaseArgs.__init__.__annotations__)
    for key, flag in FLAGS.items():
        assert "".join(f"_{c.lower()}" if c.isupper() else c for c in key) in known
        assert [flag in read(**{key: asked}).flags for asked in (True, False)] == [True, False]


def test_inputs_that_are_not_honoured_or_missing_are_named() -> None:
    unhonoured = {"verify": True, "lint": True, "repositoryOpts": {"repo": "https://r", "proxy": "p"}}
    with pytest.raises(ClusterError, match=r"n/r: .* does not support lint, verify, repositoryOpts\.proxy"):
        read(**unhonoured)
    for key in ("name", "chart"):
        with pytest.raises(ClusterError, match=f"has no {key}"):
            read(**{key: ""})


def test_values_are_as_pulumi_hands_them_over() -> None:
    values = {"port": 8080.0, "half": 0.5, "gone": None, "list": [1.0, {"x": None, "y": 2.0}], "on": True}
    after = read(values=values).values
    assert after == {"port": 8080, "half": 0.5, "list": [1, {"y": 2}], "on": True}
    assert isinstance(after["port"], int)
    assert after["on"] is True
    assert read(values=values, allowNullValues=True).values["gone"] is None
