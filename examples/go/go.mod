module gpu-go

go 1.24

require (
	example.com/pulumi-gputenancy/sdk/go v0.0.0
	github.com/pulumi/pulumi/sdk/v3 v3.259.0
)

replace example.com/pulumi-gputenancy/sdk/go => ./sdks/gputenancy
