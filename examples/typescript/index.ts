// A whole environment: the args are the keys of docs/config.md.
import * as pulumi from "@pulumi/pulumi";
import * as trainium from "@pulumi/trainium-eks";

const environment = new trainium.TrainingStack(`trn-${pulumi.getStack()}`, {
    region: "us-west-2",
    owner: "ml-platform",
    allowedAccountIds: ["111122223333"],
    cluster: { endpoint: { publicAccessCidrs: ["203.0.113.0/24"] } },
    nodeGroups: [
        { name: "trn1", instanceType: "trn1.32xlarge", maxSize: 4, desiredSize: 2 },
        {
            name: "trn2",
            instanceType: "trn2.48xlarge",
            maxSize: 1,
            desiredSize: 0,
            capacity: { type: "capacity-block", id: "cr-0123456789abcdef0", zoneId: "usw2-az4" },
        },
    ],
    fileSystem: { storageCapacityGib: 4800, durability: { type: "s3" } },
    queues: [{ name: "research", weight: 3 }, { name: "batch" }],
    namespaces: [{ name: "vision", queues: ["research"] }],
});

// For researchers: pulumi stack output --json --show-secrets > dev.json, then trn train --outputs dev.json
export const stackOutputs = environment.stackOutputs;
