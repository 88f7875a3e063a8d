"""The components as a Pulumi package for TypeScript, Go, .NET, Java and YAML (`pulumi package add`)."""
