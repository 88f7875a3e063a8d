"""SageMaker training jobs and endpoints of a stack, beside its cluster."""

from trainium_eks.model.validation.config_model import mark_validated

from ._args import merge_args
from ._foundation import Foundation
from ._stack_storage import SharedStorage
from .image_repository import ImageRepository
from .sagemaker_endpoint import SageMakerEndpoint, SageMakerEndpointArgs
from .sagemaker_training import SageMakerTraining, SageMakerTrainingArgs


def make_sagemaker(
    base: Foundation, shared: SharedStorage | None, repository: ImageRepository | None
) -> SageMakerTraining | None:
    """Make role, security group and bucket of SageMaker training jobs, and the endpoints, if the config has them."""
    config, section = base.config, base.config.sage_maker
    if section is None:
        return None
    wiring = {
        "region": config.region,
        "vpc_id": base.network.vpc_id,
        "subnet_ids": tuple(base.network.private_subnet_id(zone) for zone in base.network.zone_ids),
        "kms_key_arn": base.key.key_arn,
        "permissions_boundary": config.permissions_boundary,
        "tags": base.tags,
    }
    args = merge_args(
        SageMakerTrainingArgs,
        section,
        repository_arn=repository.repository_arn if repository else None,
        file_system_security_group_id=shared.file_system.security_group_id if shared else None,
        protect=config.production,
        **wiring,
    )
    if section.bucket is None and shared is not None and shared.exports_to_s3:
        bucket, key = shared.bucket()
        args = args.model_copy(update={"bucket": bucket, "bucket_key_arn": key})
    made = SageMakerTraining(f"{base.name}-sagemaker", mark_validated(args), base.child())
    for each in config.sage_maker_endpoints:
        endpoint = merge_args(
            SageMakerEndpointArgs,
            each,
            bucket=made.bucket_name,
            bucket_key_arn=args.bucket_key_arn,
            prefix=args.prefix,
            catalogue=base.catalogue,
            **wiring,
        )
        SageMakerEndpoint(f"{base.name}-{each.name}", mark_validated(endpoint), base.child())
    return made
