"""The transform that takes images from the cache changes the images of a whole environment, and nothing else."""

import json
from dataclasses import replace

import full_environments
import pytest
from golden import ROOT

from trainium_eks.plan.reading import leaves
from trainium_eks.plan.recording.process import record


def recorded(cache, dry_run):
    given = {**full_environments.given("prod"), "trainium-eks:imageCache": cache}
    texts = {key: each if isinstance(each, str) else json.dumps(each) for key, each in given.items()}
    return record(ROOT, "prod", adjust=lambda to: replace(to, config={**to.config, **texts}), dry_run=dry_run)


@pytest.mark.slow
@pytest.mark.parametrize("dry_run", [True, False])
def test_cache_transform_changes_only_images(dry_run):
    direct = {each.urn: each for each in recorded(None, dry_run).resources}
    cached = [each for each in recorded({}, dry_run).resources if each.urn in direct]
    assert len(cached) == len(direct)
    other = {
        value
        for each in cached
        for path, value in leaves(each.inputs)
        if value != dict(leaves(direct[each.urn].inputs)).get(path)
    }
    assert len(other) > 5
    assert [each for each in other if not str(each).startswith("123456789012.dkr.ecr.us-west-2.amazonaws.com/")] == []
    for each in cached:
        before = direct[each.urn]
        assert (each.options, each.property_dependencies) == (before.options, before.property_dependencies)
        assert {path for path, _ in leaves(before.inputs)} <= {path for path, _ in leaves(each.inputs)}
