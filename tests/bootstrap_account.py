"""An account of moto's for docs/bootstrap.yaml, with what moto 5.2 lacks of CloudFormation."""

import json
from contextlib import contextmanager
from functools import partial

import boto3
import pytest
from moto import mock_aws
from moto.cloudformation import parsing
from moto.cloudformation.models import ChangeSet
from moto.iam.models import ManagedPolicy, iam_backends
from moto.kms.models import KmsBackend

STACK, ACCOUNT = "training-bootstrap", "123456789012"
client = partial(boto3.client, region_name="us-west-2")


def _without_novalue(value, resources, clean=parsing.clean_json):
    cleaned = clean(value, resources)
    return [each for each in cleaned if each is not None] if isinstance(cleaned, list) else cleaned


def _key(backend, policy, *arguments, tags=None, create=KmsBackend.create_key, **more):
    """moto expects policy and tags as KMS' own API has them."""
    policy = json.dumps(policy) if isinstance(policy, dict) else policy
    tags = [{f"Tag{name.removeprefix('Tag')}": text for name, text in each.items()} for each in tags or ()]
    return create(backend, policy, *arguments, tags=tags, **more)


def _updated_policy(original_resource, cloudformation_json, account_id, **_):
    document = json.dumps(cloudformation_json["Properties"]["PolicyDocument"])
    iam_backends[account_id]["aws"].create_policy_version(original_resource.arn, document, "true")
    return original_resource


def _deleted_policy(policy, account_id, _):
    for role in iam_backends[account_id]["aws"].get_roles():
        if policy.arn in role.managed_policies:
            policy.detach_from(role)
    iam_backends[account_id]["aws"].delete_policy(policy.arn)


@contextmanager
def mended_moto():
    with pytest.MonkeyPatch.context() as patch, mock_aws():
        patch.setattr(parsing, "clean_json", _without_novalue)
        # Otherwise a stack has no outputs after its change set.
        patch.setattr(ChangeSet, "apply", lambda it: it.stack.update(it.template, parameters=it.parameters))
        patch.setattr(KmsBackend, "create_key", _key)
        patch.setattr(ManagedPolicy, "update_from_cloudformation_json", _updated_policy)
        patch.setattr(ManagedPolicy, "delete", _deleted_policy, raising=False)
        patch.setenv("AWS_ACCESS_KEY_ID", "testing")
        patch.setenv("AWS_SECRET_ACCESS_KEY", "testing")
        patch.setattr(boto3, "DEFAULT_SESSION", None)  # it would keep these credentials for later tests
        yield
