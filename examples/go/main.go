package main

import (
	"example.com/pulumi-gputenancy/sdk/go/gputenancy"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"
)

func main() {
	pulumi.Run(func(ctx *pulumi.Context) error {
		platform, err := gputenancy.NewPlatform(ctx, "platform", &gputenancy.PlatformArgs{
			Settings: &gputenancy.SettingsArgs{
				Cluster: gputenancy.ClusterSpecArgs{
					Resource_domain: "example.com",
					Agent_image:     "docker.io/library/python:3.13.9-slim-bookworm",
				},
				Pools: map[string]gputenancy.PoolSpecArgs{
					"gpu": {
						Node_selector: map[string]string{"nvidia.com/gpu.present": "true"},
						Nodes:         1,
						Device_count:  pulumi.IntRef(1), // a key that may be missing takes a pointer
						Memory_mib:    pulumi.IntRef(24564),
						Reserve_mib:   pulumi.IntRef(1524),
					},
				},
				Tenants: map[string]gputenancy.TenantSpecArgs{"chat": {}, "photos": {}},
				Residents: map[string]gputenancy.ResidentSpecArgs{
					"llm":          {Tenant: "chat", Pool: "gpu", Gpumem_mib: 16384},
					"photo-search": {Tenant: "photos", Pool: "gpu", Gpumem_mib: 4096},
				},
				Reconcile: &gputenancy.ReconcileSpecArgs{}, // with all its defaults
			},
		})
		if err != nil {
			return err
		}
		_, err = gputenancy.NewSeatedDeployment(ctx, "llm", &gputenancy.SeatedDeploymentArgs{
			Image:     pulumi.String("docker.io/library/busybox:1.37.0"), // your application
			Residents: platform.Residents,                                // the plugin takes the resident with this resource's name
		})
		ctx.Export("ledger", platform.Ledger)
		return err
	})
}
