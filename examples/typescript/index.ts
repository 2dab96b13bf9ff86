import * as pulumi from "@pulumi/pulumi";
import { SeatedDeployment } from "@pulumi/gputenancy";

const platform = new pulumi.Config().get("platform") ?? "organization/gpu-tenancy/prod";

new SeatedDeployment("immich-ml", {
    image: "docker.io/library/busybox:1.37.0", // your application
    platform, // the stack that has the seat of the resident immich-ml
});
