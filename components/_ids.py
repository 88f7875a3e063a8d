"""Ids and ARNs that may be known only after another resource exists; a plain one must have AWS' form."""

import pulumi

from trainium_eks.model.validation import formats

VpcId = formats.VpcId | pulumi.Output[str]
SubnetId = formats.SubnetId | pulumi.Output[str]
SecurityGroupId = formats.SecurityGroupId | pulumi.Output[str]
FileSystemId = formats.FileSystemId | pulumi.Output[str]
KeyArn = formats.KeyArn | pulumi.Output[str]
PolicyArn = formats.PolicyArn | pulumi.Output[str]
